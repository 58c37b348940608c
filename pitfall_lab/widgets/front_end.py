"""What draws the Explorer in the browser: carried by each widget, or taken from the page's JupyterLab extension."""

from __future__ import annotations

import base64
import re
from functools import cache
from typing import Any

import anywidget
import traitlets
from IPython.core.getipython import get_ipython

from pitfall_lab.resources import STATIC

PANEL = "pitfall-lab.live"
"""The connection that a page with the extension opens to the kernel."""


class DrawnWidget(anywidget.AnyWidget):
    """A widget whose script is the Explorer's.

    It carries the script (some 80 kB), or, where a page with the extension is connected to the kernel, two kilobytes
    that take it from the extension, once for all widgets of the page. A page without it then asks the kernel, once too.
    """

    _esm = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(_esm=_text("shared.js" if is_page_connected() else "explorer.js"), **traits)
        self.on_msg(self._asked_for_script)

    def _asked_for_script(self, _: Any, content: Any, __: Any) -> None:
        """Send the script, compressed, to a page that asks for this very one."""
        name, script = _script()
        if isinstance(content, dict) and content.get("front_end") == name:
            self.send({"front_end": name}, buffers=[script])


def is_page_connected() -> bool:
    """Whether a page that has the extension is connected to this kernel, as far as the kernel knows."""
    kernel = getattr(get_ipython(), "kernel", None)
    comms = getattr(getattr(kernel, "comm_manager", None), "comms", None) or {}
    return any(getattr(comm, "target_name", None) == PANEL for comm in list(comms.values()))


@cache
def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


@cache
def _script() -> tuple[str, bytes]:
    """The script's name and its text, deflated: both stand in what a widget carries."""
    carried = _text("explorer.js")
    name, code = re.search(r"pitfall-lab ([0-9a-f]{16})", carried), re.search(r'atob\("([^"]+)"\)', carried)
    if name is None or code is None:
        raise RuntimeError("static/explorer.js is not as frontend/build.mjs writes it")
    return name[1], base64.b64decode(code[1])
