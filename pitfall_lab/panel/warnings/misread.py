"""Warns that a loss was given values of another kind or shape than it expects (:func:`misread`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.misread_numbers import Misread

_MEANT = re.compile(r"\.m?T\b|\.t\(\)|\[None|dist\(|outer\(|meshgrid\(")
"""Words in a cell's source which show that every pair is compared on purpose."""
_TWICE = T(
    "The loss does this itself. Done twice, the scores that it works on are between 0 and 1: it can no longer become "
    "small, and gradients are weak.",
    "这个损失自己会做这一步。做了两次，它所处理的分数就只在 0 与 1 之间：损失不再能变得很小，梯度也很弱。",
)
_KINDS = {
    "softmax-twice": (
        T(
            "takes scores, but was given probabilities: `softmax` comes before a loss that begins with `log_softmax`",
            "需要分数，得到的却是概率：以 `log_softmax` 开始的损失之前已经做过 `softmax`",
        ),
        _TWICE,
        T(
            "Leave out the `softmax` before the loss; keep it for what is printed.",
            "去掉损失之前的 `softmax`；只在显示时使用它。",
        ),
    ),
    "sigmoid-twice": (
        T(
            "takes scores, but was given probabilities: `sigmoid` comes before `binary_cross_entropy_with_logits`, "
            "which does it itself",
            "需要分数，得到的却是概率：`binary_cross_entropy_with_logits` 自己会做 `sigmoid`，而之前已经做过一次",
        ),
        _TWICE,
        T(
            "Leave out the `sigmoid` before the loss; keep it for what is printed.",
            "去掉损失之前的 `sigmoid`；只在显示时使用它。",
        ),
    ),
    "no-logarithm": (
        T(
            "takes logarithms of probabilities, but was given other numbers: no `log_softmax` comes before `nll_loss`",
            "需要概率的对数，得到的却是别的数：`nll_loss` 之前没有 `log_softmax`",
        ),
        T(
            "`nll_loss` only picks one number of each row and turns its sign. Without a logarithm, what it "
            "minimises is no likelihood.",
            "`nll_loss` 只从每一行取一个数并变号。没有对数，它最小化的就不是似然。",
        ),
        T(
            "Use `cross_entropy`, which takes scores, or give it the result of `log_softmax`.",
            "改用接受分数的 `cross_entropy`，或把 `log_softmax` 的结果交给它。",
        ),
    ),
}


def misread(found: Misread, ran: Ran) -> dict[str, Any] | None:
    """The warning about a loss that was given values of another kind or shape than it expects.

    None if it compares every prediction with every target, and the source of some cell shows that this is intended.
    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    runs = list(ran.since(0))
    if found.why == "every-pair":
        if any(_MEANT.search(run.text) for run in runs):
            return None
        said = _every_pair(found)
    else:
        why, explanation, fix = _KINDS[found.why]
        said = Said(T(f"`{found.name}` {why.en}.", f"`{found.name}` {why.zh}。"), explanation, fix, found.path)
    made = next((run for run in reversed(runs) if found.path[0] in run.bound), None)
    cells = cell(ran, made.count, "made", name=found.path[0]) if made is not None else []
    return warning(found.why, "silent", said, cells, "PL401" if found.why == "every-pair" else "PL901")


def _every_pair(found: Misread) -> Said:
    count = found.made[0]
    given, made = _shape(found.given), _shape(found.made)
    return Said(
        T(
            f"`{found.name}` was computed from {count} × {count} numbers, every prediction with every target, not "
            f"from {count} pairs: shape {given} was broadcast to {made}.",
            f"`{found.name}` 由 {count} × {count} 个数算出，即每个预测与每个目标，而不是 {count} 对：形状 "
            f"{given} 被广播成 {made}。",
        ),
        T(
            f"A column, shape ({count}, 1), and a list, shape ({count},), are stretched to a table when they are "
            "combined. The loss is still one number and falls, but what it teaches is the mean of all targets.",
            f"形状 ({count}, 1) 的一列与形状 ({count},) 的一串数放在一起时，会被拉伸成一张表。损失仍是一个数，也仍在下"
            "降，但学到的只是所有目标的平均值。",
        ),
        T(
            "Give both the same shape: `.squeeze(1)` for the predictions, or `.unsqueeze(1)` for the targets.",
            "让两者形状相同：对预测用 `.squeeze(1)`，或对目标用 `.unsqueeze(1)`。",
        ),
        found.path,
    )


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
