"""Storages on paper: the cells, and under them each tensor or NumPy array with the index that reads each cell.
:func:`draw` returns a matplotlib figure.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pitfall_lab.trace.text import cell_text, shape_text
from pitfall_lab.views import print_style
from pitfall_lab.views.encoding import cut
from pitfall_lab.views.label_history import Facts, at
from pitfall_lab.views.storage import Brush, StorageScene, Store, Stroke, begins

DRAWN, BRUSHES, CELLS = 3, 8, 13
CELL, GAP, LEFT = 1.15, 0.45, 0.3


def draw(scene: StorageScene, facts: Facts, language: str = "en", step: int | None = None) -> Figure:
    """A printable figure of up to ``DRAWN`` of the scene's main storages, as they were after ``step`` (None: the last
    one).

    A line at the bottom says how many storages are not drawn.
    """
    zh = language == "zh"
    chosen = [s for s in scene["storages"] if s["main"] and (step is None or s["born"] <= step)][:DRAWN]
    rows = [
        [(b, entry) for b in one["brushes"] if (entry := _entry(b, step)) and not entry.get("gone")][:BRUSHES]
        for one in chosen
    ]
    height = max(1.2, sum(2.5 + 1.1 * len(row) for row in rows) + 0.7)
    figure, sheet = print_style.sheet(height)
    y = 0.3
    for storage, brushes in zip(chosen, rows, strict=True):
        _storage(sheet, storage, brushes, facts, (y, step), zh=zh)
        y += 2.5 + 1.1 * len(brushes)
    left = len(scene["storages"]) + scene["left_out"] - len(chosen)
    if not chosen:
        print_style.write(sheet, LEFT, 0.6, "没有存储" if zh else "no storage", size=print_style.TEXT)
    elif left:
        sentence = f"另有 {left} 个存储未画出" if zh else f"{left} more storages are not drawn"
        print_style.write(sheet, LEFT, height - 0.4, sentence, color=print_style.DIM)
    return figure


def _entry(brush: Brush, step: int | None) -> Stroke | None:
    entry: Stroke | None = at([(h["step"], h) for h in brush["history"]], step)
    return entry


def _storage(
    sheet: Axes, storage: Store, brushes: list[Any], facts: Facts, when: tuple[float, int | None], *, zh: bool
) -> None:
    y, step = when
    columns = storage["columns"][:CELLS]
    places, x = [], LEFT
    for before, index in zip([-1, *columns], columns, strict=False):
        x += GAP if index != before + 1 else 0
        places.append(x)
        x += CELL
    over = max(0.0, x + (GAP if len(columns) < storage["size"] else 0) - print_style.WIDTH)
    while over > 0 and columns:  # gaps between cells take room too
        columns, places, x = columns[:-1], places[:-1], places[-1]
        over = max(0.0, x + GAP - print_style.WIDTH)
    print_style.swatch(sheet, LEFT, y, storage["id"], facts.palette)
    print_style.write(
        sheet,
        LEFT + 0.75,
        y + 0.25,
        f"{storage['id'] if facts.labelled else facts.called(storage['id'])} · {storage['size']} × {storage['dtype']}",
        size=print_style.TEXT,
        weight="bold",
    )
    values = at([(v["step"], v["cells"]) for v in storage["values"]], step) or []
    written = next((set(w["cells"]) for w in storage["writes"] if w["step"] == step), set())
    top = y + 1.15
    for i, (index, place) in enumerate(zip(columns, places, strict=True)):
        print_style.write(sheet, place + CELL / 2, top - 0.22, index, ha="center", color=print_style.DIM)
        value = cell_text(values[i]) if i < len(values) and values[i] is not None else "·"
        border = 2.0 if i in written else 0.8
        print_style.cell(
            sheet, (place, top), (CELL, 0.65), cut(value, 7), linewidth=border, gid=f"cell-{storage['id']}-{index}"
        )
        if index != (columns[i - 1] if i else -1) + 1:
            print_style.write(sheet, place - GAP / 2, top + 0.32, "…", ha="center")
    if columns and columns[-1] != storage["size"] - 1:
        print_style.write(sheet, x + GAP / 2, top + 0.32, "…", ha="center")
    for number, (brush, entry) in enumerate(brushes):
        _brush(sheet, brush, entry, facts, (top + 0.95 + 1.1 * number, step, places, storage), zh=zh)


def _brush(sheet: Axes, brush: Brush, entry: Stroke, facts: Facts, where: tuple[Any, ...], *, zh: bool) -> None:
    y, step, places, storage = where
    counter = entry["counter"]
    version = at(facts.counters.get(counter or "", []), step)
    mark = facts.badge(counter, storage["id"], version) if counter else "NumPy" if brush["kind"] == "array" else "–"
    wide = print_style.long(mark) + 0.25
    other = (
        bool(counter) and counter != storage["counters"][0]
    )  # the same memory under another counter: a double border
    if other:
        print_style.pill(sheet, (LEFT - 0.07, y - 0.07), (wide + 0.14, 0.54))
    print_style.pill(sheet, (LEFT, y), (wide, 0.4), mark)
    gone = "" if entry["alive"] else "，已释放" if zh else ", gone"
    place = begins(storage, entry["offset"], zh=zh)
    form = f"{shape_text(entry['shape'])}  stride {shape_text(entry['stride'])}  {place}{gone}"
    print_style.write(sheet, LEFT + wide + 0.2, y + 0.2, f"{cut(facts.name(brush['tensor']), 32)}  {form}")
    look = (
        print_style.looks(storage["id"], facts.palette)
        if entry["alive"]
        else {"facecolor": "white", "linestyle": (0, (2, 2))}
    )
    covered = [i for i in range(len(places)) if i < len(entry["cover"]) and entry["cover"][i]]
    if covered:
        ends = [places[covered[0]] + CELL / 2, places[covered[-1]] + CELL / 2]
        sheet.plot(ends, [y + 0.76] * 2, color=print_style.DIM, lw=0.8, ls=(0, (2, 2)), zorder=0)
    for i in covered:
        names = entry["cover"][i]
        text = " ".join(names) if len(names) < 3 and len(" ".join(names)) < 8 else cut(names[0], 6) + "…"
        draw = print_style.cell if brush["kind"] == "array" else print_style.pill
        # The bar has the storage's fill, the index is on white: both are readable on paper.
        draw(sheet, (places[i] + 0.06, y + 0.54), (CELL - 0.12, 0.44), "", **look)
        print_style.write(
            sheet,
            places[i] + CELL / 2,
            y + 0.76,
            text,
            ha="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
