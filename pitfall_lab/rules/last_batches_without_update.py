"""PL691: gradients are accumulated over several batches, and those of the last ones of a pass get no update."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import Loop, loops_around
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.trace import Event, OptimizerMade, Span, T

FEWEST = 2
"""So many updates, each with the gradients of equally many batches, show how many belong to one."""


@dataclass(frozen=True, slots=True)
class LastBatches:
    """``count`` backwards at the end of a pass whose gradients get no update of their own; each of the other updates
    uses those of ``usual`` backwards.

    ``backward`` is one of the backwards and ``update`` a call of an update (``Event``). ``cleared`` is the place in the
    source where such gradients were cleared, None where nothing clears them. ``joins`` is True where they are part of
    the first update of the next pass. If ``cleared`` is None and ``joins`` is False, the program ended before another
    update.
    """

    backward: Event
    update: Event
    count: int
    usual: int
    cleared: Span | None
    joins: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a backward whose gradients an optimizer adds up over the same number of
    batches (at least two) before most of at least ``FEWEST`` updates, if at the end of the loop over the batches fewer
    were left, and these were cleared, joined the next update, or were never used.

    Only if all backwards of the parameters are made by one line; nothing for programs that did not finish.
    """
    if story.program.tree is None or story.trace.outcome.kind != "finished":
        return
    reported: set[Span | None] = set()
    for made in story.trace.optimizers:
        found = _left_over(story, made) if len(made.updates) >= FEWEST else None
        if found is not None and (place := story.span(found.backward.step)) not in reported:
            reported.add(place)
            yield _finding(story, found)


def _left_over(story: Story, made: OptimizerMade) -> LastBatches | None:
    usual = Counter(made.updates).most_common(1)[0][0]
    backward, update = _of_one_line(story, made)
    if usual < FEWEST or backward is None or update is None:
        return None
    batches = next(iter(loops_around(story, backward)), None)
    if batches is None or batches not in loops_around(story, update):
        return None
    if set(made.updates) == {usual}:
        for count, place in made.left:
            if count < usual and (place is None or place in made.cleared or not _is_inside(story, place, batches)):
                return LastBatches(backward, update, count, usual, place, joins=False)
        return None
    longer = set(made.updates) - {usual}
    count = next(iter(longer)) - usual
    # the first update of a pass, which is never the first of all, has the remainder of the pass before
    is_regular = len(longer) == 1 and made.updates[0] == usual and all(left == (count, None) for left in made.left)
    if is_regular and 0 < count < usual:
        return LastBatches(backward, update, count, usual, None, joins=True)
    return None


def _of_one_line(story: Story, made: OptimizerMade) -> tuple[Event | None, Event | None]:
    """The first backward that gave parameters of the optimizer a gradient, and the first call that used one (None if
    there is none).

    Both are None if there is no such backward, or if several lines have one.
    """
    moments = [moment for label, each in lives(story).items() if label in made.holds for moment in each]
    added = [m.event for m in moments if m.kind == "added"]
    used = next((m.event for m in moments if m.kind == "used"), None)
    if not added or len({story.span(event.step) for event in added}) != 1:
        return None, None
    return added[0], used


def _is_inside(story: Story, place: Span, loop: Loop) -> bool:
    """Whether a place in the source is inside ``loop``."""
    statement = story.program.statement_at(place)
    return statement is not None and loop in story.program.ancestors(statement)


def _finding(story: Story, found: LastBatches) -> Finding:
    step = found.backward.step
    here, update = at_line(story, story.span(step)), at_line(story, story.span(found.update.step))
    count, usual = found.count, found.usual
    if found.joins:
        end = T(en="the first update of the next pass has them besides its own", zh="它们混入了下一遍的第一次更新")
    elif found.cleared is None:
        end = T(en="the program ends with them in `.grad`", zh="程序结束时它们还留在 `.grad` 里")
    else:
        there = at_line(story, found.cleared)
        end = T(en=f"{there.en} clears them", zh=f"{there.zh}把它们清零")
    lost = (
        T(
            en=f"That update is the sum of {usual + count} batches, and a mean over {usual} no more.",
            zh=f"那次更新是 {usual + count} 个批次之和，不再是 {usual} 个批次的平均。",
        )
        if found.joins
        else T(
            en="With a shuffled loader other rows are lost in each pass; without shuffling always the same ones.",
            zh="如果数据是打乱的，每一遍丢掉的是不同的行；如果不打乱，丢掉的总是同样的行。",
        )
    )
    batches = "batch" if count == 1 else f"{count} batches"
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"The gradients that {here.en} computes for the last {batches} of a pass get no update of their own: "
            f"{update.en} uses the sum of every {usual}, and {end.en}.",
            zh=f"{here.zh}为一遍数据的最后 {count} 个批次算出的梯度没有自己的更新：{update.zh}使用每 {usual} 个批次"
            f"之和，而{end.zh}。",
        ),
        T(
            en=f"The number of batches is no multiple of {usual}, so the loop ends between two updates. {lost.en} Make "
            "one more update after the last batch.",
            zh=f"批次数不是 {usual} 的倍数，所以循环在两次更新之间结束。{lost.zh}请在最后一个批次之后再更新一次。",
        ),
        related=[
            story.related("backward", step, T(en="these gradients …", zh="这些梯度……")),
            story.related("step", found.update.step, T(en="… are not in any update", zh="……不在任何一次更新里")),
            *(
                [Related("cleared", found.cleared, None, T(en="cleared without an update", zh="没有更新就被清零"))]
                if found.cleared is not None
                else []
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("batches", count, story.by(step)), Fact("usual", usual, story.by(step))],
    )


