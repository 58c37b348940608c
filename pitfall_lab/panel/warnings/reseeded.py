"""Warns of a loop that sets a seed to the same number in each iteration, so that each iteration draws the same values
(:func:`reseeded`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.seeded_rounds import seeded
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

_LIBRARIES = {"torch": "torch", "numpy": "NumPy", "random": "Python"}
_INSTEAD = {
    "torch": "`g = torch.Generator().manual_seed(0)`, `generator=g`",
    "numpy": "`rng = np.random.default_rng(0)`",
    "random": "`rng = random.Random(0)`",
}
_HELD = {
    "torch": "`with torch.random.fork_rng():`",
    "numpy": "`np.random.get_state()`, `np.random.set_state(…)`",
    "random": "`random.getstate()`, `random.setstate(…)`",
}


def reseeded(
    ran: Ran, what: Callable[[str], str], is_seeded: Callable[[str, int | None], bool]
) -> dict[str, Any] | None:
    """The warning about the last cell if one of its loops sets a seed to the same number in each iteration; else None.
    ``ran`` are the runs of cells; the warning is the dict of :func:`.message.warning`.

    ``what`` returns whether a name's object draws when it is used (``dropout``, ``loader``; else an empty string).
    ``is_seeded``: whether a generator has that seed now, after the cell.
    """
    last, runs = ran.last, list(ran.since(0))
    found = next(seeded(last, runs, what), None) if last is not None else None
    if last is None or found is None or not is_seeded(found.library, found.seed):
        return None
    where, own = called(last.count), found.library not in _LIBRARIES
    maker = next((run for run in reversed(runs) if f"def {found.setter}(" in run.text), None) if found.setter else None
    by = T("the loop itself", "循环本身")
    if found.setter:
        made = called(maker.count if maker is not None else None)
        en, zh = (f" ({made})", f"（{made}）") if made else ("", "")
        by = T(f"`{found.setter}`{en}", f"`{found.setter}`{zh}")
    of = T(f"the seed of `{found.library}`", f"`{found.library}` 的种子")
    if not own:
        library = _LIBRARIES[found.library]
        of = T(f"the global seed of {library}", f"{library} 的全局种子")
    to = T(f" to {found.seed}", f" {found.seed}") if found.seed is not None else T(" to the same number", "同一个数")
    drawn = _drawn(found.drawn)
    hold = T("", "")
    if not own:
        hold = T(
            f"What is to draw the same each time gets a generator of its own ({_INSTEAD[found.library]}), or gives the "
            f"state back ({_HELD[found.library]}).",
            f"需要每次取到相同随机数的部分，用它自己的生成器（{_INSTEAD[found.library]}），"
            f"或在之后恢复状态（{_HELD[found.library]}）。",
        )
    said = Said(
        T(
            f"In each round of a loop in {where}, {by.en} sets {of.en}{to.en}: {drawn.en} draws the same numbers "
            "in every round.",
            f"在 {where} 的循环的每一轮里，{by.zh}都把{of.zh}设为{to.zh}：{drawn.zh} 每一轮取到的随机数都相同。",
        ),
        T(
            "A seed starts the generator from the beginning. Set in each round, it makes every round repeat the first: "
            "the same rows, the same noise, the same dropout, although more rounds were run.",
            "设置种子会让生成器从头开始。如果每一轮都设置，每一轮都重复第一轮：同样的行、同样的噪声、同样的 dropout，"
            "尽管运行了更多轮。",
        ),
        T(
            f"Set the seed once, before the loop. {hold.en}".strip(),
            f"只在循环之前设置一次种子。{hold.zh}",
        ),
        (),
    )
    cells = cell(ran, last.count, "changed", line=found.line if maker is None else None)
    cells += cell(ran, maker.count, "made") if maker is not None and maker is not last else []
    return warning("seeded-each-round", "silent", said, cells, "")


def _drawn(what: str) -> T:
    name, _, kind = what.partition(" (")
    if kind == "dropout)":
        return T(f"the dropout of `{name}`", f"`{name}` 的 dropout")
    if kind == "loader)":
        return T(f"the order of `{name}`", f"`{name}` 的顺序")
    return T(f"`{what}`", f"`{what}`")
