"""The static picture of live bytes: bands over steps, the peak marked, and what kept the memory of the peak alive.
:func:`draw` returns it as SVG.
"""

from __future__ import annotations

from pitfall_lab.views.encoding import GREY, Canvas, cut, hue, ink_on, letter, width_of
from pitfall_lab.views.label_history import Facts, at
from pitfall_lab.views.memory import COUNTED, Band, MemoryScene, bytes_text, keepers, names, spans

LEFT, TOP, WIDTH, HEIGHT = 76.0, 34.0, 560.0, 200.0
LISTED = 8
LISTED_TOGETHER = 3
TICKS = 8


def has(scene: MemoryScene, facts: Facts) -> bool:
    """Whether a storage had any bytes."""
    del facts
    return bool(scene["peak"] and scene["peak"]["bytes"])


def draw(scene: MemoryScene, facts: Facts, language: str = "en") -> str:
    """The picture as SVG: bands, the total as a line above them, the peak, and the largest storages alive at the peak.

    At most ``LISTED`` storages are listed, each with what kept it alive.
    """
    zh, canvas = language == "zh", Canvas()
    peak = scene["peak"]
    if not peak or not peak["bytes"]:
        text = "没有占用内存的存储" if zh else "no storage with any bytes"
        canvas.text(16, 30, text)
        return canvas.svg(360, 50, text)
    height = _counted(canvas, _panel(canvas, scene, facts, (peak["bytes"], LISTED), language), language)
    steps = max(scene["steps"], 1)
    return canvas.svg(
        LEFT + WIDTH + 20, height, "内存" if zh else f"Live memory over {steps} steps, peak {bytes_text(peak['bytes'])}"
    )


def draw_together(programs: dict[str, tuple[MemoryScene, Facts]], language: str = "en") -> str:
    """Several programs below one another, each with its name, as SVG; all have the same scale of bytes."""
    zh, canvas, y = language == "zh", Canvas(), 0.0
    peaks = {name: scene["peak"]["bytes"] if scene["peak"] else 0 for name, (scene, _) in programs.items()}
    for name, (scene, facts) in programs.items():
        canvas.text(16, y + 22, name, "t b")
        canvas.parts.append(f'<g transform="translate(0 {y + 22:.1f})">')
        if peaks[name]:
            y += _panel(canvas, scene, facts, (max(peaks.values()), LISTED_TOGETHER), language) + 30
        else:
            canvas.text(16, 24, "没有占用内存的存储" if zh else "no storage with any bytes", "t s dim")
            y += 60
        canvas.parts.append("</g>")
    if any(peaks.values()):
        y = _counted(canvas, y - 10, language)
    words = (
        "、".join(f"{name} 峰值 {bytes_text(b)}" for name, b in peaks.items())
        if zh
        else ", ".join(f"{name}: peak {bytes_text(b)}" for name, b in peaks.items())
    )
    return canvas.svg(LEFT + WIDTH + 20, y, words)


