"""The static picture of the storages that matter: cells as squares, brushes as bars under them."""

from __future__ import annotations

from typing import Any

from pitfall_lab.trace.text import cell_text, shape_text
from pitfall_lab.views.facts import Facts, at
from pitfall_lab.views.ink import Canvas, cut, hue, letter, width_of

CELL, GAP, LEFT = 56, 20, 16
DRAWN = 6


def draw(scene: dict[str, Any], facts: Facts, language: str = "en", step: int | None = None, only: list[str] | None = None) -> str:
    """Storages after ``step`` (the last one when ``None``); ``only`` names which, else the ones that matter most."""
    chosen = [s for s in scene["storages"] if (s["id"] in only if only is not None else s["main"]) and (step is None or s["born"] <= step)]
    left_out = len(scene["storages"]) - len(chosen[:DRAWN])
    canvas, y, width = Canvas(), 12.0, 360.0
    for storage in chosen[:DRAWN]:
        height, across = _storage(canvas, storage, facts, y, step, language)
        y += height + 22
        width = max(width, across)
    if left_out > 0 and only is None:
        text = f"另有 {left_out} 个存储未画出" if language == "zh" else f"{left_out} more storages are not drawn"
        canvas.text(LEFT, y + 8, text, "t s dim")
        y += 18
    if not chosen:
        canvas.text(LEFT, y + 14, "没有存储" if language == "zh" else "no storage", "t dim")
        y += 30
    names = ", ".join(s["id"] for s in chosen[:DRAWN])
    return canvas.svg(width, y, f"存储 {names}" if language == "zh" else f"Storages {names}")


def _storage(canvas: Canvas, storage: dict[str, Any], facts: Facts, y: float, step: int | None, language: str) -> tuple[float, float]:
    colour = hue(storage["id"], facts.palette)
    head = f"{storage['id']} · {storage['size']} × {storage['dtype']}"
    canvas.swatch(LEFT, y, storage["id"], facts.palette)
    canvas.text(LEFT + 26, y + 14, head, "t b")
    places = _places(storage["columns"], storage["size"])
    values = (at([(v["step"], v["cells"]) for v in storage["values"]], step) or []) if storage["values"] else []
    written = next((set(w["cells"]) for w in storage["writes"] if w["step"] == step), set())
    top = y + 40
    for i, (index, x) in enumerate(zip(storage["columns"], places, strict=True)):
        canvas.text(x + CELL / 2, top - 5, index, "t s dim m", "middle")
        canvas.rect(x, top, CELL, 28, "box", stroke=colour)
        if i in written:
            canvas.rect(x + 1, top + 1, CELL - 2, 26, "now")
        value = cell_text(values[i]) if i < len(values) and values[i] is not None else "·"
        canvas.text(x + CELL / 2, top + 18, cut(value, 7), "t s m", "middle")
    _gaps(canvas, storage, places, top)
    row, right = top + 40.0, (places[-1] + CELL if places else LEFT)
    labels_at = min(max(right, 200) + 16, 620)
    for brush in storage["brushes"][:8]:
        entry = at([(h["step"], h) for h in brush["history"]], step)
        if entry is None or entry.get("gone"):
            continue
        right = max(right, _brush(canvas, brush, entry, facts, places, row, labels_at, storage, step))
        row += 26
    more = len(storage["brushes"]) - 8
    if more > 0:
        canvas.text(LEFT, row + 6, f"另有 {more} 个张量" if language == "zh" else f"{more} more tensors", "t s dim")
        row += 20
    return row - y, right + 16


def _places(columns: list[int], size: int) -> list[float]:
    """Left edges of the cells; a wider gap where cells are left out."""
    places, x, last = [], float(LEFT), -1
    for index in columns:
        x += GAP if index != last + 1 else 0
        places.append(x)
        x += CELL
        last = index
    return places


def _gaps(canvas: Canvas, storage: dict[str, Any], places: list[float], top: float) -> None:
    columns = storage["columns"]
    for before, after, x in zip(columns, columns[1:], places[1:], strict=False):
        if after != before + 1:
            canvas.text(x - GAP / 2, top + 18, "…", "t b", "middle")
    if columns and columns[-1] != storage["size"] - 1:
        canvas.text(places[-1] + CELL + 10, top + 18, "…", "t b", "middle")


def _indices(names: list[str]) -> str:
    """The indices that read a cell: one or two as they are, more with "…"."""
    return " ".join(names) if len(names) < 3 and len(" ".join(names)) < 9 else cut(names[0], 7) + "…"


def _brush(
    canvas: Canvas, brush: dict[str, Any], entry: dict[str, Any], facts: Facts, places: list[float], y: float, labels_at: float,
    storage: dict[str, Any], step: int | None,
) -> float:
    colour = hue(storage["id"], facts.palette)
    covered = [i for i, names in enumerate(entry["cover"]) if names]
    if covered:
        canvas.line(places[covered[0]], y + 9, places[covered[-1]] + CELL, y + 9, "ghost")
    for i in covered:
        kind = "box" if entry["alive"] else "ghost"
        canvas.rect(places[i] + 3, y, CELL - 6, 18, kind, rx=0 if brush["kind"] == "array" else 6, stroke=colour)
        canvas.text(places[i] + CELL / 2, y + 13, _indices(entry["cover"][i]), "t s m", "middle")
    version = at(facts.counters.get(entry["counter"] or "", []), step)
    badge = f"{entry['counter']}·v{version}" if entry["counter"] else "NumPy"
    first = facts.final["tensors"].get(storage["brushes"][0]["tensor"], {}).get("counter")
    x = labels_at
    wide = width_of(badge, 11) + 12
    canvas.rect(x, y, wide, 18, "box", rx=9, stroke=colour)
    if entry["counter"] != first:
        canvas.rect(x - 3, y - 3, wide + 6, 24, "box", fill="none", stroke=colour, rx=12)
    canvas.text(x + wide / 2, y + 13, badge, "t s m", "middle")
    label = f"{facts.name(brush['tensor'])}  {shape_text(entry['shape'])}  stride {shape_text(entry['stride'])}  offset {entry['offset']}"
    canvas.text(x + wide + 8, y + 13, label, "t s")
    return x + wide + 8 + width_of(label, 11)
