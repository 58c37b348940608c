"""Draws storages: cells as squares, and below them a bar for each tensor over the cells that it reads. :func:`draw`
returns SVG.
"""

from __future__ import annotations

from typing import Any

from pitfall_lab.trace.text import cell_text, shape_text
from pitfall_lab.views.encoding import Canvas, cut, hue, width_of
from pitfall_lab.views.label_history import Facts, at
from pitfall_lab.views.storage import Brush, StorageScene, Store, Stroke, begins

CELL, GAP, LEFT, DIGITS = 56, 20, 16, 7
DRAWN, BRUSHES = 6, 8
WIDE = 520
"""Beside cells wider than this there is no room for a brush's label: it goes above its brush."""


def has(scene: StorageScene, facts: Facts) -> bool:
    """Always: the picture also says that there is no storage."""
    del scene, facts
    return True


def draw(
    scene: StorageScene, facts: Facts, language: str = "en", step: int | None = None, only: list[str] | None = None
) -> str:
    """At most ``DRAWN`` storages as they were after ``step`` (None: after the last one), as SVG.

    ``only`` are the labels of the storages to draw; None: the ``main`` ones of the scene, with a line on how many are
    left out.
    """
    chosen = [
        s
        for s in scene["storages"]
        if (s["id"] in only if only is not None else s["main"]) and (step is None or s["born"] <= step)
    ]
    left_out = len(scene["storages"]) - len(chosen[:DRAWN])
    canvas, y, width = Canvas(), 12.0, 360.0
    for storage in chosen[:DRAWN]:
        sheet = _Sheet(canvas, storage, facts, step)
        y = sheet.draw(y, language) + 22
        width = max(width, sheet.right + 16)
    if left_out > 0 and only is None:
        are = "storage is" if left_out == 1 else "storages are"
        text = f"另有 {left_out} 个存储未画出" if language == "zh" else f"{left_out} more {are} not drawn"
        canvas.text(LEFT, y + 8, text, "t s dim")
        y += 18
    if not chosen:
        canvas.text(LEFT, y + 14, "没有存储" if language == "zh" else "no storage", "t dim")
        y += 30
    names = ", ".join(_heading(s, facts) for s in chosen[:DRAWN])
    return canvas.svg(width, y, f"存储 {names}" if language == "zh" else f"Storages {names}")


