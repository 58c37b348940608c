"""PL734: a tensor is compared with what was kept of it, and both have one storage that was written in between."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

ORDERS = spellings("ge", "gt", "le", "lt")
BETTER = ("minimum", "maximum", "fmin", "fmax")
"""Functions that keep the better of two numbers."""
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Newest:
    """One line compared a tensor with what had been kept of it, which has the same storage.

    ``rounds`` are the comparisons (``Event``), one in each iteration; ``written`` is the step of the first write to the
    storage between the first two of them.
    """

    rounds: tuple[Event, ...]
    written: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares a tensor with itself or with another of the same storage, offset,
    shape and strides, in at least ``ROUNDS`` iterations, with a write to the storage between the first two.
    """
    places: dict[Span | None, list[Event]] = defaultdict(list)
    for event in story.calls(*ORDERS, *BETTER):
        if event.error is None and _is_of_one(story, event):
            places[event.span].append(event)
    for rounds in places.values():
        if len(rounds) < ROUNDS:
            continue
        storage = str((story.tensor(rounds[0].operands[0].label, rounds[0].step) or {}).get("storage"))
        written = story.writes(storage, rounds[0].step, rounds[1].step)
        if written:
            yield _finding(story, Newest(tuple(rounds), written[0]))


def _is_of_one(story: Story, event: Event) -> bool:
    """Whether the call has two tensor operands that are one tensor, or have the same storage, offset, shape and
    strides.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    one, other = (story.tensor(label, event.step) or {} for label in labels) if len(labels) == ROUNDS else ({}, {})
    return one.get("storage") is not None and (labels[0] == labels[1] or same_piece(one, other))


def _finding(story: Story, found: Newest) -> Finding:
    event, span = found.rounds[0], story.span(found.rounds[0].step)
    label = event.operands[0].label
    node = story.program.at(span)
    here, there = at_line(story, span), at_line(story, story.span(found.written))
    name, count = expression(story, label, event.step), len(found.rounds)
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} compares {name.en} with itself, in {count} rounds: what was kept is the same "
            f"tensor as the newest, and {there.en} writes it.",
            zh=f"{here.zh}在 {count} 轮里把 {name.zh} 与它自己比较：留下的和最新的是同一个张量，而{there.zh}写入了它。",
        ),
        T(
            en="An assignment gives a tensor a second name and copies nothing. After the next write both names "
            "show the new numbers, so the comparison always has the same answer. Keep a copy, `clone()`, or a "
            "plain number, `item()`.",
            zh="赋值只是给张量第二个名字，并不复制。下一次写入之后，两个名字看到的都是新的数，所以比较的答案永远一样。"
            "请保留副本 `clone()`，或者普通的数 `item()`。",
        ),
        related=[story.related("changed", found.written, T(en="both names change here", zh="两个名字在这里一起改变"))],
        fixes=_fixes(story.program, node),
        facts=[Fact("rounds", count, story.by(event.step))],
    )


def _fixes(program: Program, compared: ast.AST | None) -> tuple[Fix, ...]:
    """At most one fix for each statement that assigns one of the two compared expressions to the other: it adds
    ``.clone()``; empty if there is no such statement.
    """
    sides = [compared.left, *compared.comparators] if isinstance(compared, ast.Compare) else []
    sides = compared.args if isinstance(compared, ast.Call) else sides
    texts, fixes = [program.segment(each) for each in sides], list[Fix]()
    for node in program.nodes:
        if (
            isinstance(node, ast.Assign)
            and len(texts) > 1
            and len(node.targets) == 1
            and program.segment(node.targets[0]) in texts
        ):
            rest = [text for text in texts if text != program.segment(node.targets[0])]
            if rest and program.segment(node.value) == rest[0]:
                text = f"{operand(program, node.value)}.clone()"
                title = T(en=f"Keep a copy: `{text}`", zh=f"保留一份副本：`{text}`")
                fixes.append(Fix(title, program.replace((node.value, text)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL734",
    name="best-is-the-newest",
    severity="warning",
    title=T(en="The best so far is the same tensor as the newest", zh="“目前最好的”与最新的是同一个张量"),
    what=T(
        en="A program keeps the best loss so far by giving it another name, and continues to add into the same "
        "tensor. The best one changes with it, so no later loss is ever better. Keep a copy.",
        zh="程序只是给目前最好的损失另起一个名字，然后继续往同一个张量里累加。最好的那个也跟着变，于是再也没有比它更好"
        "的。请保留一份副本。",
    ),
    why=T(
        en="`best = total` binds a second name to one tensor. `total.zero_()` and `total += loss` write into its "
        "memory, which is that of `best` too. `best = total.clone()` has memory of its own; `total.item()` is a "
        "Python number, which nothing can write into; and `total = torch.zeros(1)` in every round makes a new tensor "
        "instead of writing the old one.",
        zh="`best = total` 只是让第二个名字指向同一个张量。`total.zero_()` 与 `total += loss` 写入它的内存，而那也是 "
        "`best` 的内存。`best = total.clone()` 有自己的内存；`total.item()` 是 Python 的数，谁也改不了；每一轮用 "
        "`total = torch.zeros(1)` 则会新建张量，而不是写旧的。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, y = torch.randn(8, 3), torch.randn(8, 1)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
best, total = torch.tensor([100.0]), torch.zeros(1)
for epoch in range(4):
    total.zero_()  # changed
    for inputs, targets in zip(x.split(4), y.split(4)):
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
    if total < best:  # PL734
        best = total
        print("better in epoch", epoch)
""",
    good="""import torch

torch.manual_seed(0)
x, y = torch.randn(8, 3), torch.randn(8, 1)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
best, total = torch.tensor([100.0]), torch.zeros(1)
for epoch in range(4):
    total.zero_()
    for inputs, targets in zip(x.split(4), y.split(4)):
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
    if total < best:
        best = total.clone()
        print("better in epoch", epoch)
""",
    find=find,
    traps=(
        Trap(
            "best = total\n",
            "best = total.detach()\n",
            T(en="A detached tensor is on the same memory.", zh="detach 得到的张量用的是同一块内存。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.clone.html",),
)
