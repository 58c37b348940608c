"""PL540: gradients that are still being added up are clipped or divided after every batch, so
the earlier batches count less.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.reordering import meeting
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import indented
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import Moment, cells, lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, gradient_of, numbers, snippet
from pitfall_lab.rules.signals.clipping import has_shrunk, is_clip
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SCALINGS = spellings("div", "mul", in_place=True)


@dataclass(frozen=True, slots=True)
class Early:
    """One line changed the gradient of the leaf ``label`` after each of several backwards, before an optimizer used
    their sum.

    ``added`` are the moments (:class:`Moment`) at which the backwards added to the gradient, ``changed`` those at which
    the line changed it, ``used`` the moment of the update. ``clips`` is True if the line clips the gradient, False if
    it scales the gradient.
    """

    label: str
    added: tuple[Moment, ...]
    changed: tuple[Moment, ...]
    used: Moment
    clips: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that clips or scales ``.grad`` after each of several backwards (runs of one line)
    whose gradients add up there, instead of once after the last of them.

    Clipping counts if it made the gradient shorter, another change if each run of it multiplies or divides by the same
    number, which is not 1.
    """
    reported = set()
    for label, moments in lives(story).items():
        for found in _early(story, label, moments):
            if (place := story.span(found.changed[0].step)) not in reported:
                reported.add(place)
                yield _finding(story, found)


def _early(story: Story, label: str, moments: list[Moment]) -> Iterator[Early]:
    """Yield the data of a finding for each update of the leaf ``label`` before which its gradient was changed too
    early.
    """
    held: list[Moment] = []
    for moment in moments:
        if moment.kind == "used" and (found := _repeated(story, label, held, moment)) is not None:
            yield found
        if moment.kind not in ("added", "changed") or moment.fresh:
            held = []
        if moment.kind in ("added", "changed"):
            held.append(moment)


def _repeated(story: Story, label: str, held: list[Moment], used: Moment) -> Early | None:
    """Return the data of the finding if, before the update ``used``, the backwards of one line and the changes of
    another line alternate; else None.

    Clipping must have shortened the gradient; other changes must all have the same factor.
    """
    added = tuple(m for m in held if m.kind == "added")
    if len(added) < 2 or len({story.span(m.step) for m in added}) > 1:
        return None
    changes: dict[object, list[Moment]] = {}
    for moment in held:
        if moment.kind == "changed":
            changes.setdefault(story.span(moment.step), []).append(moment)
    for each in changes.values():
        between = all(any(a.step < m.step < b.step for m in each) for a, b in pairwise(added))
        clips = all(is_clip(story, m) for m in each)
        if between and len(each) >= 2 and (has_shrunk(story, each) if clips else _same_factor(story, each)):
            return Early(label, added, tuple(each), used, clips)
    return None


def _same_factor(story: Story, changes: list[Moment]) -> bool:
    """Whether all of these changes multiply, or all divide, the gradient by the same number, other than 1."""
    made = [_scaling(story, moment) for moment in changes]
    factors = {(event.name.strip("_"), _number(event)) for event in made if event is not None}
    return None not in made and len(factors) == 1 and not {number for _, number in factors} & {None, "1", "1.0"}


def _scaling(story: Story, changed: Moment) -> Event | None:
    """Return the call that scaled the gradient, in place or into a new tensor that was assigned to ``.grad``; None if
    the change is not a scaling.
    """
    event = (
        changed.event if changed.event.name != "grad" else story.event((story.tensor(changed.grad) or {}).get("born"))
    )
    return event if event is not None and event.name in SCALINGS else None


def _number(event: Event) -> str | None:
    """Return the text of the first plain argument (no tensor) that a call was given by position; None if there is
    none.
    """
    return next((operand.text for operand in event.operands if operand.label is None and not operand.name), None)