class _Sheet:
    """One storage at one step."""

    def __init__(self, canvas: Canvas, storage: Store, facts: Facts, step: int | None) -> None:
        self.canvas, self.storage, self.facts, self.step = canvas, storage, facts, step
        self.colour = hue(storage["id"], facts.palette)
        self.places = _places(storage["columns"])
        self.right = self.places[-1] + CELL if self.places else float(LEFT)

    def draw(self, y: float, language: str) -> float:
        """Draw from ``y`` down and return where it ends."""
        storage, canvas = self.storage, self.canvas
        canvas.swatch(LEFT, y, storage["id"], self.facts.palette)
        canvas.text(
            LEFT + 26, y + 14, f"{_heading(storage, self.facts)} · {storage['size']} × {storage['dtype']}", "t b"
        )
        self._cells(y + 40)
        row = y + 80.0
        beside = self.right <= WIDE
        labels_at = max(self.right, 200.0) + 16 if beside else float(LEFT)
        for brush in storage["brushes"][:BRUSHES]:
            entry = at([(h["step"], h) for h in brush["history"]], self.step)
            if entry is None or entry.get("gone"):
                continue
            self._label(brush, entry, labels_at, row)
            row += 0 if beside else 24
            self._brush(brush, entry, row)
            row += 26
        more = len(storage["brushes"]) - BRUSHES
        if more > 0:
            canvas.text(LEFT, row + 6, f"另有 {more} 个张量" if language == "zh" else f"{more} more tensors", "t s dim")
            row += 20
        return row

    def _cells(self, top: float) -> None:
        storage, canvas = self.storage, self.canvas
        values = at([(v["step"], v["cells"]) for v in storage["values"]], self.step) or []
        written = next((set(w["cells"]) for w in storage["writes"] if w["step"] == self.step), set())
        for i, (index, x) in enumerate(zip(storage["columns"], self.places, strict=True)):
            canvas.text(x + CELL / 2, top - 5, index, "t s dim m", "middle")
            canvas.rect(x, top, CELL, 28, "box", stroke=self.colour)
            if i in written:
                canvas.rect(x + 1, top + 1, CELL - 2, 26, "now")
            value = _fitting(values[i]) if i < len(values) and values[i] is not None else "·"
            canvas.text(x + CELL / 2, top + 18, value, "t s m", "middle")
            last = storage["columns"][i - 1] if i else -1
            if index != last + 1:
                canvas.text(x - GAP / 2, top + 18, "…", "t b", "middle")
        if storage["columns"] and storage["columns"][-1] != storage["size"] - 1:
            canvas.text(self.right + 10, top + 18, "…", "t b", "middle")

    def _brush(self, brush: Brush, entry: Stroke, y: float) -> None:
        covered = [i for i, names in enumerate(entry["cover"]) if names]
        if covered:
            self.canvas.line(
                self.places[covered[0]] + CELL / 2, y + 9, self.places[covered[-1]] + CELL / 2, y + 9, "ghost"
            )
        kind = "box" if entry["alive"] else "ghost"
        for i in covered:
            self.canvas.rect(
                self.places[i] + 3, y, CELL - 6, 18, kind, rx=0 if brush["kind"] == "array" else 6, stroke=self.colour
            )
            self.canvas.text(self.places[i] + CELL / 2, y + 13, _indices(entry["cover"][i]), "t s m", "middle")

    def _label(self, brush: Brush, entry: Stroke, x: float, y: float) -> None:
        """Draw a counter's badge and the tensor's name and layout; the border is double if it is not the first
        counter.
        """
        version = at(self.facts.counters.get(entry["counter"] or "", []), self.step)
        badge = self.facts.number(entry["counter"], self.storage["id"], version) if entry["counter"] else "NumPy"
        wide = width_of(badge, 11) + 12
        counters = self.storage["counters"]
        self.canvas.rect(x, y, wide, 18, "box", rx=9, stroke=self.colour)
        if entry["counter"] and entry["counter"] != counters[0]:
            self.canvas.rect(x - 3, y - 3, wide + 6, 24, "box", fill="none", stroke=self.colour, rx=12)
        self.canvas.text(x + wide / 2, y + 13, badge, "t s m", "middle")
        place = begins(self.storage, entry["offset"])
        form = f"{shape_text(entry['shape'])}  stride {shape_text(entry['stride'])}  {place}"
        label = f"{self.facts.name(brush['tensor'])}  {form}"
        self.canvas.text(x + wide + 10, y + 13, label, "t s")
        self.right = max(self.right, x + wide + 10 + width_of(label, 11))


def _heading(storage: Store, facts: Facts) -> str:
    return storage["id"] if facts.labelled else facts.called(storage["id"])


def _fitting(value: Any) -> str:
    """A value as text that fits into its cell: floats get fewer digits if necessary, but their
    power of ten is always shown.
    """
    text = cell_text(value)
    for digits in (3, 2, 1) if isinstance(value, float) else ():
        if len(text) > DIGITS:
            text = f"{value:.{digits}g}"
    return cut(text, DIGITS + 1)


def _places(columns: list[int]) -> list[float]:
    """Left edges of the cells; a wider gap where cells are left out."""
    places, x, last = [], float(LEFT), -1
    for index in columns:
        x += GAP if index != last + 1 else 0
        places.append(x)
        x += CELL
        last = index
    return places


def _indices(names: list[str]) -> str:
    """The indices that read a cell as text: one or two of them if they are short, else the first with "…"."""
    return " ".join(names) if len(names) < 3 and len(" ".join(names)) < 9 else cut(names[0], 7) + "…"
