"""Live bytes over the program's steps, on paper: bands, the total, the peak, and what kept the memory of the peak
alive. :func:`draw` returns a matplotlib figure.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pitfall_lab.views import print_style
from pitfall_lab.views.encoding import clean_text
from pitfall_lab.views.label_history import Facts
from pitfall_lab.views.memory import COUNTED, Band, MemoryScene, Peak, bytes_text, keepers, names, spans

LISTED, ROW, PLOT, LINE = 8, 0.62, 6.0, 0.45
TICKS = 10


def draw(scene: MemoryScene, facts: Facts, language: str = "en") -> Figure:
    """Draw the bands over the steps and, below, a table of the ``LISTED`` largest storages
    that were alive at the peak.
    """
    zh, peak = language == "zh", scene["peak"]
    if not peak or not peak["bytes"]:
        figure, sheet = print_style.sheet(1.2)
        print_style.write(
            sheet, 0.3, 0.6, "没有占用内存的存储" if zh else "no storage with any bytes", size=print_style.TEXT
        )
        return figure
    alive = [b for b in scene["bands"] if b["born"] <= peak["step"] and (b["died"] is None or b["died"] > peak["step"])]
    alive.sort(key=lambda b: (-b["nbytes"], b["born"]))
    more = max(0, len(alive) - LISTED)
    height = PLOT + 2.6 + ROW * (min(len(alive), LISTED) + bool(more or scene["others"])) + len(COUNTED) * LINE
    figure, sheet = print_style.sheet(height)
    axes = figure.add_axes(
        (
            1.9 / print_style.WIDTH,
            1 - (PLOT + 0.8) / height,
            (print_style.WIDTH - 2.2) / print_style.WIDTH,
            PLOT / height,
        )
    )
    _plot(axes, scene, peak, facts, zh=zh)
    _table(sheet, alive, facts, PLOT + 2.3, peak["step"], zh=zh)
    low = height - 0.35 - len(COUNTED) * LINE
    for place, line in enumerate(COUNTED, 1):
        print_style.write(sheet, 0.3, low + place * LINE, line.zh if zh else line.en, color=print_style.DIM)
    if more or scene["others"]:
        left = more + scene["others"]
        print_style.write(
            sheet, 0.3, low, f"另有 {left} 个存储" if zh else f"{left} more storages", color=print_style.DIM
        )
    return figure


def _plot(axes: Axes, scene: MemoryScene, peak: Peak, facts: Facts, *, zh: bool) -> None:
    steps = max(scene["steps"], 1)
    for band in scene["bands"]:
        end = steps if band["died"] is None else band["died"]
        drawn = spans(band["base"], end)
        x = [side for s, _, e in drawn for side in (s, e)]
        low = [
            float(base) for _, base, _ in drawn for _ in range(2)
        ]  # more bytes than fit a machine's integer: a file may say anything
        look = print_style.looks(band["id"], facts.palette)
        axes.fill_between(x, low, [b + band["nbytes"] for b in low], gid=f"band-{band['id']}", **look)
        s, base, e = max(drawn, key=lambda span: span[2] - span[0])
        tall = band["nbytes"] / peak["bytes"] * PLOT / 1.1
        if tall >= 0.34 and (e - s) / steps * (print_style.WIDTH - 2.2) >= 0.42:
            print_style.badge(axes, (s + e) / 2, base + band["nbytes"] / 2, band["id"], facts.palette)
    drawn = spans(scene["total"], steps)
    x, y = [side for s, _, e in drawn for side in (s, e)], [float(b) for _, b, _ in drawn for _ in range(2)]
    axes.plot(x, y, color=print_style.INK, lw=1.4, gid="total")
    axes.axvline(peak["step"], color=print_style.INK, lw=0.9, ls=(0, (2, 2)), gid="peak")
    line = facts.line(peak["step"])
    where = (f"第 {line} 行" if zh else f"line {line}") if line else f"{'步骤' if zh else 'step'} {peak['step'] + 1}"
    right = peak["step"] > 0.7 * steps
    side, shift = ("right", -4) if right else ("left", 4)
    at: dict[str, Any] = {"xytext": (shift, 0), "textcoords": "offset points", "ha": side, "va": "center"}
    text = clean_text(f"{'峰值' if zh else 'peak'} {bytes_text(peak['bytes'])}, {where}")
    place = peak["step"], peak["bytes"] * 1.055
    axes.annotate(
        text,
        place,
        fontsize=print_style.TEXT,
        weight="bold",
        family=print_style.families(),
        color=print_style.INK,
        parse_math=False,
        **at,
    )
    axes.set(xlim=(0, steps), ylim=(0, peak["bytes"] * 1.1))
    ticks = list(range(0, steps, max(1, -(-steps // TICKS))))
    lines = [facts.line(i) for i in ticks]
    known = all(lines)
    axes.set_xticks(ticks, [str(n if known else i + 1) for i, n in zip(ticks, lines, strict=True)])
    label = ("行号" if zh else "line of the program") if known else ("步骤" if zh else "step")
    axes.set_xlabel(label, fontsize=print_style.SMALL, family=print_style.families())
    counts = range(0, peak["bytes"] + 1, 2 ** max(0, ceil(log2(peak["bytes"] / 4))))
    axes.set_yticks(counts, [bytes_text(count) for count in counts])
    axes.tick_params(labelsize=print_style.SMALL)
    axes.spines[["top", "right"]].set_visible(False)


def _table(sheet: Axes, alive: list[Band], facts: Facts, y: float, step: int, *, zh: bool) -> None:
    print_style.write(sheet, 0.3, y, "峰值时存活" if zh else "alive at the peak", size=print_style.TEXT, weight="bold")
    for band in alive[:LISTED]:
        y += ROW
        print_style.swatch(sheet, 0.3, y - 0.25, band["id"], facts.palette)
        print_style.write(sheet, 2.7, y, bytes_text(band["nbytes"]), ha="right")
        print_style.write(sheet, 3.0, y, print_style.fit(names(facts, band["id"]), 4.4))
        held = list(dict.fromkeys(k.say("zh" if zh else "en") for k in keepers(facts, band["id"], step)))
        if held:
            text = (
                ("由其保持：" if zh else "kept by ")
                + ", ".join(held[:3])
                + (f" +{len(held) - 3}" if len(held) > 3 else "")
            )
            print_style.write(sheet, 7.6, y, print_style.fit(text, print_style.WIDTH - 7.9), color=print_style.DIM)
