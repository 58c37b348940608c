"""PL473: the logarithm of a scale is added to each column before the columns are summed, so it counts once for each."""

from __future__ import annotations

import ast
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.densities import scaled_numbers
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import ADDING, OTHERS, parts, summed_into
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.trace import Event, Span, T

SELECTING = ("__getitem__", "select", "narrow", "masked_select")
"""Calls that take some columns."""
ROUNDS, UPWARD, NEAR, PAIR = 3, 400, 1e-3, 2


@dataclass(frozen=True, slots=True)
class LogScaleCountedAgain:
    """``added`` is the call (``Event``) that adds the tensor ``narrow``, which has the logarithms of scales, to the
    larger tensor ``wide`` (both are labels), before a sum.

    Each logarithm counts ``times`` times as often in the loss as its scale multiplies a number in the call ``product``.
    ``root`` is the backward of that loss.
    """

    added: Event
    wide: str
    narrow: str
    product: Event
    times: int
    root: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds logarithms of scales to a larger tensor which is then summed for a
    backward, so that each counts at least twice as often as its scale multiplies a number.

    Searched at the additions of a smaller tensor to a larger one, the first ``ROUNDS`` of each line.
    """
    roots = {
        label: b
        for b in story.backwards()
        if b.error is None and b.operands and (label := b.operands[0].label) is not None
    }
    told: set[Span | None] = set()
    passed: Counter[Span | None] = Counter()
    for event in story.calls(*ADDING) if roots else ():
        place = story.span(event.step)
        if place in told or passed[place] >= ROUNDS or event.error is not None or not event.results:
            continue
        found = _counted(story, event, roots)
        passed[place] += found is not None or _is_repeating(story, event)
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _is_repeating(story: Story, event: Event) -> bool:
    sizes = [prod(story.shape(o.label, event.step) or ()) for o in event.operands if o.label is not None]
    return len(sizes) == PAIR and sizes[0] != sizes[1]


def _counted(story: Story, event: Event, roots: dict[str, Event]) -> LogScaleCountedAgain | None:
    """The data of the finding if the smaller operand consists of logarithms of scales and of constants; else None."""
    if not _is_repeating(story, event):
        return None
    given = [str(o.label) for o in event.operands if o.label is not None]
    narrow, wide = sorted(given, key=lambda label: prod(story.shape(label, event.step) or ()))
    repeated = prod(story.shape(event.results[0], event.step) or ()) / prod(story.shape(narrow, event.step) or ())
    if (story.tensor(narrow, event.step) or {}).get("requires_grad") is not True or repeated < PAIR:
        return None
    root = summed_into(story, event.results[0], roots)
    behind = _behind(story, wide, event.step) if root is not None else set[str]()
    found: list[tuple[float, Event]] = []
    for part in parts(story, narrow, event.step, end=SELECTING) if root is not None else ():
        if not (story.tensor(part.label) or {}).get("requires_grad"):
            continue
        if _is_of_the_batch(story, part.label, narrow, wide, event.step):
            return None  # PL772 speaks of it: the sum of all samples, added to each
        size = prod(story.shape(part.label, event.step) or ())
        products = [p for p, _ in scaled_numbers(story, part.label, event.step) if behind & set(p.results)]
        entries = [(prod(story.shape(p.results[0], p.step) or ()) / max(size, 1), p.step) for p in products]
        if not entries:
            return None
        most, step = max(entries)
        counts = abs(part.factor) * part.averaged / part.scaled * repeated / max(most, 1.0)
        found.append((counts, story.events[step]))
    if root is None or not found:
        return None
    times = round(found[0][0])
    if times < PAIR or any(abs(counts - times) > NEAR for counts, _ in found):
        return None
    return LogScaleCountedAgain(event, wide, narrow, found[0][1], times, root)


def _is_of_the_batch(story: Story, part: str, narrow: str, wide: str, step: int) -> bool:
    """Whether ``narrow`` has summed ``part`` over the first axis of ``wide``, along which it is repeated."""
    of, less, more = (story.shape(label, step) or () for label in (part, narrow, wide))
    is_summed = len(less) < len(more) or less[:1] == (1,)
    return is_summed and bool(more) and of[:1] == more[:1]


def _behind(story: Story, label: str, step: int) -> set[str]:
    """The tensors that a tensor was computed from, itself included; at most ``UPWARD``."""
    pending, seen = deque([(label, step)]), {label}
    while pending and len(seen) < UPWARD:
        here, at = pending.popleft()
        made = made_by(story, here, at)
        for each in [o.label for o in made.operands if o.label is not None] if made is not None else ():
            if each not in seen:
                seen.add(each)
                pending.append((each, at if made is None else made.step))
    return seen


def _finding(story: Story, found: LogScaleCountedAgain) -> Finding:
    added, product, times = found.added, found.product, found.times
    here, there = at_line(story, story.span(added.step)), at_line(story, story.span(product.step))
    what = shown(story, added, found.narrow)
    shapes = [
        "×".join(map(str, shape)) or "()"
        for shape in (story.shape(found.narrow, added.step) or (), story.shape(found.wide, added.step) or ())
    ]
    return RULE.finding(
        story.span(added.step),
        added.step,
        T(
            en=f"{capital(here.en)} adds {what.en}, the logarithm of a scale, to each of {times} columns that are "
            f"summed afterwards: it counts {times} times where the scale on {there.en} multiplies one number.",
            zh=f"{here.zh}把 {what.zh}（一个缩放系数的对数）加到之后要求和的 {times} 列中的每一列：{there.zh}的缩放只乘"
            f"在一个数上，它却被计算了 {times} 次。",
        ),
        T(
            en=f"Broadcasting gives the term of shape {shapes[0]} to all columns of the tensor of shape {shapes[1]}, "
            f"and the sum then has it {times} times. The density of scaled numbers changes by the product of the "
            "scales, each once for each number that it multiplies; with another count the result is the logarithm of "
            "no density, and training it makes the scales too large or too small. Sum the columns first, and add the "
            "term to the sum.",
            zh=f"广播把形状为 {shapes[0]} 的这一项给了形状为 {shapes[1]} 的张量的所有列，求和之后它出现 {times} 次。缩"
            "放之后，密度按各个缩放系数的乘积变化，每个系数乘在几个数上，就计几次；次数不对时，结果不是任何密度的对数，"
            "训练会使缩放过大或过小。请先对各列求和，再把这一项加到和上。",
        ),
        related=[
            story.related("used", product.step, T(en="the scale multiplies here", zh="缩放在这里相乘")),
            story.related("backward", found.root.step, T(en="the loss goes back from here", zh="损失从这里反向传播")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("times", times, story.by(added.step))],
    )


def _fixes(story: Story, found: LogScaleCountedAgain) -> tuple[Fix, ...]:
    """At most one fix: the columns are summed first. Empty where the source does not show the addition."""
    program, added = story.program, found.added
    node = program.at(story.span(added.step)) if program.tree is not None else None
    wide, narrow = written_as(story, added, found.wide), written_as(story, added, found.narrow)
    if not isinstance(node, ast.BinOp) or wide is None or narrow is None:
        return ()
    call = next((a for a in program.ancestors(node) if isinstance(a, ast.Call) and call_name(a) == "sum"), None)
    if call is None:
        return _summed_there(story, found, wide)
    if not isinstance(call.func, ast.Attribute):
        return ()
    inner = call.args[0] if program.segment(call.func.value) == "torch" and call.args else call.func.value
    if inner is not node or any(k.arg == "keepdim" for k in call.keywords):
        return ()
    shape = story.shape(found.narrow, added.step) or ()
    axes = [axis for axis, length in enumerate(shape) if length == 1]
    if len(axes) > 1 or (shape and not axes):
        return ()
    term = f"{operand(program, narrow)}.squeeze({axes[0]})" if axes else operand(program, narrow)
    given = [program.segment(each) for each in (*call.args, *(k.value for k in call.keywords))]
    words = [*("" for _ in call.args), *(f"{k.arg}=" for k in call.keywords)]
    arguments = ", ".join(word + text for word, text in zip(words, given, strict=True))
    summed = f"{operand(program, wide)}.sum({arguments})"
    if inner is not call.func.value:
        summed = program.rewritten(call, (node, program.segment(wide)))
    minus = isinstance(node.op, ast.Sub)
    first = wide is node.left or OTHERS.get(added.name) is None
    new = f"{summed} {'-' if minus else '+'} {term}" if first or not minus else f"{term} - {summed}"
    around = program.parents.get(call)
    new = new if isinstance(around, ast.Assign | ast.Return) else f"({new})"
    title = T(en="Sum the columns first, then add the term once", zh="先对各列求和，再加上这一项一次")
    return unique(program.text, [Fix(title, program.replace((call, new)), meaning="later")])


def _summed_there(story: Story, found: LogScaleCountedAgain, wide: ast.expr) -> tuple[Fix, ...]:
    """The fix for a sum that is written elsewhere, if there is one axis along which the terms are repeated: the columns
    are summed in the addition itself, along this axis, which keeps its place with length 1.
    """
    shapes = [story.shape(label, found.added.step) or () for label in (found.narrow, found.wide)]
    if len(shapes[0]) != len(shapes[1]):
        return ()
    axes = [axis for axis, (one, many) in enumerate(zip(*shapes, strict=True)) if one == 1 < many]
    if len(axes) != 1:
        return ()
    program = story.program
    new = f"{operand(program, wide)}.sum({axes[0]}, keepdim=True)"
    title = T(en="Sum the columns first, then add the term once", zh="先对各列求和，再加上这一项一次")
    return unique(program.text, [Fix(title, program.replace((wide, new)), meaning="later")])


RULE = Rule(
    code="PL473",
    name="log-scale-counted-again",
    severity="warning",
    title=T(
        en="The logarithm of a scale is added to each column before the sum", zh="求和之前，缩放系数的对数被加到每一列"
    ),
    what=T(
        en="A density is computed from scaled numbers: the logarithm of the scale belongs in the sum once for each "
        "number that was scaled. Added to a table before its columns are summed, it counts once for each column. Sum "
        "the columns first: `log_prob(z).sum(1) + log_det.squeeze(1)`.",
        zh="程序由缩放后的数计算密度：缩放系数的对数应按被缩放的数的个数计入总和。如果在对各列求和之前把它加到表上，它"
        "会按列数重复计入。请先对各列求和：`log_prob(z).sum(1) + log_det.squeeze(1)`。",
    ),
    why=T(
        en="A term of shape (n, 1), or a single number, is broadcast to (n, D) without an error, and `sum(1)` adds up "
        "D copies of it. The logarithms of the base density have one entry for each column; the log-determinant of a "
        "layer has one for each sample. Where one scale multiplies all D columns, as in a Gaussian with one variance, "
        "its logarithm does count D times.",
        zh="形状为 (n, 1) 的一项，或者单个数，会被广播成 (n, D)，不会报错，`sum(1)` 再把它的 D 个副本加起来。基础密度的"
        "对数每列一个，而一层的对数行列式每个样本只有一个。如果一个缩放系数乘在全部 D 列上，比如只有一个方差的高斯分布"
        "，它的对数就应计 D 次。",
    ),
    bad="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
x = torch.randn(64, 2) * 2
net = torch.nn.Linear(1, 2)
a, b = x.chunk(2, dim=1)
shift, log_scale = net(a).chunk(2, dim=1)
z = torch.cat([a, (b - shift) * torch.exp(-log_scale)], dim=1)  # used
log_prob = (Normal(0.0, 1.0).log_prob(z) - log_scale).sum(1)  # PL473
loss = -log_prob.mean()
loss.backward()  # backward
print(loss.item(), net.bias.grad)
""",
    good="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
x = torch.randn(64, 2) * 2
net = torch.nn.Linear(1, 2)
a, b = x.chunk(2, dim=1)
shift, log_scale = net(a).chunk(2, dim=1)
z = torch.cat([a, (b - shift) * torch.exp(-log_scale)], dim=1)
log_prob = Normal(0.0, 1.0).log_prob(z).sum(1) - log_scale.squeeze(1)
loss = -log_prob.mean()
loss.backward()
print(loss.item(), net.bias.grad)
""",
    find=find,
    traps=(
        Trap(
            "- log_scale).sum(1)",
            "- log_scale.expand(64, 2)).sum(1)",
            T(en="`expand` writes out what broadcasting does.", zh="`expand` 只是把广播写了出来。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/broadcasting.html",
        "https://docs.pytorch.org/docs/stable/distributions.html#normal",
    ),
)
