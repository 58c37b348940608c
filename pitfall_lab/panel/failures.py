"""Remembers how cells have failed (:class:`Failures`).

A failed run may have changed what its cell starts from: when run again, the cell then raises another error, or none,
and only the earlier one shows the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pitfall_lab.panel.cells_run import Cell, Ran

if TYPE_CHECKING:
    from pitfall_lab.panel.cause import Cause

MOST = 50


class Failed(NamedTuple):
    """A failed run of a cell: ``run`` is its number, ``message`` the error message, ``cause`` the reason (None if the
    panel does not know it).
    """

    run: int
    message: str
    cause: Cause | None


class Failures:
    """The failures of cells, by their sources."""

    def __init__(self) -> None:
        self._by_text: dict[str, Failed] = {}

    def ran(self, cell: Cell, error: BaseException | None, cause: Cause | None, ran: Ran) -> None:
        """Remember the failure of a cell that has just run, with ``error`` (None: it did not fail) and the reason
        ``cause`` (None: unknown). ``ran`` are the runs before it.

        It does not replace an earlier failure of the cell with another message if since then only this cell ran, or
        cells that bind and write nothing: then it may only be a consequence of the earlier one.
        """
        if not cell.whole:
            return
        if error is not None and self.before(cell.text, error, ran) is None:
            self._by_text[cell.text] = Failed(cell.count, str(error), cause)
        while len(self._by_text) > MOST:
            del self._by_text[next(iter(self._by_text))]

    def before(self, text: str, error: BaseException | None, ran: Ran) -> Failed | None:
        """The earlier failure of the cell with the source ``text``, if ``error`` is another error or None, and since
        then only this cell ran, or cells that bind and write nothing; else None.
        """
        failed = self._by_text.get(text)
        if failed is None or (error is not None and str(error) == failed.message):
            return None
        return (
            failed
            if all(each.text == text or not each.bound | each.written for each in ran.since(failed.run))
            else None
        )
