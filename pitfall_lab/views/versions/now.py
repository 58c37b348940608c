"""Version counters at one moment: a row per counter, its tensors, and who writes to the same memory without being
counted. :func:`rows` returns the rows, :func:`draw` the picture of them as SVG.
"""

from __future__ import annotations

from typing import Any

from pitfall_lab.views.encoding import Canvas, cut, hue, width_of
from pitfall_lab.views.label_history import Facts

ROW = 46.0


def rows(facts: Facts) -> list[dict[str, Any]]:
    """The rows of the picture of versions: one for each pair of a storage and a version counter (or none) of a tensor.

    NumPy arrays and inference tensors have no counter. A row has ``counter`` (its label, or None), ``storage`` (its
    label), ``version`` (None without a counter), ``names`` of its tensors, and ``beside``: the names of tensors on the
    same storage with another counter or none (empty without a counter).
    """
    out: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    for label in facts.tensors:
        record = facts.tensor(label)
        key = record.get("counter"), record.get("storage")
        row = out.setdefault(
            key,
            {
                "counter": key[0],
                "storage": key[1],
                "version": facts.final["counters"].get(key[0]),
                "names": [],
                "beside": [],
            },
        )
        row["names"].append(str(record.get("name") or label))
    for row in out.values():
        if row["counter"]:
            row["beside"] = [
                n
                for other in out.values()
                if other is not row and other["storage"] == row["storage"]
                for n in other["names"]
            ]
    return list(out.values())


def draw(table: list[dict[str, Any]], facts: Facts, language: str = "en") -> str:
    """Return an SVG with a row for each entry of ``table``, as :func:`rows` returns it; a second border marks memory
    that tensors with another counter use too.
    """
    zh, canvas, y, width = language == "zh", Canvas(), 12.0, 320.0
    for row in table:
        colour = hue(row["storage"], facts.palette)
        badge = (
            facts.badge(row["counter"], row["storage"], row["version"])
            if row["counter"]
            else ("无计数器" if zh else "no counter")
        )
        wide = width_of(badge, 13) + 16
        canvas.swatch(16, y + 6, row["storage"], facts.palette)
        canvas.rect(
            46, y + 2, wide, 26, "box" if row["counter"] else "ghost", rx=13, stroke=colour if row["counter"] else ""
        )
        if row["beside"]:
            canvas.rect(42, y - 2, wide + 8, 34, "box", fill="none", stroke=colour, rx=17)
        canvas.text(46 + wide / 2, y + 20, badge, "t b m", "middle")
        names = cut(", ".join(row["names"]), 60)
        canvas.text(66 + wide, y + 19, names, "t")
        width = max(width, 82 + wide + width_of(names))
        if row["beside"]:
            others = cut(", ".join(row["beside"]), 40)
            sentence = f"{others} 的写入不计入此计数器" if zh else f"writes through {others} are not counted here"
            canvas.text(66 + wide, y + 36, sentence, "t s dim")
            width = max(width, 82 + wide + width_of(sentence, 11))
            y += 12
        y += ROW
    return canvas.svg(width, y, "版本计数器" if zh else "Version counters")
