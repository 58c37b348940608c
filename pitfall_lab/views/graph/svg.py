"""The static picture of the graph after the last step."""

from __future__ import annotations

from pitfall_lab.views.encoding import Canvas, cut, hue
from pitfall_lab.views.graph import Card, GraphScene, Notch
from pitfall_lab.views.graph.ladder import Ladder
from pitfall_lab.views.graph.ways import back
from pitfall_lab.views.label_history import Facts, at

ROWS = 40


def has(scene: GraphScene, facts: Facts) -> bool:
    """Whether the program created a node."""
    del scene
    return bool(facts.nodes)


def draw(scene: GraphScene, facts: Facts, language: str = "en") -> str:
    """The cards (loops folded) as SVG, or for a large graph the first ``ROWS`` rows of the ladder and the number left
    out.

    For a scene with neither cards nor ladder, a sentence that there is no graph.
    """
    if scene["nodes"] and "ladder" not in scene:
        return _cards({**scene, **scene.get("folded", {})}, facts, language)
    if "ladder" in scene:
        return _ladder(scene["ladder"], facts, language)
    canvas = Canvas()
    text = (
        "torch 没有建立计算图：这里没有张量需要梯度。"
        if language == "zh"
        else "torch built no graph: nothing here requires a gradient."
    )
    canvas.text(16, 30, text)
    return canvas.svg(460, 50, text)


def _cards(scene: GraphScene, facts: Facts, language: str) -> str:
    canvas = Canvas()
    ran = {card["id"] for card in scene["nodes"] if card.get("ran")}
    reached = ran | {card["id"] for card in scene["nodes"] if card["kind"] == "leaf" or card.get("raised") is not None}
    for edge in scene["edges"]:
        canvas.path(edge["d"], "line")
        if edge["to"] in ran and edge["from"] in reached and not _dropped(facts, edge["from"], edge["to"]):
            canvas.path(back(edge["d"]), "back")
            canvas.text(edge["label"][0], edge["label"][1], edge["shape"], "t s m halo")
        if edge["times"] > 1:
            canvas.text(edge["label"][0] - 20, edge["label"][1], f"×{edge['times']}", "t s", "end")
    for card in scene["nodes"]:
        _card(canvas, card, facts)
        if card["kind"] == "fold":
            said = f"{card['count']} 个同样的节点" if language == "zh" else f"{card['count']} nodes, the same again"
            canvas.text(card["x"] + 10, card["y"] + 36, said, "t s dim")
    title = "计算图" if language == "zh" else f"Computation graph with {scene['count']} nodes"
    return canvas.svg(scene["width"] + 40, scene["height"], title)


def _dropped(facts: Facts, leaf: str, node: str) -> bool:
    """Whether a leaf's AccumulateGrad dropped the gradient when it last ran, since the leaf required no grad then."""
    record = at(facts.nodes.get(node, [])) or {}
    if record.get("name") != "AccumulateGrad" or record.get("output") != leaf or record.get("ran") is None:
        return False
    return facts.tensor(leaf, record["ran"]).get("requires_grad") is False


def _card(canvas: Canvas, card: Card, facts: Facts) -> None:
    x, y, w, h = card["x"], card["y"], card["w"], card["h"]
    colour = hue(card["storage"], facts.palette)
    canvas.rect(
        x, y, w, h, "box", stroke=colour if card["kind"] == "leaf" else "", rx=0 if card["kind"] == "leaf" else 7
    )
    if card.get("raised") is not None:
        canvas.rect(x - 4, y - 4, w + 8, h + 8, "red", rx=9)
        canvas.text(x + w + 8, y + 16, "✕", "t redt")
    canvas.text(x + 10, y + 18, card["title"], "t b m" if card["kind"] == "node" else "t b")
    row = y + 36
    if card["sub"]:
        if card["storage"]:
            canvas.swatch(x + 8, row - 13, card["storage"], facts.palette)
        gone = card["kind"] == "node" and facts.tensor(card.get("output")).get("grad_fn") != card["id"]
        canvas.text(x + (31 if card["storage"] else 10), row, card["sub"], "t s dim" if gone else "t s")
        if card["counter"] and not gone:
            canvas.text(
                x + w - 8,
                row,
                facts.number(card["counter"], card["storage"], at(facts.counters.get(card["counter"], []))),
                "t s m dim",
                "end",
            )
        row += 20
    for notch in card["saved"]:
        _notch(canvas, x + notch["x"], row - 13 + notch["y"], notch, facts)
    if card.get("gradient"):
        canvas.text(x + 10, y + h - 9, f"∇ {card['gradient']}", "t s m")


def _notch(canvas: Canvas, x: float, y: float, notch: Notch, facts: Facts) -> None:
    """Draw a saved tensor as a tab in its storage's colour.

    It is struck out if its version is no longer current, and marked ✕ if torch refused it, ≠ if its value was wrong.
    """
    w, colour = notch["w"], hue(notch["storage"], facts.palette)
    canvas.path(f"M{x},{y}h{w - 7}l7,7v13h-{w}z", "box", style=f"stroke:{colour};stroke-width:2")
    canvas.text(x + 6, y + 14, notch["text"], "t s m")
    if notch["stale"] is not None:
        canvas.line(
            x + 2, y + 18, x + w - 3, y + 3, "red" if notch["broken"] is not None else "line", style="stroke-width:2"
        )
    mark = "✕" if notch["broken"] is not None else "≠" if notch["wrong"] is not None else ""
    if mark:
        canvas.text(x + w - 12, y + 14, mark, "t redt")


def _ladder(ladder: Ladder, facts: Facts, language: str) -> str:
    canvas = Canvas()
    left, gap, top = 330, 18, 30
    rows = ladder["rows"][:ROWS]
    lane_storage: dict[int, str] = {}
    for i, row in enumerate(rows):
        y = top + i * 22
        head = f"×{row['times']}  " if "times" in row else ""
        canvas.text(12, y + 4, cut(f"{row['line'] or ''}", 6), "t s dim m")
        canvas.text(48, y + 4, cut(head + row["code"], 40), "t s m")
        ends = [*row["reads"], *row["makes"]]
        if ends:
            canvas.line(left + min(ends) * gap, y, left + max(ends) * gap, y, "rule")
        for storage in row["storages"]:
            lane_storage[ladder["lane_of"][storage]] = storage
        for lane in row["reads"]:
            canvas.parts.append(f'<circle class="box" cx="{left + lane * gap}" cy="{y}" r="4"/>')
        for lane in row["makes"]:
            colour = hue(lane_storage.get(lane), facts.palette)
            canvas.rect(left + lane * gap - 6, y - 6, 12, 12, "box", fill=colour)
        if row["error"]:
            canvas.text(left + (ladder["lanes"] + 1) * gap, y + 5, "✕", "t redt")
    more = len(ladder["rows"]) - len(rows)
    if more > 0:
        text = f"另有 {more} 行未画出" if language == "zh" else f"{more} more rows are not drawn"
        canvas.text(12, top + len(rows) * 22 + 6, text, "t s dim")
    title = "梯形图：每行一步，每列一个存储" if language == "zh" else "Ladder: a row per step, a lane per storage"
    return canvas.svg(left + (ladder["lanes"] + 3) * gap, top + len(rows) * 22 + 24, title)
