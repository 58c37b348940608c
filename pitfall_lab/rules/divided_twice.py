"""PL556: the losses of an accumulation are divided by the number of batches, and the
sum of their gradients once more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import Moment, lives
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

NEAR = 1e-6
FEWEST = 3
"""The least number of batches for which the same number in two divisions counts: with two batches it may be a
coincidence, as half of a square has a 2 too.
"""


@dataclass(frozen=True, slots=True)
class DividedTwice:
    """The losses of several backwards were divided by the number of batches, and the sum of their gradients once more.

    ``added`` are the moments (:class:`Moment`) of these backwards, ``event`` the call (``Event``) that divided the
    first loss, ``scaled`` the call that divided the sum. ``changed`` is the moment at which the gradient was divided,
    ``used`` the moment of the update that used it.
    """

    added: tuple[Moment, ...]
    event: Event
    scaled: Event
    changed: Moment
    used: Moment


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that divides the sum of the gradients of at least ``FEWEST`` backwards by their
    number, where each loss had been divided by it already.
    """
    reported = set()
    for moments in lives(story).values():
        added: list[Moment] = []
        changed: list[Moment] = []
        for moment in moments:
            found = _divided(story, added, changed, moment) if moment.kind == "used" else None
            if found is not None and (place := story.span(found.changed.step)) not in reported:
                reported.add(place)
                yield _finding(story, found)
            if moment.kind not in ("added", "changed") or moment.fresh:
                added, changed = [], []
            if moment.kind == "added":
                added.append(moment)
            elif moment.kind == "changed":
                changed.append(moment)


def _divided(story: Story, added: list[Moment], changed: list[Moment], used: Moment) -> DividedTwice | None:
    """Return the data of the finding if the gradient was divided once by the number of the backwards, and the loss of
    each of them was divided by that number too; else None.

    The backwards must be on one line.
    """
    if len(added) < FEWEST or len({story.span(m.step) for m in added}) > 1:
        return None
    losses = [_loss(story, m.event) for m in added]
    for moment in changed:
        event = (
            story.event((story.tensor(moment.grad) or {}).get("born")) if moment.event.name == "grad" else moment.event
        )
        factor = divisor(event)
        if (
            _is_repeated(story, moment, changed)
            or event is None
            or factor is None
            or abs(factor - len(added)) > NEAR * factor
        ):
            continue
        if losses[0] is not None and all(abs((divisor(loss) or 0) - factor) <= NEAR * factor for loss in losses):
            return DividedTwice(tuple(added), losses[0], event, moment, used)
    return None


def _is_repeated(story: Story, moment: Moment, changed: list[Moment]) -> bool:
    """Whether the line of ``moment`` changed the gradient more than once: after each batch, which is another
    mistake.
    """
    return sum(story.span(each.step) == story.span(moment.step) for each in changed) > 1


def _loss(story: Story, backward: Event) -> Event | None:
    """The call that computed the tensor from which a backward started; None if that is not known."""
    label = backward.operands[0].label if len(backward.operands) == 1 else None
    return story.event((story.tensor(label, backward.step) or {}).get("born")) if label is not None else None


def divisor(event: Event | None) -> float | None:
    """Return the number by which the call ``event`` divides its tensor (4 for ``mul(x, 0.25)``).

    None if ``event`` is None, is no division or product, or has no plain number other than 0.
    """
    name = event.name.strip("_") if event is not None else ""
    numbers = (
        [operand.text for operand in event.operands if operand.label is None and not operand.name]
        if event is not None
        else []
    )
    if name not in spellings("div", "mul", in_place=True) or len(numbers) != 1:
        return None
    try:
        value = float(numbers[0])
    except ValueError:
        return None
    return None if not value else value if "div" in name else 1 / value


