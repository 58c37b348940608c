"""Warns of weights whose units stay equal, or zero, in training (:func:`equal`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.equal_weights import Equal


def equal(found: Equal, ran: Ran) -> dict[str, Any]:
    """The warning about weights whose units are equal, or all zero, and stay so as they get equal gradients.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    more = T(f" and {found.others} more", f" 等 {found.others + 1} 个张量") if found.others else T("", "")
    name = found.name
    last = ran.last.count if ran.last is not None else None
    fix = T(
        "Let the weights begin with small random numbers, as `nn.Linear` and `nn.Conv2d` do by themselves: "
        "`nn.init.kaiming_uniform_(…)`, or `torch.randn(…) * 0.1`. Biases may begin at zero.",
        "让权重从小的随机数开始，`nn.Linear` 和 `nn.Conv2d` 本来就是这样：`nn.init.kaiming_uniform_(…)`，或 "
        "`torch.randn(…) * 0.1`。偏置可以从零开始。",
    )
    if found.zero:
        here = T("", "") if found.cleared else T(", and so is the gradient", "，梯度也是")
        said = T(
            f"`{name}`{more.en}: every weight is still zero after steps of training{here.en}. It does not learn.",
            f"`{name}`{more.zh}：训练若干步之后，所有权重仍是零{here.zh}。它没有在学习。",
        )
        why = T(
            "The gradient of a weight is computed from what it is multiplied with. Where a layer and the next one "
            "both begin at zero, each multiplies the other's gradient with zero, and no step changes that.",
            "权重的梯度由与它相乘的数算出。如果一层和下一层都从零开始，彼此的梯度都会被乘以零，怎么更新也改变不了。",
        )
        return warning("zero-weights", "silent", Said(said, why, fix, found.path), cell(ran, last, "changed"), "PL624")
    here = T("", "") if found.cleared else T(", and their gradients are equal too", "，梯度也相等")
    said = T(
        f"`{name}`{more.en}: its {found.units} units still have equal weights after steps of training{here.en}. "
        "They learn as one unit.",
        f"`{name}`{more.zh}：训练若干步之后，它的 {found.units} 个单元权重仍然相等{here.zh}。它们如同一个单元在学习。",
    )
    why = T(
        "Units that begin equal compute equal results, get equal gradients and stay equal: the layer can do no "
        "more than one of them.",
        "从相等的值开始的单元算出相等的结果，得到相等的梯度，也就一直相等：整层的能力不超过其中一个单元。",
    )
    return warning("equal-weights", "silent", Said(said, why, fix, found.path), cell(ran, last, "changed"), "PL628")
