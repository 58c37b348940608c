"""The static picture of broadcasting: sizes right-aligned, and small grids with ghost cells. :func:`draw` returns it as
SVG.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from pitfall_lab.trace.text import cell_text, shape_text
from pitfall_lab.views.broadcast import BroadcastCase, BroadcastOperand, BroadcastScene
from pitfall_lab.views.encoding import Canvas, cut, hue, width_of
from pitfall_lab.views.label_history import Facts

BOX, DRAWN, LEFT = 44, 4, 190
SMALL = 6


def has(scene: BroadcastScene, facts: Facts) -> bool:
    """Whether an operation had operands of different shapes."""
    del facts
    return bool(scene["cases"])


def draw(scene: BroadcastScene, facts: Facts, language: str = "en") -> str:
    """Draw at most ``DRAWN`` broadcasts in the program's order, as SVG; if there are more, those that failed and those
    of (N,) with (N, 1) are chosen first, and a line says how many are left out.
    """
    canvas, y, width = Canvas(), 10.0, 420.0
    cases = sorted(scene["cases"], key=lambda c: (not c["clash"], not c["wasteful"], not c["crossed"], c["step"]))[
        :DRAWN
    ]
    for case in sorted(cases, key=lambda c: c["step"]):
        height, across = _case(canvas, case, facts, y, language)
        y += height + 18
        width = max(width, across)
    if not cases:
        canvas.text(
            16,
            30,
            "没有形状不同的操作数" if language == "zh" else "no operation had operands of different shapes",
            "t dim",
        )
        y = 48
    more = len(scene["cases"]) + scene["left_out"] - len(cases)
    if more > 0:
        canvas.text(
            16,
            y + 4,
            f"另有 {more} 次广播未画出" if language == "zh" else f"{more} more broadcasts are not drawn",
            "t s dim",
        )
        y += 18
    return canvas.svg(width, y, "广播" if language == "zh" else "Broadcasting: shapes aligned from the right")


def _case(canvas: Canvas, case: BroadcastCase, facts: Facts, y: float, language: str) -> tuple[float, float]:
    rank = len(case["result"]["shape"])
    canvas.text(16, y + 16, cut((f"L{case['line']}  " if case["line"] else "") + case["code"], 60), "t b m")
    row, width = y + 28, LEFT + rank * BOX + 240.0
    for operand in case["operands"]:
        _sizes(canvas, operand, facts, row)
        note = _note(operand, language)
        width = max(width, LEFT + rank * BOX + 30 + width_of(note, 11))
        canvas.text(LEFT + rank * BOX + 14, row + 19, note, "t s dim")
        row += 34
    canvas.line(16, row, LEFT + rank * BOX, row, "rule")
    if case["clash"]:
        canvas.text(16, row + 22, "大小对不上" if language == "zh" else "sizes do not match", "t redt")
    else:
        inside = ("归约前", "before it is reduced") if case["result"]["reduced"] else ("结果", "result")
        canvas.text(16, row + 22, inside[0] if language == "zh" else inside[1], "t b")
    for d, size in enumerate(case["result"]["shape"]):
        clash = d in case["clash"]
        canvas.rect(LEFT + d * BOX, row + 6, BOX - 6, 24, "red" if clash else "box")
        canvas.text(
            LEFT + d * BOX + (BOX - 6) / 2, row + 22, "✕" if clash else size, "t redt" if clash else "t b m", "middle"
        )
    row += 42
    if rank <= 2 and not case["clash"]:
        height, across = _grids(canvas, case, facts, row)
        return row + height - y, max(across, width)
    return row - y, width


def _sizes(canvas: Canvas, operand: BroadcastOperand, facts: Facts, y: float) -> None:
    colour = hue(operand["storage"], facts.palette)
    shape = shape_text(operand["shape"])
    name = facts.name(operand["label"])
    if operand["storage"]:
        canvas.swatch(16, y + 5, operand["storage"], facts.palette)
    canvas.text(42 if operand["storage"] else 16, y + 19, cut(shape if name == shape else f"{name} {shape}", 22), "t s")
    for d, dim in enumerate(operand["dims"]):
        x = LEFT + d * BOX
        stretched = dim["kind"] in ("one", "missing")
        canvas.rect(
            x,
            y + 2,
            BOX - 6,
            24,
            "ghost" if stretched else "red" if dim["kind"] == "clash" else "box",
            stroke="" if stretched or dim["kind"] == "clash" else colour,
        )
        canvas.text(x + (BOX - 6) / 2, y + 18, "" if dim["size"] is None else dim["size"], "t s m", "middle")


def _note(operand: BroadcastOperand, language: str) -> str:
    stretched = [d for d, dim in enumerate(operand["dims"]) if dim["kind"] in ("one", "missing")]
    if not stretched:
        return ""
    dims = ", ".join(map(str, stretched))
    if language == "zh":
        return f"第 {dims} 维步长 0" + ("；反向时在此求和" if operand["summed"] else "")
    return f"stride 0 in dim {dims}" + ("; backward sums it" if operand["summed"] else "")


def _grids(canvas: Canvas, case: BroadcastCase, facts: Facts, y: float) -> tuple[float, float]:
    shape = case["result"]["shape"]
    rows, columns = [1, 1, *shape][-2:]
    rows, columns = min(rows, SMALL), min(columns, SMALL)
    if rows * columns == 0:
        return 0.0, 0.0
    x = 24.0
    for number, operand in enumerate(case["operands"]):
        if number:
            canvas.text(x - 14, y + rows * 11 + 4, case["sign"], "t b", "middle")
        _grid(canvas, operand, facts, (x, y), (rows, columns))
        x += columns * 36 + 30
    cells = case["result"]["cells"]
    if not cells:  # only the shapes met: there are no numbers to show
        return rows * 22 + 8.0, x + 16
    canvas.text(x - 14, y + rows * 11 + 4, "→", "t b", "middle")
    for r, c in product(range(rows), range(columns)):
        canvas.rect(x + c * 36, y + r * 22, 34, 20, "box")
        canvas.text(x + c * 36 + 17, y + r * 22 + 14, _short(cells[r * shape[-1] + c]), "t s m", "middle")
    return rows * 22 + 8.0, x + columns * 36 + 16


def _grid(
    canvas: Canvas, operand: BroadcastOperand, facts: Facts, place: tuple[float, float], size: tuple[int, int]
) -> None:
    (x, y), (rows, columns) = place, size
    colour, shape = hue(operand["storage"], facts.palette), operand["shape"]
    own = [1, 1, *shape][-2:]
    for r, c in product(range(rows), range(columns)):
        real = r < own[0] and c < own[1]
        index = min(r, own[0] - 1) * own[1] + min(c, own[1] - 1)
        value = operand["cells"][index] if operand["cells"] and index < len(operand["cells"]) else None
        canvas.rect(x + c * 36, y + r * 22, 34, 20, "box" if real else "ghost", stroke=colour if real else "")
        canvas.text(
            x + c * 36 + 17,
            y + r * 22 + 14,
            "" if value is None else _short(value),
            "t s m" if real else "t s m dim",
            "middle",
        )


def _short(value: Any) -> str:
    """A value in at most five characters, with fewer digits if necessary (``0.125`` is ``.125``),
    but never another power of ten.
    """
    text = cell_text(value)
    for digits in (3, 2, 1) if isinstance(value, float) else ():
        if len(_bare(text)) > 4:
            text = f"{value:.{digits}g}"
    return cut(_bare(text) if len(text) > 4 else text, 5)


def _bare(number: str) -> str:
    """A number without the 0 before its decimal point."""
    return re.sub(r"^(-?)0\.(?=\d)", r"\1.", number)
