"""The tensors that a function has made and that are alive, for exercises that ask what it keeps. :class:`TensorsAlive`
lists them.

A cell that is graded may not have all objects listed, and neither may the program that uses it, which is compiled in
the cell's own process. This class is there before the cell, and hands out tensors alone.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Self


class TensorsAlive:
    """A context manager whose :meth:`now` lists the living tensors that were made inside the block.

    Objects from before are frozen until the block ends, so that the garbage collector does not list them: a notebook
    has a million objects, and what other code keeps alive is not the function's.
    """

    def __enter__(self) -> Self:
        gc.freeze()
        self._probe: list[Any] = []
        return self

    def __exit__(self, *_: object) -> None:
        gc.unfreeze()

    def now(self) -> list[Any]:
        """Return the tensors made inside the ``with`` block that are alive: not parameters, and none of another class
        derived from Tensor.

        Raises:
            RuntimeError: objects were frozen since the last call (at the first: since the block began), so that tensors
                may be hidden.
        """
        kind, objects = sys.modules["torch"].Tensor, gc.get_objects()
        if not any(each is self._probe for each in objects):
            raise RuntimeError("objects have been frozen: what is alive cannot be seen")
        self._probe = []
        return [each for each in objects if type(each) is kind]
