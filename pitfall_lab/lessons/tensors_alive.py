"""The tensors of this process, for exercises that ask what a function keeps alive.

A cell that is graded may not have all objects listed, and neither may the program that uses it, which is compiled in
the cell's own process. This function is there before the cell, and hands out tensors alone.
"""

from __future__ import annotations

import gc
import sys
from typing import Any


def tensors_alive() -> list[Any]:
    """Return all tensors that the collector knows: not parameters, and none of any other class derived from Tensor."""
    kind = sys.modules["torch"].Tensor
    return [each for each in gc.get_objects() if type(each) is kind]
