"""The static picture of the version tracks."""

from __future__ import annotations

from pitfall_lab.views.encoding import Canvas, cut, hue
from pitfall_lab.views.label_history import Facts
from pitfall_lab.views.versions import COLUMN, Pin, Track, VersionsScene, marks, pin_text

LEFT, ROW, LABEL = 150, 52, 14
DRAWN, WIDE, PINS = 6, 24, 8


def has(scene: VersionsScene, facts: Facts) -> bool:
    """Whether there is a track to draw: a counter that increased, had a tensor saved, or missed a write."""
    del facts
    return bool(chosen(scene))


def draw(scene: VersionsScene, facts: Facts, language: str = "en") -> str:
    """Draw the version tracks of :func:`chosen`, and say how many are left out."""
    tracks = chosen(scene)
    shown = sorted({s for t in tracks for s in marks(t)})
    columns = (
        scene["columns"] if len(scene["columns"]) <= WIDE else [s for s in shown if s in set(scene["columns"])][:WIDE]
    )
    canvas = Canvas()
    place = {step: LEFT + 20 + i * COLUMN for i, step in enumerate(columns)}
    for step, x in place.items():
        line = facts.line(step)
        canvas.text(x, 20, f"L{line}" if line else str(step + 1), "t s dim m", "middle")
    y = 40.0
    for track in tracks:
        y += LABEL * (1 + max((p["level"] for p in track["pins"][:PINS]), default=0))
        _track(canvas, track, facts, place, y)
        y += ROW
    left_out = len(scene["tracks"]) - len(tracks)
    if left_out > 0:
        are = "counter is" if left_out == 1 else "counters are"
        text = f"另有 {left_out} 个版本计数器未画出" if language == "zh" else f"{left_out} more {are} not drawn"
        canvas.text(12, y + 12, text, "t s dim")
        y += 22
    title = "版本计数器" if language == "zh" else "Version counters over the program's steps"
    return canvas.svg(max(360, LEFT + 50 + len(columns) * COLUMN), y + 6, title)


def chosen(scene: VersionsScene) -> list[Track]:
    """The first ``DRAWN`` main version tracks with a bump, a saved tensor or an uncounted write."""
    return [t for t in scene["tracks"] if t["main"] and (t["bumps"] or t["pins"] or t["silent"])][:DRAWN]


def _track(canvas: Canvas, track: Track, facts: Facts, place: dict[int, float], y: float) -> None:
    right = LEFT + 20 + len(place) * COLUMN
    colour = hue(track["storage"], facts.palette)
    canvas.swatch(12, y + 4, track["storage"], facts.palette)
    if track["shared"]:
        canvas.rect(9, y + 1, 24, 24, "box", fill="none", stroke=colour, rx=3)
    if facts.labelled:
        names = ", ".join(str(facts.tensor(t).get("name") or t) for t in track["tensors"][:2])
        canvas.text(40, y + 12, track["counter"], "t b m")
        canvas.text(40, y + 27, cut(names, 16), "t s dim")
    else:
        canvas.text(40, y + 18, cut(", ".join(map(facts.name, track["tensors"][:2])), 14), "t b m")
    axis = y + 22
    start = _x(place, track["born"])
    canvas.line(start, axis, right, axis, "line", style=f"stroke:{colour};stroke-width:3")
    for pin in sorted(
        track["pins"][:PINS], key=lambda p: -p["level"]
    ):  # lower labels last: each covers the stems behind it
        _pin(canvas, pin, facts, place, axis)
    for bump in track["bumps"]:
        if bump["step"] in place:
            x = place[bump["step"]]
            canvas.line(x, axis - 9, x, axis + 9, "line", style="stroke-width:3")
            canvas.text(x, axis + 23, f"v{bump['to']}", "t s b m", "middle")
    for step in track["silent"]:
        if step in place:
            canvas.rect(place[step] - 7, axis - 7, 14, 14, "line")


def _pin(canvas: Canvas, pin: Pin, facts: Facts, place: dict[int, float], axis: float) -> None:
    x = _x(place, pin["step"])
    broke = pin["stale"] if pin["broken"] is not None else pin["changed"]
    if broke is not None:
        canvas.line(x, axis, _x(place, broke), axis, "red", style="stroke-width:8")
    foot = axis - 20 - LABEL * pin["level"]
    canvas.line(x, axis - 12, x, foot, "rule")
    canvas.path(f"M{x - 6:.1f},{axis - 19:.1f}h12l-6,13z", "box")
    said = pin_text(pin) if facts.labelled else pin_text(pin).partition(".")[2]  # which node, its time tells
    canvas.text(x, foot - 3, said, "t s m halo", "middle")
    for step, mark in ((pin["broken"], "✕"), (pin["wrong"], "≠")):
        if step is not None:
            canvas.text(_x(place, step), axis - 6, mark, "t redt", "middle")


def _x(place: dict[int, float], step: int) -> float:
    """The x coordinate of the step's column; of the last column before it, if the step has none."""
    if step in place:
        return place[step]
    earlier = [s for s in place if s < step]
    return place[max(earlier)] if earlier else float(LEFT)