def _finding(story: Story, found: Early) -> Finding:
    first = found.changed[0]
    gradient = gradient_of(called(story, found.label, None, first.step))
    here, update = (at_line(story, story.span(m.step)) for m in (first, found.used))
    count = len(found.added)
    times = sum(
        any(a < m.step < b for m in found.changed)
        for a, b in pairwise([*(m.step for m in found.added), found.used.step])
    )
    before, after = cells(story, first.storage, first.step - 1), cells(story, first.storage, first.step)
    known = before is not None and after is not None and numbers(before) != numbers(after)
    shown = T(
        en=f" After the first batch {gradient.en} goes from {numbers(before)} to {numbers(after)}." if known else "",
        zh=f"第一个批次之后，{gradient.zh} 从 {numbers(before)} 变为 {numbers(after)}。" if known else "",
    )
    code = snippet(story, story.span(first.step))
    does = T(en="clips", zh="裁剪") if found.clips else T(en="scales", zh="缩放")
    return RULE.finding(
        story.span(first.step),
        first.step,
        T(
            en=f"{capital(here.en)} {does.en} the gradients after each of {count} batches that are added up for "
            f"{update.en}: what the first batch gave is changed {times} times, what the last one gave "
            f"{'once' if times == count else 'never'}.",
            zh=f"{here.zh}在{update.zh}要用的 {count} 个批次还在累加时，每个批次之后都{does.zh}一次梯度：第一个批次的"
            f"部分被改了 {times} 次，最后一个批次的部分{'只被改了一次' if times == count else '没有被改'}。",
        ),
        T(
            en=f"`{code}` changes the whole sum in `.grad`, with the batches that are in it already.{shown.en} The "
            "sum no longer points where the gradient of all batches together points. Do it once, when all of them "
            "are added up, just before the update.",
            zh=f"`{code}` 改变的是 `.grad` 里的整个和，包括已经加进去的批次。{shown.zh}于是这个和不再指向所有批次合在"
            "一起的梯度方向。应当在全部累加完之后、更新之前只做一次。",
        ),
        related=[
            story.related(
                "backward",
                found.added[0].step,
                T(en="each batch adds its gradients here", zh="每个批次在这里加上自己的梯度"),
            ),
            story.related("changed", first.step, T(en="the sum so far is changed here", zh="到此为止的和在这里被改变")),
            story.related(
                "step", found.used.step, T(en="this update uses what became of it", zh="这次更新使用的是改变后的结果")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("tensor", found.label, story.by(first.step)), Fact("batches", count), Fact("changes", times)],
    )


def _fixes(story: Story, found: Early) -> tuple[Fix, ...]:
    """At most one fix: it moves the change to just before the update, where it runs once.

    Empty unless the change, the backward and the update are in one block or called from it, with the change on lines of
    its own.
    """
    program = story.program
    if program.tree is None:
        return ()
    changed, added, used = (
        list(call_chain(story, story.line_event(m.step))) for m in (found.changed[0], found.added[0], found.used)
    )
    pair = meeting(program, changed, added)
    apart = meeting(program, [pair[0]], used) if pair is not None else None
    if pair is None or apart is None or not program.stands_alone(pair[0]):
        return ()
    target = apart[1]
    inside = {id(node) for statement in used for node in (statement, *program.ancestors(statement))}
    while isinstance(target, ast.If):
        target = next((child for child in (*target.body, *target.orelse) if id(child) in inside), target.body[0])
    line = program.place(target).line
    text = indented(program, pair[0], program.indent(target))
    edits = merge(program.delete(pair[0]), (Edit(line, line, text + program.lines[line - 1]),))
    shown = snippet(story, program.place(pair[0]), 40)
    title = T(en=f"Do it once, before the update: move `{shown}`", zh=f"在更新之前只做一次：移动 `{shown}`")
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


RULE = Rule(
    code="PL540",
    name="changed-before-complete",
    severity="warning",
    title=T(en="Gradients are clipped while they are still being added up", zh="梯度还在累加时就被裁剪"),
    what=T(
        en="A program adds up the gradients of several batches for one update, and clips or divides them after every "
        "batch. Each time the earlier batches are shrunk once more, so they count less than the later ones. Clip "
        "once, just before the update.",
        zh="程序把几个批次的梯度累加起来做一次更新，却在每个批次之后都裁剪或相除。每一次，之前的批次都会再缩小一遍，所"
        "以它们的份量比后面的批次小。请在更新之前只裁剪一次。",
    ),
    why=T(
        en="`backward()` adds to `.grad`, and `clip_grad_norm_` looks at `.grad` as it is at that moment: a sum that "
        "is not complete. If its norm is above the limit, all of it is scaled down, and the next batch is then added "
        "in full size. The result is not the clipped gradient of the large batch: its direction is another one, and "
        "depends on the order of the batches.",
        zh="`backward()` 把梯度加到 `.grad` 上，而 `clip_grad_norm_` 看到的是那一刻的 `.grad`：一个尚未完成的和。如果"
        "它的范数超过上限，整个和都会被缩小，下一个批次则以原来的大小加上去。结果并不是大批次梯度被裁剪后的样子：方向"
        "不同，而且取决于批次的顺序。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(12, 2), 5 * torch.randn(12, 1)
for xb, yb in zip(x.split(4), y.split(4)):
    loss = (net(xb) - yb).square().mean() / 3
    loss.backward()  # backward
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # PL540 changed
opt.step()  # step
print(net.weight)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(12, 2), 5 * torch.randn(12, 1)
for xb, yb in zip(x.split(4), y.split(4)):
    loss = (net(xb) - yb).square().mean() / 3
    loss.backward()
torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
opt.step()
print(net.weight)
""",
    find=find,
    traps=(
        Trap(
            "clip_grad_norm_(net.parameters(), 1.0)",
            "clip_grad_value_(net.parameters(), 1.0)",
            T(
                en="Clipping each number by itself changes an incomplete sum as well.",
                zh="逐个数裁剪同样改变了尚未完成的和。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
)
