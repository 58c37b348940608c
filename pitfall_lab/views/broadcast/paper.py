"""Broadcasting on paper: sizes aligned from the right, and the small tables that meet. :func:`draw` returns a
matplotlib figure.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pitfall_lab.trace.text import cell_text, shape_text
from pitfall_lab.views import print_style
from pitfall_lab.views.broadcast import BroadcastCase, BroadcastOperand, BroadcastScene
from pitfall_lab.views.encoding import cut
from pitfall_lab.views.label_history import Facts

DRAWN, SMALL, LEFT, BOX = 3, 5, 5.2, 1.1
WIDE, TALL = 0.84, 0.5


def draw(scene: BroadcastScene, facts: Facts, language: str = "en") -> Figure:
    """Draw at most ``DRAWN`` broadcasts in the program's order; if there are more, those that failed are chosen first,
    then wasteful ones and those of (N,) with (N, 1), and a line says how many are left out.
    """
    zh = language == "zh"
    cases = sorted(scene["cases"], key=lambda c: (not c["clash"], not c["wasteful"], not c["crossed"], c["step"]))[
        :DRAWN
    ]
    cases.sort(key=lambda c: c["step"])
    more = len(scene["cases"]) + scene["left_out"] - len(cases)
    tall = [2.1 + 0.8 * len(c["operands"]) + (_rows(c) * (TALL + 0.06) + 0.6 if _drawable(c) else 0) for c in cases]
    height = max(1.2, 0.3 + sum(tall) + (0.6 if more else 0))
    figure, sheet = print_style.sheet(height)
    y = 0.3
    for case, rise in zip(cases, tall, strict=True):
        _case(sheet, case, facts, y, zh=zh)
        y += rise
    if not cases:
        print_style.write(
            sheet,
            0.3,
            0.6,
            "没有形状不同的操作数" if zh else "no operation had operands of different shapes",
            size=print_style.TEXT,
        )
    if more:
        left = f"另有 {more} 次广播未画出" if zh else f"{more} more broadcasts are not drawn"
        print_style.write(sheet, 0.3, height - 0.3, left, color=print_style.DIM)
    return figure


def _rows(case: BroadcastCase) -> int:
    return min([1, *case["result"]["shape"]][-2:][0] if len(case["result"]["shape"]) > 1 else 1, SMALL)


def _drawable(case: BroadcastCase) -> bool:
    shape = case["result"]["shape"]
    return not case["clash"] and 0 < len(shape) <= 2 and 0 not in shape and len(case["operands"]) <= 2


def _case(sheet: Axes, case: BroadcastCase, facts: Facts, y: float, *, zh: bool) -> None:
    shape = case["result"]["shape"]
    print_style.write(
        sheet,
        0.3,
        y + 0.3,
        cut((f"L{case['line']}  " if case["line"] else "") + case["code"], 60),
        size=print_style.TEXT,
        weight="bold",
    )
    row = y + 0.7
    for operand in case["operands"]:
        _sizes(sheet, operand, facts, row, zh=zh)
        row += 0.8
    sheet.plot([0.3, LEFT + len(shape) * BOX], [row + 0.04] * 2, color=print_style.DIM, lw=0.6)
    said = ("sizes do not match", "大小对不上") if case["clash"] else ("result", "结果")
    said = ("before it is reduced", "归约前") if case["result"]["reduced"] and not case["clash"] else said
    print_style.write(
        sheet, 0.3, row + 0.48, said[zh], weight="bold", color=print_style.RED if case["clash"] else print_style.INK
    )
    for d, size in enumerate(shape):
        clash = d in case["clash"]
        look: dict[str, Any] = {"edgecolor": print_style.RED, "linewidth": 2.0, "gid": "clash"} if clash else {}
        print_style.cell(sheet, (LEFT + d * BOX, row + 0.16), (BOX - 0.15, 0.6), "✕" if clash else size, **look)
    if case["crossed"] and not case["clash"]:
        product_of = f"{shape[-2]} × {shape[-1]} = {shape[-2] * shape[-1]}"
        sentence = (
            f"每个元素与每个元素相遇：{product_of} 个数"
            if zh
            else f"every element meets every element: {product_of} numbers"
        )
        print_style.write(sheet, LEFT + len(shape) * BOX + 0.2, row + 0.48, sentence)
    if _drawable(case):
        _tables(sheet, case, row + 1.1)


def _sizes(sheet: Axes, operand: BroadcastOperand, facts: Facts, y: float, *, zh: bool) -> None:
    if operand["storage"]:
        print_style.swatch(sheet, 0.3, y + 0.05, operand["storage"], facts.palette)
    name, shape = facts.name(operand["label"]), shape_text(operand["shape"])
    print_style.write(
        sheet, 1.0 if operand["storage"] else 0.3, y + 0.3, cut(shape if name == shape else f"{name} {shape}", 26)
    )
    for d, dim in enumerate(operand["dims"]):
        clash = dim["kind"] == "clash"
        look = {"edgecolor": print_style.RED, "linewidth": 2.0} if clash else {}
        ghost = dim["kind"] in ("one", "missing")
        print_style.cell(
            sheet,
            (LEFT + d * BOX, y),
            (BOX - 0.15, 0.6),
            "" if dim["size"] is None else dim["size"],
            ghost=ghost,
            **look,
        )
    stretched = ", ".join(str(d) for d, dim in enumerate(operand["dims"]) if dim["kind"] in ("one", "missing"))
    if stretched:
        sentence = f"第 {stretched} 维步长 0" if zh else f"stride 0 in dim {stretched}"
        if operand["summed"]:
            sentence += "；反向时在此求和" if zh else "; backward sums it"
        print_style.write(sheet, LEFT + len(operand["dims"]) * BOX + 0.2, y + 0.3, sentence, color=print_style.DIM)


def _tables(sheet: Axes, case: BroadcastCase, y: float) -> None:
    shape = case["result"]["shape"]
    full = ([1, *shape])[-2:]
    rows, columns = min(full[0], SMALL), min(full[1], SMALL)
    middle, x = y + rows * (TALL + 0.06) / 2, 0.3
    for number, operand in enumerate(case["operands"]):
        if number:
            print_style.write(sheet, x - 0.3, middle, case["sign"], ha="center", size=print_style.TEXT)
        own = ([1, 1, *operand["shape"]])[-2:]
        for r, c in product(range(rows), range(columns)):
            index = min(r, own[0] - 1) * own[1] + min(c, own[1] - 1)
            value = operand["cells"][index] if operand["cells"] and index < len(operand["cells"]) else None
            ghost = r >= own[0] or c >= own[1]
            look = {} if ghost else {"facecolor": "#EFEFEF"}
            print_style.cell(
                sheet, (x + c * WIDE, y + r * (TALL + 0.06)), (WIDE - 0.06, TALL), _short(value), ghost=ghost, **look
            )
        x += columns * WIDE + 0.6
    print_style.write(sheet, x - 0.3, middle, "→", ha="center", size=print_style.TEXT)
    cells = case["result"]["cells"]
    for r, c in product(range(rows), range(columns)):
        value = cells[r * full[1] + c] if cells and r * full[1] + c < len(cells) else None
        print_style.cell(sheet, (x + c * WIDE, y + r * (TALL + 0.06)), (WIDE - 0.06, TALL), _short(value), gid="result")


def _short(value: Any) -> str:
    """A cell's value, with one or two digits if these take at most five characters, else
    cut to five; empty for None.
    """
    if value is None:
        return ""
    text = cell_text(value)
    if isinstance(value, float) and len(text) > 5:
        text = next((t for t in (f"{value:.2g}", f"{value:.1g}") if len(t) <= 5), text)
    return cut(text, 5)
