"""PL808: a loss is NaN: an operation without an answer made it, such as a softmax of nothing but ``-inf``, or 0 / 0."""

from __future__ import annotations

import ast
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.rules.signals.axes import dimension
from pitfall_lab.rules.signals.unfinite import is_handled, is_skipped, of_results, source_of, why
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, whole
from pitfall_lab.rules.signals.value_origins import argument as given
from pitfall_lab.trace import Event, T, Unfinite
from pitfall_lab.trace.operation_facts import spellings

SOFTMAX = {"softmax", "log_softmax"}
QUOTIENTS = spellings("div")
LOGARITHMS = {"log", "log2", "log10", "log1p", "sqrt"}
"""Functions that give NaN for a negative number."""
MEANS = {"mean", "std", "var", "nanmean", "median"}
"""Statistics that are NaN for no numbers, or for one."""
UPWARD = 400
ON_THE_WAY = (
    SAME_NUMBERS
    | spellings("bitwise_not", "eq", "ne")
    | {"__getitem__", "__rsub__", "bool", "logical_not", "rsub", "to"}
)
"""Calls between a triangle of ones and the mask that it becomes."""


@dataclass(frozen=True, slots=True)
class NanInTheLoss:
    """``event`` is the call (``Event``) that made the first NaN: on the way to the loss from which ``backward`` starts,
    or in an earlier iteration, whose loss did not contain it but whose gradients did.

    ``why`` is the reason, as a sentence in both languages (``T``).
    """

    event: Event
    backward: Event
    why: T


def find(story: Story) -> Iterator[Finding]:
    """Yield at most one finding: for the call that made the first NaN or, where a recording looked for such numbers,
    the first infinity that led to it.

    Left out is a NaN for which a finished program skips the update and, in such a recording, what the program handles
    itself (:func:`.is_handled`).
    """
    every = of_results(story)
    seen = next((found for found in every if not is_handled(story, found)), None)
    if every:
        if seen is not None and story.span(seen.step) is not None:
            yield _seen_closely(story, seen)
        return
    for backward in story.backwards():
        start = backward.operands[0].label if backward.operands else None
        values = story.held(start, backward.step)
        if values and all(value == "nan" for value in values.values()):
            if story.trace.outcome.kind == "finished" and is_skipped(story, backward.step):
                continue
            made = _made(story, start, backward) or _made_before(story, backward)
            if made is not None:
                yield _finding(story, made)
            return


def _made_before(story: Story, backward: Event) -> NanInTheLoss | None:
    """The data of the finding if an earlier iteration made a NaN that was masked out of its loss, but not
    out of its backward; else None.

    The gradient became NaN, and the update spread it to the weights.
    """
    earlier = [each for each in story.backwards() if each.step < backward.step and each.operands]
    for event in story.events[: backward.step]:
        why = _why(story, event) if event.kind == "call" and event.results else None
        if why is None:
            continue
        node = (story.tensor(event.results[0], event.step) or {}).get("grad_fn")
        through = next((each for each in earlier if each.step > event.step), None)
        root = story.tensor(through.operands[0].label, through.step) if through is not None else None
        if node is None or root is None or node not in set(story.behind(root.get("grad_fn"))):
            continue
        hidden = T(
            en=f"{why.en} The loss of that round did not take it, but the gradient comes back through it, "
            "and 0 times NaN is NaN.",
            zh=f"{why.zh}那一轮的损失没有用到它，但梯度仍要经过它传回来，而 0 乘以 NaN 还是 NaN。",
        )
        return NanInTheLoss(event, backward, hidden)
    return None


def _made(story: Story, start: str | None, backward: Event) -> NanInTheLoss | None:
    """The first call that returned NaN although its operands had none, among those that the loss was
    computed from, with the reason.

    None if no call is known to have done so.
    """
    pending, seen = deque([start]), {start}
    found: list[NanInTheLoss] = []
    while pending and len(seen) < UPWARD:
        here = pending.popleft()
        event = story.event((story.tensor(here, backward.step) or {}).get("born"))
        if event is None or event.kind != "call" or here not in event.results or event.step >= backward.step:
            continue
        why = _why(story, event)
        if why is not None:
            found.append(NanInTheLoss(event, backward, why))
        for operand in event.operands:
            if operand.label is not None and operand.label not in seen:
                seen.add(operand.label)
                pending.append(operand.label)
    return min(found, key=lambda made: made.event.step) if found else None