def _finding(story: Story, found: DividedTwice) -> Finding:
    here, there, update = (
        at_line(story, story.span(step)) for step in (found.changed.step, found.event.step, found.used.step)
    )
    count, code = len(found.added), snippet(story, story.span(found.event.step))
    return RULE.finding(
        story.span(found.changed.step),
        found.changed.step,
        T(
            en=f"{capital(here.en)} divides by {count}, the number of batches, what {there.en} had divided by {count} "
            f"already: the gradient that {update.en} uses is too small by a factor of {count}.",
            zh=f"{there.zh}已经除以了批次数 {count}，{here.zh}又除以 {count}：{update.zh}使用的梯度只"
            f"有应有的 1/{count}。",
        ),
        T(
            en=f"`{code}` gives each of {count} losses a share of 1/{count}, so the gradients that add up in `.grad` "
            "are those of the mean already. Divide either the losses or the sum.",
            zh=f"`{code}` 让 {count} 个损失各占 1/{count}，所以 `.grad` 里累加的已经是平均值的梯度。损"
            "失和总和只除其中之一。",
        ),
        related=[
            story.related("forward", found.event.step, T(en="each loss is divided here", zh="每个损失在这里除过")),
            story.related(
                "backward", found.added[0].step, T(en="the gradients are added up here", zh="梯度在这里累加")
            ),
            story.related("changed", found.changed.step, T(en="the sum is divided again", zh="总和又除了一次")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("batches", count, story.by(found.changed.step))],
    )


def _fixes(story: Story, found: DividedTwice) -> tuple[Fix, ...]:
    """At most one fix: it removes the second division, with the loop around it if that does nothing else."""
    program = story.program
    statement = (
        next(iter(call_chain(story, story.line_event(found.changed.step))), None) if program.tree is not None else None
    )
    while statement is not None:
        parent = program.parents.get(statement)
        if (
            not isinstance(parent, ast.For | ast.With | ast.If)
            or len(parent.body) != 1
            or getattr(parent, "orelse", None)
        ):
            break
        if statement.lineno == parent.lineno or (isinstance(parent, ast.If) and not _about_gradients(parent.test)):
            break
        statement = parent
    if statement is None:
        return ()
    title = T(en=f"Divide once: leave line {statement.lineno} out", zh=f"只除一次：去掉第 {statement.lineno} 行")
    return unique(program.text, [Fix(title, program.delete(statement), meaning="later")])


def _about_gradients(test: ast.expr) -> bool:
    """Whether a condition is ``p.grad is not None`` or the like."""
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(test))


RULE = Rule(
    code="PL556",
    name="divided-twice",
    severity="warning",
    title=T(en="Accumulated gradients are divided twice", zh="累加的梯度被除了两次"),
    what=T(
        en="A program adds up the gradients of several batches. It divides each loss by their number, and the sum by "
        "the same number again, so every step is much too short. Divide the losses or the sum, not both.",
        zh="程序累加几个批次的梯度。它把每个损失除以批次数，又把总和再除以同一个数，所以每一步都太短。损失"
        "和总和只除其中之一。",
    ),
    why=T(
        en="`backward()` adds to `.grad`. The gradient of a mean over *k* batches is the sum of their gradients "
        "divided by *k*; whether the division is done before `backward()` or after the last one makes no "
        "difference, since gradients are linear. Done at both places it divides by *k* · *k*. With plain SGD this "
        "is a smaller learning rate; Adam hides it almost completely, until a limit for the norm or a weight "
        "decay is compared with it.",
        zh="`backward()` 把梯度加到 `.grad` 上。*k* 个批次平均值的梯度，是它们的梯度之和除以 *k*；除法在 `backward()` "
        "之前做还是在最后一次之后做没有区别，因为梯度是线性的。两处都做就是除以 *k* · *k*。对普通的 SGD 来说，这等于更"
        "小的学习率；Adam 几乎完全掩盖了它，直到有范数上限或权重衰减与之相比。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for target in (3.0, 5.0, 7.0):
    loss = (w - target).square().sum() / 3  # forward
    loss.backward()  # backward
w.grad /= 3  # PL556 changed
opt.step()
print(w)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for target in (3.0, 5.0, 7.0):
    loss = (w - target).square().sum() / 3
    loss.backward()
opt.step()
print(w)
""",
    find=find,
    traps=(
        Trap(
            "w.grad /= 3",
            "w.grad = w.grad / 3",
            T(
                en="A new tensor in `.grad` is divided a second time as well.",
                zh="放进 `.grad` 的新张量同样被除了第二次。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",),
)
