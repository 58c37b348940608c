"""PL917: the k best classes of each row are compared with its one label, and the hits are averaged over the k classes
too, so the share of rows with a hit is k times too small.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, prod

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, with_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import SCALING, constant
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

COMPARES = ("__eq__", "eq")
RANKINGS = {"topk", "argsort", "sort"}
"""Calls that return classes in the order of their scores."""
VIEWS = {"view", "reshape", "flatten", "ravel", "t", "T", "mT", "transpose", "permute", "contiguous", "clone",
         "detach", "cpu", "to", "long", "int"}  # fmt: skip
"""Views, and copies with the same elements, that a tensor is followed through."""
SELECTS = {"__getitem__", "narrow"}
SAME_PLACES = {"float", "to", "int", "long", "double", "half", "type", "clone", "contiguous", "cpu", "detach"}
"""Calls that convert the hits without changing their shape."""
COUNTS = {"any", "sum", "amax", "max", "cumsum", "argmax", "logical_or", "nonzero"}
"""Calls on the hits by which the program computes something else than their mean."""
FURTHER, FEWEST = 12, 2


@dataclass(frozen=True, slots=True)
class Share:
    """``event`` is the call (``Event``) that averaged the hits, or summed them before a division.

    The hits are the results of the comparison ``hits``: of ``k`` ranked classes of each row, along the dimension
    ``axis``, with one label for the row. ``alone`` is True if the mean is over this dimension only.
    """

    hits: Event
    event: Event
    axis: int
    k: int
    alone: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that averages the hits of each row also over its k best classes, of which at most
    one can be a hit.

    Nothing if the mean is known to be 0 or is multiplied by k afterwards, or if the program also counts the hits in
    another way.
    """
    told = set()
    for event in story.calls(*COMPARES):
        found = _share(story, event) if event.error is None and event.results else None
        place = story.span(found.event.step) if found is not None else None
        if found is not None and place not in told:
            finding = _finding(story, found)
            told.update([place] if finding is not None else [])
            yield from [finding] if finding is not None else []


