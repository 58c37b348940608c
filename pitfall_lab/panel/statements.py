"""Reports each statement of a cell just before it runs: IPython compiles and runs a cell's statements one by one
(:class:`Statements`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class Statements:
    """Calls ``report`` with the line of each statement of a cell before IPython runs it; how it runs and what it raises
    is unchanged. Exceptions of ``report`` are ignored.
    """

    def __init__(self, shell: InteractiveShell, report: Callable[[int], None]) -> None:
        self._shell, self._report = shell, report
        self._mine: Any = None

    def install(self) -> None:
        """Begin to report statements."""
        run: Any = self._shell.run_code

        @functools.wraps(run)
        def run_code(code: CodeType, *args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                self._report(min(line for _, _, line in code.co_lines() if line))
            return run(code, *args, **kwargs)

        self._mine = vars(self._shell)["run_code"] = run_code

    def remove(self) -> None:
        """Stop reporting statements; a wrapper that other code has put around ours is left in place."""
        if vars(self._shell).get("run_code") is self._mine:
            del self._shell.run_code
