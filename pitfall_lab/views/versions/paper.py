"""Version counters on paper: a track each, with its bumps, what was saved at which version, and the stale span.
:func:`draw` returns a matplotlib figure.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pitfall_lab.views import print_style
from pitfall_lab.views.encoding import cut
from pitfall_lab.views.label_history import Facts
from pitfall_lab.views.versions import Pin, Track, VersionsScene, marks, pin_text

DRAWN, COLUMNS, PINS = 6, 11, 8
LEFT, COLUMN, LEVEL, ROW = 3.2, 1.12, 0.4, 1.5


def draw(scene: VersionsScene, facts: Facts, language: str = "en") -> Figure:
    """A figure of the first ``DRAWN`` main tracks of counters that increased, had a tensor saved, or missed a write; a
    line says how many are left out.
    """
    zh = language == "zh"
    tracks = [t for t in scene["tracks"] if t["main"] and (t["bumps"] or t["pins"] or t["silent"])][:DRAWN]
    steps, shown = set(scene["columns"]), sorted({s for t in tracks for s in marks(t)})
    columns = sorted(steps) if len(steps) <= COLUMNS else [s for s in shown if s in steps]
    left_steps = max(0, len(columns) - COLUMNS)
    columns = columns[:COLUMNS]
    place = {step: LEFT + 0.6 + i * COLUMN for i, step in enumerate(columns)}
    tall = [ROW + LEVEL * (1 + max((p["level"] for p in t["pins"][:PINS]), default=0)) for t in tracks]
    notes = _left_out(len(scene["tracks"]) + scene["left_out"] - len(tracks), left_steps, zh=zh)
    height = 1.0 + sum(tall) + 0.6 * len(notes) + (0.6 if not tracks else 0)
    figure, sheet = print_style.sheet(height)
    for step, x in place.items():
        line = facts.line(step)
        print_style.write(sheet, x, 0.45, f"L{line}" if line else str(step + 1), ha="center", color=print_style.DIM)
    y = 0.7
    for track, rise in zip(tracks, tall, strict=True):
        y += rise
        _track(sheet, track, facts, place, y - 0.85)
    if not tracks:
        print_style.write(
            sheet, 0.3, 0.9, "没有版本变化" if zh else "no counter moved and nothing was saved", size=print_style.TEXT
        )
    for number, note in enumerate(notes):
        print_style.write(sheet, 0.3, height - 0.3 - 0.6 * (len(notes) - 1 - number), note, color=print_style.DIM)
    return figure


def _left_out(tracks: int, steps: int, *, zh: bool) -> list[str]:
    notes = []
    if tracks:
        notes.append(f"另有 {tracks} 个版本计数器未画出" if zh else f"{tracks} more counters are not drawn")
    if steps:
        notes.append(f"另有 {steps} 个步骤未画出" if zh else f"{steps} later steps are not drawn")
    return notes


def _track(sheet: Axes, track: Track, facts: Facts, place: dict[int, float], axis: float) -> None:
    colour = print_style.looks(track["storage"], facts.palette)["facecolor"]
    if track["shared"]:
        print_style.cell(sheet, (0.22, axis - 0.33), (0.66, 0.66))
    print_style.swatch(sheet, 0.3, axis - 0.25, track["storage"], facts.palette)
    names = ", ".join(str(facts.tensor(t).get("name") or t) for t in track["tensors"][:2])
    print_style.write(sheet, 1.05, axis - 0.2, track["counter"], size=print_style.TEXT, weight="bold")
    print_style.write(sheet, 1.05, axis + 0.22, cut(names, 14), color=print_style.DIM)
    right = max(place.values(), default=LEFT) + 0.6
    start = _x(place, track["born"])
    sheet.plot([start, right], [axis, axis], color=print_style.INK, lw=4, solid_capstyle="butt", zorder=1)
    sheet.plot(
        [start, right],
        [axis, axis],
        color=colour,
        lw=2.4,
        solid_capstyle="butt",
        zorder=1,
        gid=f"track-{track['counter']}",
    )
    for pin in track["pins"][:PINS]:
        _pin(sheet, pin, place, axis)
    for bump in track["bumps"]:
        if bump["step"] in place:
            x = place[bump["step"]]
            sheet.plot(
                [x, x],
                [axis - 0.28, axis + 0.28],
                color=print_style.INK,
                lw=2.4,
                zorder=4,
                gid=f"bump-{track['counter']}-{bump['to']}",
            )
            print_style.write(sheet, x, axis + 0.5, f"v{bump['to']}", ha="center", weight="bold")
    for step in track["silent"]:
        if step in place:
            print_style.cell(sheet, (place[step] - 0.18, axis - 0.18), (0.36, 0.36), zorder=4)


def _pin(sheet: Axes, pin: Pin, place: dict[int, float], axis: float) -> None:
    x = _x(place, pin["step"])
    broke = pin["stale"] if pin["broken"] is not None else pin["changed"]
    if broke is not None:  # thick and hatched across: to be seen without its red
        sheet.plot(
            [x, _x(place, broke)],
            [axis, axis],
            color=print_style.RED,
            lw=6,
            solid_capstyle="butt",
            zorder=2,
            gid="stale",
        )
        sheet.plot([x, _x(place, broke)], [axis, axis], color="white", lw=2, ls=(0, (0.6, 0.6)), zorder=3)
    foot = axis - 0.5 - LEVEL * pin["level"]
    sheet.plot([x, x], [axis - 0.3, foot + 0.1], color=print_style.DIM, lw=0.6)
    sheet.plot([x], [axis - 0.24], marker="v", color="white", markeredgecolor=print_style.INK, markersize=6, zorder=5)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    print_style.write(sheet, x, foot - 0.05, pin_text(pin), ha="center", bbox=box, zorder=5 + 1 / (1 + pin["level"]))
    for step, mark in ((pin["broken"], "✕"), (pin["wrong"], "≠")):
        if step is not None:
            print_style.write(
                sheet, _x(place, step), axis - 0.4, mark, size=12, ha="center", weight="bold", color=print_style.RED
            )


def _x(place: dict[int, float], step: int) -> float:
    """The x coordinate of the step's column; of the last column before it, if the step has none."""
    earlier = [s for s in place if s <= step]
    return place[max(earlier)] if earlier else LEFT