def _share(story: Story, event: Event) -> Share | None:
    """Return the mean of a comparison of ranked classes with one label for each row; None if there is none, or if the
    program also counts the hits in another way.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    shape = story.shape(event.results[0], event.step) or ()
    if len(labels) != len(event.operands) or len(labels) != FEWEST or prod(shape) < FEWEST:
        return None
    ranked = [_is_ranked(story, each, event.step) for each in labels]
    if ranked.count(True) != 1:
        return None
    axis = _repeated(story, labels[ranked.index(False)], event.step, shape)
    if axis is None or story.shape(labels[ranked.index(True)], event.step) != shape:
        return None
    return _mean(story, event, shape, axis)


def _is_ranked(story: Story, label: str, step: int) -> bool:
    """Whether a tensor contains the indices of the best entries, in their order."""
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given:
            return False
        if made.name in RANKINGS:
            return label == made.results[-1]
        if made.name not in VIEWS | SELECTS or len(given) != 1 or given[0] == label:
            return False
        label, step = given[0], made.step
    return False


def _repeated(story: Story, label: str, step: int, shape: tuple[int, ...]) -> int | None:
    """Return the dimension of a result along which each label is repeated, at least twice; None if there is no such
    dimension, or there are several.
    """
    record = story.tensor(label, step) or {}
    if not str(record.get("dtype")).startswith(("int", "uint")):
        return None
    own, strides = tuple(record.get("shape") or ()), tuple(record.get("stride") or ())
    while own == shape and all(strides):  # numbers that were really repeated
        made = made_by(story, label, step)
        if made is None or made.name not in spellings("expand") | {"clone", "contiguous", "expand_as", "repeat"}:
            return None
        if made.operands[0].label in (None, label):
            return None
        label, step = str(made.operands[0].label), made.step
        record = story.tensor(label, step) or {}
        own, strides = tuple(record.get("shape") or ()), tuple(record.get("stride") or ())
    missing = len(shape) - len(own)
    if missing < 0 or len(strides) != len(own):
        return None
    repeated = [
        axis
        for axis, length in enumerate(shape)
        if length > 1 and (axis < missing or own[axis - missing] == 1 or strides[axis - missing] == 0)
    ]
    return repeated[0] if len(repeated) == 1 and prod(shape) // shape[repeated[0]] >= FEWEST else None


def _mean(story: Story, hits: Event, shape: tuple[int, ...], axis: int) -> Share | None:
    """Return the mean of the hits along ``axis``, or over all dimensions; None if there is none, or if the program also
    counts the hits in another way.
    """
    found: Share | None = None
    pending, seen = [(hits.results[0], True)], {hits.results[0]}
    while pending and len(seen) < FURTHER:
        label, in_place = pending.pop()
        for use in (use for use in story.uses(label) if use.step > hits.step and use.error is None and use.results):
            if use.name == "mean" or (use.name == "sum" and _is_divided(story, use, prod(shape))):
                along = _along(use, len(shape)) if in_place else _along(use, 0)
                if along is not None and (not along or axis in along):
                    alone = along == (axis,)
                    if found is None and not _is_scaled(story, use, shape[axis]):
                        found = Share(hits, use, axis, shape[axis], alone)
            elif use.name in COUNTS:
                return None
            elif use.name in SAME_PLACES | VIEWS and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append((use.results[0], in_place and use.name in SAME_PLACES))
    return found


def _along(event: Event, count: int) -> tuple[int, ...] | None:
    """Return the dimensions that a reduction takes, from 0, or ``()`` for all of them; None if they are not known, or
    ``count`` is 0 and some are given.
    """
    text = argument(event, "dim", 1)
    if text in (None, "None", "()", "[]"):
        return ()
    try:
        given = ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return None
    axes = given if isinstance(given, tuple | list) else (given,)
    whole = bool(count) and all(isinstance(each, int) for each in axes)
    return tuple(sorted(each % count for each in axes)) if whole else None


def _is_divided(story: Story, event: Event, count: int) -> bool:
    """Whether a sum over all dimensions is divided by ``count``: a mean in two steps."""
    return not _along(event, 0) and any(
        SCALING.get(use.name) == -1 and isclose(_other(story, use, event.results[0]) or 0, count)
        for use in story.uses(event.results[0])
    )


def _is_scaled(story: Story, event: Event, k: int) -> bool:
    """Whether a mean is multiplied by ``k`` afterwards."""
    return any(
        SCALING.get(use.name) == 1 and isclose(_other(story, use, event.results[0]) or 0, k)
        for use in story.uses(event.results[0])
    )


def _other(story: Story, event: Event, label: str) -> float | None:
    others = [constant(story, o.label, o.text, event.step) for o in event.operands if o.label != label]
    return others[0] if len(others) == 1 else None


def _finding(story: Story, share: Share) -> Finding | None:
    """Return the finding, with the mean and its k-fold if they are known; None if the mean is 0, as no number is wrong
    then.
    """
    event, k, result = share.event, share.k, share.event.results[0]
    value = Elements(story, result, event.step).at(()) if not story.shape(result, event.step) else None
    if value == 0:
        return None
    if value is not None and event.name == "sum":
        value /= prod(story.shape(share.hits.results[0], share.hits.step) or (1,))
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(share.hits.step))
    both = T("", "")
    if value is not None:
        came, meant = number(value), number(value * k)
        both = T(
            en=f" Here {came} comes, where {meant} of the rows have their label among the {k} best.",
            zh=f"这里得到 {came}，而标签在前 {k} 名之中的行占 {meant}。",
        )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} averages the hits over the {k} best places of each row too. At most one of them "
            f"can be the label, so the share is {k} times too small.",
            zh=f"{here.zh}把命中也在每一行的前 {k} 个位置上平均了。其中最多只有一个是标签，所以这个比例小了 {k} 倍。",
        ),
        T(
            en=f"{capital(there.en)} compares {k} classes with one label, which gives {k} answers for each row. "
            f"Averaged, they are the hits divided by rows and by {k}.{both.en} Ask first whether any of the {k} is the "
            f"label, `any(dim={share.axis})`, and average the answers of the rows.",
            zh=f"{there.zh}把 {k} 个类别与一个标签比较，每一行得到 {k} 个答案。取平均就是命中数除以行数，再除以 {k}。"
            f"{both.zh}请先问这 {k} 个中有没有标签，`any(dim={share.axis})`，再对各行的答案取平均。",
        ),
        related=[story.related("operand", share.hits.step, T(en="compared here", zh="在这里比较"))],
        fixes=_fixes(story, share),
        facts=[Fact("k", k, story.by(event.step)), Fact("share", value, story.by(event.step))],
    )


def _fixes(story: Story, share: Share) -> tuple[Fix, ...]:
    """At most one fix: ``any`` over the ranked classes before the mean, or ``sum`` for a mean over these classes only;
    empty if the program does not show the call.
    """
    program = story.program
    node, call = program.at(story.span(share.hits.step)), program.at(story.span(share.event.step))
    if share.alone and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        title = T(
            en="Add up the places of a row: `sum` instead of `mean`", zh="把一行的各位置相加：用 `sum` 代替 `mean`"
        )
        text = f"{program.segment(call.func.value)}.sum"
        return unique(program.text, [Fix(title, program.replace((call.func, text)), meaning="later")])
    if share.alone or not isinstance(node, ast.Compare | ast.Call):
        return ()
    title = T(en=f"One answer for each row: `.any(dim={share.axis})`", zh=f"每一行一个答案：`.any(dim={share.axis})`")
    edits: tuple[Edit, ...] = program.splice(
        (with_parentheses(program, node), f"{operand(program, node)}.any(dim={share.axis})")
    )
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL917",
    name="hits-divided-by-k",
    severity="warning",
    title=T(en="The hits among the k best are averaged over the k places", zh="前 k 名的命中也在 k 个位置上取了平均"),
    what=T(
        en="A program asks how often the right answer is among the 5 best guesses, and takes the mean of all "
        "comparisons. Four of five guesses are always wrong, so the result is at most 0.2. Ask first whether any guess "
        "of a row is right: `(top == label[:, None]).any(dim=1).float().mean()`.",
        zh="程序想知道正确答案有多常出现在最好的 5 个猜测中，却对所有的比较取了平均。五个猜测中总有四个是错的，所以结果"
        "最多是 0.2。请先问一行的猜测中有没有对的：`(top == label[:, None]).any(dim=1).float().mean()`。",
    ),
    why=T(
        en="`topk` returns k different classes for each row, and the label is one class: the comparison is broadcast "
        "to rows times k truth values, of which at most one in each row is true. `mean` without `dim` divides by the "
        "number of all of them, not by the number of rows. So the top-5 accuracy comes out below the top-1 accuracy, "
        "which cannot be.",
        zh="`topk` 给每一行返回 k 个不同的类别，而标签只有一个：比较经广播得到行数乘以 k 个真值，每一行最多一个为真。"
        "不带 `dim` 的 `mean` 除以的是全部真值的个数，而不是行数。于是前 5 准确率会低于前 1 准确率，而这是不可能的。",
    ),
    bad="""import torch

torch.manual_seed(0)
label = torch.arange(6) % 3
scores = torch.randn(6, 4) + 2 * torch.eye(4)[label]
best = scores.topk(2, dim=1).indices
hits = best == label[:, None]
print(hits.float().mean())  # PL917
""",
    good="""import torch

torch.manual_seed(0)
label = torch.arange(6) % 3
scores = torch.randn(6, 4) + 2 * torch.eye(4)[label]
best = scores.topk(2, dim=1).indices
hits = (best == label[:, None]).any(dim=1)
print(hits.float().mean())
""",
    find=find,
    traps=(
        Trap(
            "hits.float().mean()",
            "hits.float().mean(0)",
            T(
                en="That is the share of hits at each place; the share of rows with a hit is their sum.",
                zh="那是每个位置上的命中比例；有命中的行的比例是它们的和。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.topk.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.any.html",
    ),
)
