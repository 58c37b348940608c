"""One picture as a widget: a storage whose cells can be written to, or shapes to play with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from pitfall_lab.trace import LANGUAGES, Language, T, Trace
from pitfall_lab.widgets.explorer import deflated, packed
from pitfall_lab.widgets.front_end import DrawnWidget

Put = Callable[[str, list[int], str], tuple[Trace, dict[str, Any]]]
"""Writes a text as a number to the element at an index of a tensor; returns the trace and its scene after that."""


class Look(DrawnWidget):
    """One view of a trace that is a look at live tensors, without the rest of the Explorer.

    Args:
        view: Which: ``"storage"`` or ``"broadcast"``.
        trace: What was seen.
        scene: The view's data.
        put: Writes to a cell; raises an error with a bilingual ``text`` when it will not.
            Without it nothing can be written.
        language: ``"en"`` or ``"zh"``.
    """

    _trace = traitlets.Bytes().tag(sync=True)
    _scene = traitlets.Bytes().tag(sync=True)
    _view = traitlets.Unicode().tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    focus = traitlets.Unicode("").tag(sync=True)
    language = traitlets.Enum(LANGUAGES, "en").tag(sync=True)

    def __init__(
        self, view: str, trace: Trace, scene: dict[str, Any], *, put: Put | None = None, language: Language = "en"
    ) -> None:
        self._put = put
        data = {"_trace": deflated(trace.to_json()), "_scene": packed(scene), "step": len(trace.events) - 1}
        super().__init__(_view=view, language=language, **data)
        self.on_msg(self._received)

    def _received(self, _: Any, content: Any, __: Any) -> None:
        """Handle the page's request to write: ``{"edit": {"tensor": label, "index": [numbers], "text": number}}``.

        It never sends code.
        """
        wanted = content.get("edit") if isinstance(content, dict) else None
        if not isinstance(wanted, dict) or self._put is None:
            return
        try:
            label, index, text = wanted.get("tensor"), wanted.get("index"), wanted.get("text")
            if not (
                isinstance(label, str)
                and isinstance(text, str)
                and isinstance(index, list)
                and all(type(i) is int for i in index)
            ):
                self._refuse(T("This is no write to a cell.", "这不是对单元的写入。"))
                return
            trace, scene = self._put(label, index, text)
        except Exception as error:
            kind = type(error).__name__
            self._refuse(getattr(error, "text", T(f"It could not be written ({kind}).", f"无法写入（{kind}）。")))
            return
        with self.hold_sync():
            self._scene, self.step = packed(scene), len(trace.events) - 1
            self._trace = deflated(trace.to_json())
        self.send({"edit": True})

    def _refuse(self, text: T) -> None:
        self.send({"edit": True, "failed": {"en": text.en, "zh": text.zh}})