def _panel(canvas: Canvas, scene: MemoryScene, facts: Facts, limits: tuple[int, int], language: str) -> float:
    """Draw one program's bands; returns the height taken in px.

    ``limits`` are the bytes at the top of the frame, and how many storages are listed below.
    """
    zh, peak, (ceiling, listed) = language == "zh", scene["peak"], limits
    if peak is None:
        return 0.0
    steps = max(scene["steps"], 1)
    across, up = WIDTH / steps, HEIGHT / ceiling
    foot = TOP + HEIGHT
    for part in (0.0, 0.5, 1.0):
        y = foot - part * HEIGHT
        canvas.line(LEFT, y, LEFT + WIDTH, y, "rule")
        canvas.text(LEFT - 8, y + 4, bytes_text(part * ceiling), "t s dim m", "end")
    listing = {band["id"] for band in _alive(scene, peak["step"])[:listed]}
    for band in scene["bands"]:
        _band(canvas, band, facts, (across, up, foot), steps, lettered=band["id"] in listing)
    corners = [(x, b) for s, b, e in spans(scene["total"], steps) for x in (s, e)]
    canvas.path("M" + " ".join(f"{_x(s, across):.1f},{foot - b * up:.1f}" for s, b in corners), "line")
    x, top = _x(peak["step"], across), foot - peak["bytes"] * up
    canvas.line(x, top - 6, x, foot, "line", style="stroke-dasharray:2 3")
    where = (
        f"L{facts.line(peak['step'])}" if facts.line(peak["step"]) else f"{'步骤' if zh else 'step'} {peak['step'] + 1}"
    )
    label = f"{'峰值' if zh else 'peak'} {bytes_text(peak['bytes'])} · {where}"
    canvas.text(min(max(x, LEFT + 70), LEFT + WIDTH - 70), top - 12, label, "t s b", "middle")
    last = None
    for i in range(0, steps, max(1, -(-steps // TICKS))):
        number = facts.line(i)
        if number is None or number != last:
            canvas.text(_x(i, across), foot + 16, f"L{number}" if number else i + 1, "t s dim m")
        last = number
    return _held(canvas, scene, facts, (foot + 44, listed, peak["step"]), language)


def _counted(canvas: Canvas, y: float, language: str) -> float:
    """Write two lines on what is counted, below ``y``; returns the y at which they end."""
    for line in COUNTED:
        y += 16
        canvas.text(16, y, line.zh if language == "zh" else line.en, "t s dim")
    return y + 14


def _x(step: float, across: float) -> float:
    return LEFT + step * across


def _band(
    canvas: Canvas, band: Band, facts: Facts, scale: tuple[float, float, float], steps: int, *, lettered: bool
) -> None:
    """Draw one storage's bytes over its life; a grey band has its letter if ``lettered``: then the list below has it,
    too.
    """
    across, up, foot = scale
    tall = band["nbytes"] * up
    end = steps if band["died"] is None else band["died"]
    colour = hue(band["id"], facts.palette)
    parts = spans(band["base"], end)
    d = "".join(
        f"M{_x(s, across):.1f},{foot - base * up:.1f}h{(e - s) * across:.1f}v{-tall:.1f}h{(s - e) * across:.1f}z"
        for s, base, e in parts
    )
    canvas.path(d, "box", style=f"fill:{colour};stroke-width:.6")
    s, base, e = max(parts, key=lambda part: part[2] - part[0])
    name = names(facts, band["id"]).partition(", ")[0]
    if colour == GREY:
        name = letter(band["id"]) if lettered else ""
    elif width_of(name, 11) > (e - s) * across - 4:
        name = ""
    if name and tall >= 13 and (e - s) * across >= 9 * len(name) + 1:
        place = f'x="{_x((s + e) / 2, across):.1f}" y="{foot - base * up - tall / 2 + 4:.1f}" text-anchor="middle"'
        canvas.parts.append(f'<text class="t s b" {place} style="fill:{ink_on(colour)}">{name}</text>')


def _alive(scene: MemoryScene, step: int) -> list[Band]:
    """The bands of storages that are alive after ``step``, the largest first."""
    alive = [b for b in scene["bands"] if b["born"] <= step and (b["died"] is None or b["died"] > step)]
    return sorted(alive, key=lambda b: (-b["nbytes"], b["born"]))


def _held(canvas: Canvas, scene: MemoryScene, facts: Facts, below: tuple[float, int, int], language: str) -> float:
    """List the storages that were alive at the peak, largest first, with what kept each alive; returns the y at the
    end.

    ``below`` has the y at which the list begins, how many storages are listed, and the step of the peak.
    """
    zh, (y, listed, step) = language == "zh", below
    alive = _alive(scene, step)
    canvas.text(16, y, "峰值时存活" if zh else "alive at the peak", "t b")
    for band in alive[:listed]:
        y += 24
        canvas.swatch(16, y - 13, band["id"], facts.palette)
        canvas.text(108, y, bytes_text(band["nbytes"]), "t s m", "end")
        canvas.text(120, y, cut(names(facts, band["id"]), 34), "t s")
        held = list(dict.fromkeys(k.say("zh" if zh else "en") for k in keepers(facts, band["id"], step)))
        if held:
            text = (
                ("由其保持：" if zh else "kept by ")
                + ", ".join(held[:3])
                + (f" +{len(held) - 3}" if len(held) > 3 else "")
            )
            canvas.text(352, y, cut(text, 46), "t s dim")
    more = max(0, len(alive) - listed) + _without_band(scene, facts, step)
    if more:
        y += 22
        left = bytes_text(
            (scene["peak"]["bytes"] if scene["peak"] else 0) - sum(band["nbytes"] for band in alive[:listed])
        )
        said = f"{more} more storages, {left} together" if more > 1 else f"1 more storage, {left}"
        canvas.text(16, y, f"另有 {more} 个存储，共 {left}" if zh else said, "t s dim")
    return y + 16


def _without_band(scene: MemoryScene, facts: Facts, step: int) -> int:
    """The number of storages alive after ``step`` that have no band."""
    if not scene["others"]:
        return 0
    drawn = {band["id"] for band in scene["bands"]}
    records = (at(history, step) for label, history in facts.storages.items() if label not in drawn)
    return sum(bool(record and record.get("alive") and record.get("nbytes")) for record in records)
