"""The kernel's side of the live panel in JupyterLab's right sidebar, which shows a notebook's live objects and warnings
about them; :class:`Offer` registers it.

The kernel offers a connection. Until a front end opens it, nothing is imported and no cell is examined.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from pitfall_lab.panel.cause import Cause
    from pitfall_lab.panel.cells_behind import Behind
    from pitfall_lab.panel.connection import LivePanel
    from pitfall_lab.panel.failures import Failed

TARGET = "pitfall-lab.live"


class Offer:
    """The connection that a kernel offers to front ends; a shell without a kernel (``shell``) offers none."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self.beside: LivePanel | None = None
        """The object that answers messages, after the connection has been opened."""

    def cause(self, error: BaseException | None, text: str) -> Cause | None:
        """The reason why the cell with the source ``text`` failed with ``error``, if the panel had warned of it before
        or finds it in the live graphs; None if not, or if no front end has opened the connection yet.
        """
        return self.beside.cause(error, text) if self.beside is not None else None

    def failed_before(self, error: BaseException | None, text: str) -> Failed | None:
        """How an earlier run of the cell with the source ``text`` failed, if it failed with another error than
        ``error`` (None: it did not fail now) and since then only this cell ran, or cells that bind and write nothing;
        None otherwise, or if no front end has opened the connection yet.
        """
        return self.beside.failed_before(error, text) if self.beside is not None else None

    def warned(self, cell: str, text: str, counts: Sequence[int] = ()) -> list[Mapping[str, Any]]:
        """The panel's latest warnings, as it sends them, that point to this cell (by its id ``cell``, or its source
        ``text``) or to one of the runs with the numbers ``counts``; an empty list if there are none.
        """
        return self.beside.warned(cell, text, counts) if self.beside is not None else []

    def behind(self, error: BaseException | None, text: str) -> Behind | None:
        """The earlier cells in which the failure of the cell with the source ``text`` began; None if there are none, or
        the panel does not know them. ``error`` is the exception of the cell, None if it raised none.
        """
        return self.beside.behind(error, text) if self.beside is not None else None

    @property
    def _comms(self) -> Any:
        return getattr(getattr(self._shell, "kernel", None), "comm_manager", None)

    def install(self) -> None:
        """Register the connection, so that front ends can open it."""
        if self._comms is not None:
            self._comms.register_target(TARGET, self._opened)

    def remove(self) -> None:
        """Unregister the connection, and close those that are open."""
        if self._comms is not None:
            self._comms.unregister_target(TARGET, self._opened)
        if self.beside is not None:
            self.beside.remove()
            self.beside = None

    def _opened(self, comm: Any, opening: Mapping[str, Any]) -> None:
        from pitfall_lab.panel.connection import LivePanel

        if self.beside is None:
            self.beside = LivePanel(self._shell)
            self.beside.install()
        self.beside.opened(comm, opening)
