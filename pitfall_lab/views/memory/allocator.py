"""What PyTorch's caching allocator holds (reserved) against what tensors hold (allocated), point by point. :func:`draw`
returns the picture as SVG, :func:`words` the numbers as text.

The numbers come from ``torch.cuda.memory_allocated`` and ``torch.cuda.memory_reserved``; the area between the two
curves is freed memory that the allocator keeps for the next tensor. Several runs are drawn side by side on one scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pitfall_lab.views.encoding import Canvas, cut, width_of
from pitfall_lab.views.memory import bytes_text

LEFT, TOP, WIDTH, HEIGHT, GAP = 76.0, 40.0, 620.0, 180.0, 26.0
LISTED = 12
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program.

    ``name`` distinguishes it from others (empty for a single run); each of ``points`` has the position in the program
    at which it was measured (as text), the bytes allocated and the bytes reserved.
    """

    name: str
    points: tuple[tuple[str, float, float], ...]


def runs(result: dict[str, Any]) -> list[Run]:
    """The runs in the result of an experiment (``{"rows": [...]}``): one for each row with ``points``, else one of all
    rows.

    Rows without ``allocated_mib`` and ``reserved_mib`` are left out, and runs without any other row.

    >>> runs({"rows": [{"step": "x = None", "allocated_mib": 0, "reserved_mib": 2}]})
    [Run(name='', points=(('x = None', 0.0, 2097152.0),))]
    """
    rows = [row for row in result.get("rows", ()) if isinstance(row, dict)]
    several = [Run(str(row.get("kind", "")), _points(row["points"])) for row in rows if row.get("points")]
    return [run for run in several or [Run("", _points(rows))] if run.points]


def _points(rows: Any) -> tuple[tuple[str, float, float], ...]:
    both = [row for row in rows if isinstance(row, dict) and {"allocated_mib", "reserved_mib"} <= set(row)]
    where = ("where", "step", "action")
    return tuple(
        (
            next((str(row[key]) for key in where if key in row), ""),
            float(row["allocated_mib"]) * MIB,
            float(row["reserved_mib"]) * MIB,
        )
        for row in both
    )


def words(found: list[Run], language: str = "en") -> str:
    """The curves in words: the numbers at every point of every run."""
    zh, lines = language == "zh", []
    for run in found:
        lines += [run.name] if run.name else []
        for where, allocated, reserved in run.points:
            sentence = (
                f"{'已分配' if zh else 'allocated'} {bytes_text(allocated)}, {'已保留' if zh else 'reserved'} "
                f"{bytes_text(reserved)}"
            )
            lines.append(f"  {where}: {sentence}")
    return "\n".join(lines)


def draw(found: list[Run], label: str, language: str = "en") -> str:
    """The curves of every run (at least one) on one scale, as SVG; ``label`` is written below and names the source.

    A single run with at most ``LISTED`` points also has a list of them.
    """
    zh, canvas = language == "zh", Canvas()
    most = max((reserved for run in found for _, _, reserved in run.points), default=0) or 1
    across = (WIDTH - GAP * (len(found) - 1)) / len(found)
    for part in (0.0, 0.5, 1.0):
        y = TOP + HEIGHT * (1 - part)
        canvas.line(LEFT, y, LEFT + WIDTH, y, "rule")
        canvas.text(LEFT - 8, y + 4, bytes_text(part * most), "t s dim m", "end")
    for number, run in enumerate(found):
        _run(
            canvas,
            run,
            LEFT + number * (across + GAP),
            across,
            most,
            numbered=len(found) == 1 and len(run.points) <= LISTED,
        )
    y = TOP + HEIGHT + (44 if len(found) == 1 and len(found[0].points) <= LISTED else 26)
    y = _legend(canvas, y, zh=zh)
    if len(found) == 1 and len(found[0].points) <= LISTED:
        for number, (where, allocated, reserved) in enumerate(found[0].points, 1):
            y += 20
            canvas.text(LEFT + 8, y, number, "t s m", "end")
            canvas.text(LEFT + 20, y, cut(where, 52), "t s")
            canvas.text(LEFT + WIDTH - 110, y, bytes_text(allocated), "t s m", "end")
            canvas.text(LEFT + WIDTH, y, bytes_text(reserved), "t s m dim", "end")
    y += 28
    canvas.text(LEFT, y, label, "t s b")
    title = "缓存分配器：已保留与已分配" if zh else "The caching allocator: reserved against allocated"
    return canvas.svg(max(LEFT + WIDTH + 20, LEFT + width_of(label, 11) + 20), y + 14, f"{title} · {label}")


def _run(canvas: Canvas, run: Run, left: float, across: float, most: float, *, numbered: bool) -> None:
    foot, step = TOP + HEIGHT, across / len(run.points)
    levels = {"reserved": [point[2] for point in run.points], "allocated": [point[1] for point in run.points]}
    for kind, held in levels.items():
        heights = [foot - nbytes / most * HEIGHT for nbytes in held]
        stairs = "".join(f"V{y:.1f}h{step:.1f}" for y in heights)
        if kind == "reserved":
            canvas.path(
                f"M{left:.1f},{foot:.1f}{stairs}V{foot:.1f}z", "ghost", style="fill:var(--rule);fill-opacity:.35"
            )
        else:
            canvas.path(f"M{left:.1f},{foot:.1f}{stairs}V{foot:.1f}z", "box", style="fill:#0072B2;stroke:none")
    stairs = f"M{left:.1f},{foot - run.points[0][2] / most * HEIGHT:.1f}" + "".join(
        f"V{foot - point[2] / most * HEIGHT:.1f}h{step:.1f}" for point in run.points
    )
    canvas.path(stairs, "line", style="stroke-dasharray:5 3")
    peak = max(point[1] for point in run.points)
    canvas.text(left, TOP - 10, f"{run.name} · {bytes_text(peak)}" if run.name else "", "t s b")
    if numbered:
        for number in range(len(run.points)):
            canvas.text(left + (number + 0.5) * step, foot + 16, number + 1, "t s dim m", "middle")


def _legend(canvas: Canvas, y: float, *, zh: bool) -> float:
    canvas.rect(LEFT, y - 10, 16, 12, "box", fill="#0072B2")
    canvas.text(LEFT + 22, y, "已分配：张量占用" if zh else "allocated: what tensors hold", "t s")
    canvas.line(LEFT + 210, y - 4, LEFT + 230, y - 4, "line", style="stroke-dasharray:5 3")
    canvas.text(
        LEFT + 238,
        y,
        "已保留：分配器向驱动要来的" if zh else "reserved: what the allocator took from the driver",
        "t s",
    )
    return y + 6