def _why(story: Story, event: Event) -> T | None:
    """The reason why this call returns NaN for its operands (0 / 0, say); None if it is not
    known, or if an operand is NaN.
    """
    before = event.step - 1
    labels = [operand.label for operand in event.operands if operand.label is not None]
    if not labels or any("nan" in story.held(label, before).values() for label in labels):
        return None
    test = next((test for names, test in REASONS if event.name in names), None)
    return test(story, event) if test is not None else None


def _no_score(story: Story, event: Event) -> T | None:
    """The reason if in one row of a softmax every score is ``-inf``; else None."""
    if not _empty_row(story, event):
        return None
    return T(
        en="In one row every score is `-inf`, so the softmax divides 0 by 0: there is nothing that "
        "the shares could be of.",
        zh="有一行的分数全是 `-inf`，softmax 于是用 0 除以 0：没有任何东西可以分配份额。",
    )


def _empty_row(story: Story, event: Event) -> str:
    """The index, as text, of the first row of a softmax's scores that is all ``-inf``: ``[0, 0,
    :]``; empty if none is known.
    """
    label, axis = str(event.operands[0].label), dimension(story, event)
    shape, held = story.shape(label, event.step) or (), story.held(label, event.step - 1)
    record = story.tensor(label, event.step) or {}
    if axis is None or not shape:
        return ""
    steps, offset = list(record.get("stride") or ()), int(record.get("offset") or 0)
    for place in [place for place, value in held.items() if value == "-inf"]:
        at = ((place - offset) // steps[axis]) % shape[axis] if steps[axis] else 0
        row = [place + (i - at) * steps[axis] for i in range(shape[axis])]
        if all(held.get(cell) == "-inf" for cell in row):
            return _row(place - offset, shape, steps, axis)
    # Of a large tensor the first NaN is always in the trace: the scores have none, and the shares do.
    result = story.held(event.results[0], event.step)
    first = next((place for place in sorted(result) if result[place] == "nan"), None)
    if first is None or {"-inf", "inf"} & {*held.values()} != {"-inf"}:
        return ""
    made = story.tensor(event.results[0], event.step) or {}
    return _row(first - int(made.get("offset") or 0), shape, list(made.get("stride") or ()), axis)


def _row(place: int, shape: tuple[int, ...], steps: list[int], axis: int) -> str:
    """The index, as text, of the row along ``axis`` that contains the element ``place`` positions after the tensor's
    first one in the storage: ``[0, 2, :]``.
    """
    at = [(place // step) % size if step else 0 for size, step in zip(shape, steps, strict=True)]
    return f"[{', '.join(':' if i == axis % len(shape) else str(one) for i, one in enumerate(at))}]"


def _zero_by_zero(story: Story, event: Event) -> T | None:
    labels = [operand.label for operand in event.operands[:2]]
    if len(labels) != 2 or None in labels:
        return None
    above, below = (story.held(label, event.step - 1) for label in labels)
    zeros = set(below.values()) & {0} and (
        len(below) == 1 or {p for p, v in below.items() if v == 0} & {p for p, v in above.items() if v == 0}
    )
    return T(en="It divides 0 by 0.", zh="这里用 0 除以 0。") if zeros and 0 in above.values() else None


def _below_zero(story: Story, event: Event) -> T | None:
    held = story.held(event.operands[0].label, event.step - 1)
    limit = -1 if event.name == "log1p" else 0
    low = [value for value in held.values() if isinstance(value, int | float) and value < limit]
    if not low:
        return None
    return T(
        en=f"It is given {low[0]:.4g}, and has no real result below {limit}.",
        zh=f"它得到 {low[0]:.4g}，而小于 {limit} 时没有实数结果。",
    )


def _of_nothing(story: Story, event: Event) -> T | None:
    """The reason if the call reduces no elements (as a mean), or is a standard deviation or
    variance of one element; else None.
    """
    shape = story.shape(event.operands[0].label, event.step)
    axis = whole(given(event, "dim", 1))
    if shape is None or (axis is None and given(event, "dim", 1) is not None):
        return None
    count = math.prod(shape) if axis is None else shape[axis]
    if count == 0:
        return T(
            en="It is given no number at all: a mean of nothing is 0 / 0.", zh="它没有得到任何数：空的平均值是 0 / 0。"
        )
    if count == 1 and event.name in ("std", "var"):
        return T(
            en="It is given a single number, and divides by the count of the numbers less one: 0 / 0.",
            zh="它只得到一个数，而除数是个数减一：0 / 0。",
        )
    return None


def _no_target(story: Story, event: Event) -> T | None:
    """The reason if the call is a cross entropy with an ``ignore_index`` that all its targets, all
    known, are equal to; else None.
    """
    left_out = whole(given(event, "ignore_index"))
    label = event.operands[1].label if len(event.operands) > 1 else None
    held, shape = story.held(label, event.step - 1), story.shape(label, event.step) or ()
    if (
        left_out is None
        or not held
        or len(held) < math.prod(shape)
        or any(value != left_out for value in held.values())
    ):
        return None
    return T(
        en=f"Every target is {left_out}, the number that is left out: the mean of no loss is 0 / 0.",
        zh=f"所有目标都是 {left_out}，即被忽略的那个数：空的平均值是 0 / 0。",
    )


REASONS: tuple[tuple[set[str], Callable[[Story, Event], T | None]], ...] = (
    (SOFTMAX, _no_score), (QUOTIENTS, _zero_by_zero), (LOGARITHMS, _below_zero), (MEANS, _of_nothing),
    ({"cross_entropy", "nll_loss"}, _no_target),
)  # fmt: skip


def _finding(story: Story, made: NanInTheLoss) -> Finding:
    span = story.span(made.event.step)
    here, there = at_line(story, span), at_line(story, story.span(made.backward.step))
    what = expression(story, made.event.operands[0].label, made.event.step)
    row = _empty_row(story, made.event) if made.event.name in SOFTMAX else ""
    masked = _masked(story, made.event) if row else None
    repair = next(_with_itself(story, made), None) if masked is not None else None
    origin = _triangle(story, [o.label for o in masked.operands if o.label is not None]) if repair and masked else None
    masked = origin or masked
    leave = (
        T("", "")
        if masked is None
        else T(
            en=" A mask has to leave each row a score, such as that of the position itself.",
            zh="掩码至少要给每一行留下一个分数，例如这个位置自己的分数。",
        )
    )
    of = T(en=f", whose row {row} has only `-inf`,", zh=f"（它的一行 {row} 全是 `-inf`）") if row else T(",", "")
    message = T(
        en=f"{capital(here.en)} computes NaN (not a number) from {what.en}{of.en} and the loss on {there.en} is NaN.",
        zh=f"{here.zh}由 {what.zh}{of.zh}算出 NaN（不是数），而{there.zh}的损失是 NaN。",
    )
    if origin is not None:
        where = at_line(story, story.span(origin.step))
        empty = T(f"row {row} of {what.en} has only `-inf`", f"{what.zh} 的 {row} 这一行全是 `-inf`")
        message = T(
            en=f"The mask of {where.en} lets a position see nothing: {empty.en}, so {here.en} computes NaN (not a "
            f"number), and the loss on {there.en} is NaN.",
            zh=f"{where.zh}的掩码让某个位置什么也看不到：{empty.zh}，于是{here.zh}算出 NaN（不是数），"
            f"而{there.zh}的损失是 NaN。",
        )
    return RULE.finding(
        span,
        made.event.step,
        message,
        T(
            en=f"{made.why.en}{leave.en} Whatever is computed with NaN is NaN, so it spreads through the loss into "
            "every gradient, and after the next update into every weight.",
            zh=f"{made.why.zh}{leave.zh}凡是与 NaN 一起计算的结果都是 NaN，于是它通过损失进入每个梯度，下一次"
            "更新后进入每个权重。",
        ),
        related=[
            *(
                []
                if masked is None
                else [
                    story.related(
                        "masked",
                        masked.step,
                        T(en=f"this leaves nothing of row {row}", zh=f"这里没有给 {row} 这一行留下任何东西"),
                    )
                ]
            ),
            story.related("made", made.event.step, T(en="the first NaN is made here", zh="第一个 NaN 在这里产生")),
            story.related("backward", made.backward.step, T(en="the loss is NaN here", zh="这里的损失是 NaN")),
        ],
        fixes=_fixes(story, made),
        facts=[Fact("made", made.event.op, story.by(made.event.step))],
    )


def _seen_closely(story: Story, found: Unfinite) -> Finding:
    """The finding for what a closer recording has seen; its line is that of the first number that is not finite."""
    first = source_of(story, found) or found
    span, event = story.span(first.step), story.event(first.step)
    here, then = at_line(story, span), at_line(story, story.span(found.step))
    what = snippet(story, span)
    made = T(en="NaN (not a number)", zh="NaN（不是数）") if first.kind == "nan" else T(en="infinity", zh="无穷大")
    message = T(en=f"{capital(here.en)} computes {made.en} in `{what}`", zh=f"{here.zh}的 `{what}` 得到{made.zh}")
    if first is not found:
        message = T(en=f"{message.en}, which becomes NaN on {then.en}", zh=f"{message.zh}，它在{then.zh}变成 NaN")
    there = story.span(found.backward)
    if found.backward is not None:
        end = at_line(story, there)
        message = T(
            en=f"{message.en}, and the loss on {end.en} is {_word(found).en}.",
            zh=f"{message.zh}，而{end.zh}的损失是{_word(found).zh}。",
        )
    else:
        message = T(
            en=f"{message.en}; {found.spread} later results are NaN.",
            zh=f"{message.zh}；之后有 {found.spread} 个结果是 NaN。",
        )
    text = T(
        en=f"{why(story, first).en} Whatever is computed with NaN is NaN, so it spreads through all that "
        "follows, and raises nothing.",
        zh=f"{why(story, first).zh}凡是与 NaN 一起计算的结果都是 NaN，于是它传到之后的一切，而且不会报错。",
    )
    related = (
        []
        if first is found
        else [story.related("used", found.step, T(en="it becomes NaN here", zh="它在这里变成 NaN"))]
    )
    if found.backward is not None:
        said = T(en=f"the loss is {_word(found).en} here", zh=f"这里的损失是{_word(found).zh}")
        related.append(story.related("backward", found.backward, said))
    backward = story.event(found.backward)
    fixes = _fixes(story, NanInTheLoss(event, backward, text)) if event is not None and backward is not None else ()
    return RULE.finding(
        span,
        first.step,
        message,
        text,
        related=related,
        fixes=fixes,
        facts=[Fact("made", event.op if event else "", story.by(first.step))],
    )


def _word(found: Unfinite) -> T:
    return T(en="NaN", zh="NaN") if found.kind == "nan" else T(en="infinite", zh="无穷大")


def _fixes(story: Story, made: NanInTheLoss) -> tuple[Fix, ...]:
    """Fixes for rows of masked scores without any score: put a finite number there before the softmax, and
    set the shares to 0 after it.

    If a triangular mask leaves out the diagonal, only the fix of that mask. Empty for other calls than a softmax.
    """
    program = story.program
    node = program.at(story.span(made.event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call) or made.event.name != "softmax":
        return ()
    torch, first = torch_name(program), node.args[0] if node.args else None
    infinite = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call | ast.Attribute | ast.UnaryOp) and _is_minus_infinity(program.segment(n))
    ]
    outermost = [n for n in infinite if not any(n is not m and program.parents.get(n) is m for m in infinite)]
    masks = [n for n in outermost if _fills(story, n, made)]
    if own := list(_with_itself(story, made)):
        return unique(program.text, own)  # a finite number would only hide that a position does not see itself
    fixes: list[Fix] = []
    if len(masks) == 1:
        title = T(
            en="Mask with a large negative number: a row without scores becomes even",
            zh="用很大的负数遮住：没有分数的一行变为均匀",
        )
        fixes.append(Fix(title, program.replace((masks[0], "-1e9")), meaning="shape"))
    if first is not None and torch is not None and isinstance(node.func, ast.Attribute):
        title = T(
            en="Give such a row the share 0: `nan_to_num()` after it", zh="让这样的一行份额为 0：之后用 `nan_to_num()`"
        )
        fixes.append(
            Fix(title, program.replace((node, f"{in_parentheses(program, node)}.nan_to_num()")), meaning="shape")
        )
    return unique(program.text, fixes)


def _with_itself(story: Story, made: NanInTheLoss) -> Iterator[Fix]:
    """The fix for a triangular mask that leaves out the diagonal too: let each position attend to itself.

    Nothing if there is no such mask, or if it keeps the diagonal.
    """
    masked = _masked(story, made.event)
    event = _triangle(story, [o.label for o in masked.operands if o.label is not None]) if masked is not None else None
    node = story.program.at(story.span(event.step)) if event is not None else None
    if event is None or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    diagonal, lower = whole(given(event, "diagonal", 1)) or 0, event.name.startswith("tril")
    if diagonal >= 0 if lower else diagonal > 0:
        return
    place = next((k.value for k in node.keywords if k.arg == "diagonal"), None) or next(
        (a for a in node.args if isinstance(a, ast.UnaryOp | ast.Constant)), None
    )
    right = "0" if lower else "1"
    text = story.program.segment(node)
    new = f"{text[:-1]}{', ' if node.args or node.keywords else ''}diagonal={right})" if place is None else right
    title = T(en=f"Let each position see itself: `diagonal={right}`", zh=f"让每个位置看到自己：`diagonal={right}`")
    yield Fix(title, story.program.replace((node if place is None else place, new)), meaning="shape")


def _triangle(story: Story, labels: list[str]) -> Event | None:
    """The call that made a triangle on the way to one of these tensors; None if there is none."""
    for _ in range(12):
        events = [
            event for label in labels if (event := story.event((story.tensor(label) or {}).get("born"))) is not None
        ]
        found = next((event for event in events if event.name in spellings("tril", "triu", in_place=True)), None)
        if found is not None or not events:
            return found
        labels = [
            o.label for event in events if event.name in ON_THE_WAY for o in event.operands if o.label is not None
        ]
    return None


def _is_minus_infinity(text: str) -> bool:
    return text.replace("'", '"') in ('float("-inf")', '-float("inf")', "-torch.inf", "-math.inf", "-np.inf")


def _fills(story: Story, node: ast.AST, made: NanInTheLoss) -> bool:
    """Whether ``node`` is part of the call that masked the scores of the softmax, as the ``-inf`` among its arguments
    is. False if no such call is found.
    """
    masked = _masked(story, made.event)
    call = story.program.at(story.span(masked.step)) if masked is not None else None
    return call is not None and any(n is node for n in ast.walk(call))


def _masked(story: Story, softmax: Event) -> Event | None:
    """The ``masked_fill`` or ``where`` from which the scores of a softmax came, perhaps scaled
    or shifted; None if none did.
    """
    label: str | None = softmax.operands[0].label
    for _ in range(10):
        event = story.event((story.tensor(label) or {}).get("born"))
        if event is None or not event.operands:
            return None
        if event.name in ("masked_fill", "where"):
            return event
        if event.name not in SAME_NUMBERS | {"div", "mul", "add"}:
            return None
        label = event.operands[0].label
    return None


RULE = Rule(
    code="PL808",
    name="nan-in-the-loss",
    severity="warning",
    title=T(
        en="An operation without an answer makes NaN of all that follows", zh="一个没有答案的运算使之后的结果都变成 NaN"
    ),
    what=T(
        en='A program divides nothing by nothing somewhere, and from there on every result is NaN, "not a number". '
        "It often happens to a row that is masked out completely, to the mean of an empty selection, or to a standard "
        "deviation of a single number. Leave such a case out, or give it a value.",
        zh="程序在某处用“什么也没有”除以“什么也没有”，从此每个结果都是 NaN，即“不是数”。常见于被完全遮住的一行、空选择"
        "的平均值，或只有一个数的标准差。请排除这种情况，或为它指定一个值。",
    ),
    why=T(
        en="Floating-point numbers have a special value for results that do not exist, such as `0 / 0` and `inf - "
        "inf`. `softmax` computes `exp(score)` divided by their sum; where each score is `-inf` both are 0. NaN "
        "raises nothing, and every operation with it gives NaN again: one such row is enough for the mean over the "
        "batch, and one backward for all gradients. `torch.autograd.set_detect_anomaly(True)` raises where a gradient "
        "becomes NaN, but not where the loss did.",
        zh="浮点数有一个特殊值表示不存在的结果，例如 `0 / 0` 与 `inf - inf`。`softmax` 用 `exp(分数)` 除以它们的"
        "和；当每个分数都是 `-inf` 时两者都是 0。NaN 不会报错，与它有关的每个运算又得到 NaN：一行就足以影响整个批"
        "次的平均值，一次反向传播就影响所有梯度。`torch.autograd.set_detect_anomaly(True)` 会在梯度变成 NaN 处报"
        "错，而不是在损失变成 NaN 处。",
    ),
    bad="""import torch

torch.manual_seed(0)
scores = torch.randn(2, 3, requires_grad=True)
padding = torch.tensor([[False, False, True], [True, True, True]])
masked = scores.masked_fill(padding, float("-inf"))
shares = torch.softmax(masked, dim=1)  # PL808
loss = (shares @ torch.arange(3.0)).mean()
loss.backward()  # backward
print(loss.item(), scores.grad)
""",
    good="""import torch

torch.manual_seed(0)
scores = torch.randn(2, 3, requires_grad=True)
padding = torch.tensor([[False, False, True], [True, True, True]])
masked = scores.masked_fill(padding, -1e9)
shares = torch.softmax(masked, dim=1)
loss = (shares @ torch.arange(3.0)).mean()
loss.backward()
print(loss.item(), scores.grad)
""",
    find=find,
    traps=(
        Trap(
            "loss = (shares @ torch.arange(3.0)).mean()\n",
            "loss = (shares @ torch.arange(3.0)).nanmean()\n",
            T(
                en="`nanmean` leaves the row out of the loss, but the gradient still comes back through the "
                "softmax of that row.",
                zh="`nanmean` 在损失里略过了这一行，但梯度仍要经过这一行的 softmax 传回来。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nan_to_num.html",
    ),
)