def _fixes(story: Story, found: LastBatches) -> tuple[Fix, ...]:
    """At most one fix: the condition of the update holds for the last batch too, where the loop counts the batches of
    something with a length by ``enumerate``.
    """
    program = story.program
    around = next(iter(loops_around(story, found.backward)), None)
    test = _condition(story, found.update, around) if around is not None else None
    last = _is_last(program, around) if around is not None else None
    if test is None or last is None:
        return ()
    text = program.segment(test)
    new = f"{f'({text})' if isinstance(test, (ast.IfExp, ast.Lambda)) else text} or {last}"
    title = T(en=f"Update after the last batch too: `{last}`", zh=f"最后一个批次之后也更新：`{last}`")
    return unique(program.text, [Fix(title, program.replace((test, new)), meaning="later")])


def _condition(story: Story, used: Event, loop: Loop) -> ast.expr | None:
    """The test of the ``if`` inside ``loop`` under which the update is made, if it has a ``%``; else None."""
    for statement in call_chain(story, used):
        for around in story.program.ancestors(statement):
            if (
                isinstance(around, ast.If)
                and loop in story.program.ancestors(around)
                and any(isinstance(each, ast.Mod) for each in ast.walk(around.test))
            ):
                return around.test
    return None


def _is_last(program: Program, loop: Loop) -> str | None:
    """The source text of a condition that holds in the last round of ``for i, … in enumerate(batches)``; None for
    another loop, or if the count starts at another number than 0 or 1.
    """
    call = loop.iter if isinstance(loop, ast.For) else None
    target = loop.target if isinstance(loop, ast.For) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "enumerate"):
        return None
    if not (isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name) and call.args):
        return None
    begin = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "start"), None)
    number = begin.value if isinstance(begin, ast.Constant) else 0 if begin is None else None
    if number not in (0, 1):
        return None
    counted = target.elts[0].id if number == 1 else f"{target.elts[0].id} + 1"
    return f"{counted} == len({program.segment(call.args[0])})"


RULE = Rule(
    code="PL691",
    name="last-batches-without-update",
    severity="warning",
    title=T(
        en="The gradients of the last batches of a pass get no update",
        zh="一遍数据的最后几个批次的梯度没有用于更新",
    ),
    what=T(
        en="A program adds up the gradients of several batches and updates after every k-th batch. The number of "
        "batches is no multiple of k, so the last ones have gradients and no update, and the next pass clears them. "
        "Update after the last batch too.",
        zh="程序累加几个批次的梯度，每 k 个批次更新一次。批次数不是 k 的倍数，所以最后几个批次有梯度而没有更新，下一遍"
        "开始时又把它们清零。请在最后一个批次之后也更新一次。",
    ),
    why=T(
        en="`backward()` adds to `.grad`, and only `step()` changes weights. `if (i + 1) % k == 0` is true for every "
        "k-th batch, and not for the remainder of a pass: of 11 batches with k = 4 the last 3. `or i + 1 == "
        "len(loader)` makes an update of them. Where nothing clears the gradients between two passes, they go into the "
        "first update of the next pass instead.",
        zh="`backward()` 累加到 `.grad`，只有 `step()` 才改变权重。`if (i + 1) % k == 0` 对每第 k 个批次为真，对一遍"
        "数据剩余的批次则不成立：11 个批次、k = 4 时是最后 3 个。加上 `or i + 1 == len(loader)`，它们也会用于一次更新。"
        "如果两遍之间没有清零，它们会进入下一遍的第一次更新。",
    ),
    advice=T(
        en="after the loop over the batches, call `step()` and `zero_grad()` once more if gradients of {backward} are "
        "left over.",
        zh="在遍历批次的循环之后，如果{backward}的梯度还有剩余，就再调用一次 `step()` 和 `zero_grad()`。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 1.0, 1.0, 1.0, 9.0])
w = torch.tensor(0.0, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.5)
for epoch in range(3):
    opt.zero_grad()  # cleared
    for i, batch in enumerate(x):
        loss = (w - batch) ** 2 / 2 / 2
        loss.backward()  # PL691 backward
        if (i + 1) % 2 == 0:
            opt.step()  # step
            opt.zero_grad()
print(w.item())
""",
    good="""import torch

x = torch.tensor([1.0, 1.0, 1.0, 1.0, 9.0])
w = torch.tensor(0.0, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.5)
for epoch in range(3):
    opt.zero_grad()
    for i, batch in enumerate(x):
        loss = (w - batch) ** 2 / 2 / 2
        loss.backward()
        if (i + 1) % 2 == 0 or i + 1 == len(x):
            opt.step()
            opt.zero_grad()
print(w.item())
""",
    find=find,
    traps=(
        Trap(
            "/ 2 / 2",
            "/ 2",
            T(
                en="The updates become twice as long; what has no update still has none.",
                zh="每次更新变成两倍长；没有更新的仍然没有。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
    ),
)
