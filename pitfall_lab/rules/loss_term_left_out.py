"""PL520: a term of a loss is computed in every iteration with its graph, and nothing ever uses it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, reads
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, T

ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Unused:
    """``events`` are the calls (``Event``) of one line, one in each iteration, that computed a number which requires
    grad; no later call used it.

    ``statement`` is the assignment that gave it the name ``name``.
    """

    events: tuple[Event, ...]
    statement: ast.Assign
    name: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computed a term of a loss, with its graph, in several rounds, although
    nothing uses it.

    Only assignments of single numbers to a name that the program does not read, or gives to another term before it
    reads it. Only in programs that finished, with an optimizer step between at least ``ROUNDS`` rounds.
    """
    updates = [update.step for update in story.trace.optimizer_steps]
    if (
        len(updates) < ROUNDS
        or story.trace.stopped is not None
        or story.trace.outcome.kind != "finished"
        or story.program.tree is None
    ):
        return
    lines: dict[ast.Assign, list[Event]] = defaultdict(list)
    used = set[ast.Assign]()
    for label, record in story.tensors.items():
        event = story.event(record.get("born"))
        if (
            record.get("shape")
            or not record.get("requires_grad")
            or record.get("is_leaf")
            or event is None
            or label not in event.results
        ):
            continue
        statement = _assignment(story, event)
        if statement is not None:
            lines[statement].append(event)
            if story.uses(label) or (story.record("nodes", record.get("grad_fn")) or {}).get("ran") is not None:
                used.add(statement)
    for statement, events in lines.items():
        name = story.program.segment(statement.targets[0])
        between = sum(any(a.step < step < b.step for step in updates) for a, b in pairwise(events))
        if (
            statement not in used
            and between >= ROUNDS - 1
            and (not _is_read(story, name) or _overwriting(story, statement) is not None)
        ):
            yield _finding(story, Unused(tuple(events), statement, name))


def _assignment(story: Story, event: Event) -> ast.Assign | None:
    """The assignment whose value is just the expression that ``event`` computed and whose only target is a name that
    does not begin with ``_``; None if there is none.
    """
    node = story.program.at(event.span)
    statement = story.program.parents.get(node) if node is not None else None
    if not isinstance(statement, ast.Assign) or statement.value is not node or len(statement.targets) != 1:
        return None
    return (
        statement
        if isinstance(statement.targets[0], ast.Name) and not statement.targets[0].id.startswith("_")
        else None
    )


def _is_read(story: Story, name: str) -> bool:
    """Whether the program mentions the name anywhere but to assign it: prints, returns and
    dictionaries are in no trace.
    """
    return any(
        isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Store) for n in story.program.nodes
    )


def _overwriting(story: Story, statement: ast.Assign) -> ast.Assign | None:
    """The assignment in the same block that gives the name to another term before it is read.

    None if there is none, or if it computes the same term again.
    """
    program, name = story.program, story.program.segment(statement.targets[0])
    block = program.block(statement)
    for following in block[block.index(statement) + 1 :]:
        if any(
            isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Store) for n in ast.walk(following)
        ):
            return None
        if isinstance(following, ast.Assign) and [program.segment(target) for target in following.targets] == [name]:
            return following if ast.dump(following.value) != ast.dump(statement.value) else None
    return None


def _finding(story: Story, found: Unused) -> Finding:
    first = found.events[0]
    span = story.span(first.step)
    here, backward = at_line(story, span), next((b for b in story.backwards() if b.step > first.step), None)
    there = at_line(story, story.span(backward.step)) if backward is not None else here
    without = T(en="goes back without it", zh="反向传播不经过它")
    return RULE.finding(
        span,
        first.step,
        T(
            en=f"{capital(here.en)} computes `{found.name}` in {len(found.events)} rounds, and nothing uses it: the "
            f"backward on {there.en} does not go through it.",
            zh=f"{here.zh}在 {len(found.events)} 轮里计算 `{found.name}`，却没有任何地方用到它："
            f"{there.zh}的反向传播没有经过它。",
        ),
        T(
            en=f"`{found.name}` is one number with a graph to parameters that are trained, as a term of a loss "
            "is. No call was given it, it was not printed, and its graph was thrown away in each round. Add it "
            "to the loss, or leave it out.",
            zh=f"`{found.name}` 是一个带有计算图、通向被训练参数的数，如同损失的一项。没有任何调用得到它，它也没有被打"
            "印，它的图在每一轮都被丢弃。请把它加到损失里，或者不要计算它。",
        ),
        related=[story.related("backward", backward.step, without)] if backward is not None else [],
        fixes=_fixes(story, found, backward),
        facts=[Fact("rounds", len(found.events), story.by(first.step))],
    )


def _fixes(story: Story, found: Unused, backward: Event | None) -> tuple[Fix, ...]:
    """Fixes that add the term to the loss at the line that calls backward, or where its name is given to another term.

    Empty if that line is in another function, or starts from the term already.
    """
    program = story.program
    other = _overwriting(story, found.statement)
    if other is not None:
        new = f"{found.name} + {operand(program, other.value)}"
        title = T(en=f"Add both: `{found.name} = {new}`", zh=f"两者相加：`{found.name} = {new}`")
        return unique(program.text, [Fix(title, program.replace((other.value, new)), meaning="shape")])
    node = program.at(story.span(backward.step)) if backward is not None else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "backward":
        return ()
    start = node.func.value
    if program.function(node) is not program.function(found.statement) or found.name in reads(program, start):
        return ()
    title = T(
        en=f"Add it to the loss: `{program.segment(start)} + {found.name}`",
        zh=f"加到损失里：`{program.segment(start)} + {found.name}`",
    )
    new = f"({operand(program, start)} + {found.name})"
    return unique(program.text, [Fix(title, program.replace((start, new)), meaning="shape")])


RULE = Rule(
    code="PL520",
    name="loss-term-left-out",
    severity="warning",
    title=T(en="A term of the loss is computed and never used", zh="损失的一项被计算却从未使用"),
    what=T(
        en="A program computes a second part of its loss, such as a penalty, in every round, but forgets to add it. "
        "Training continues without it. Add it to the loss before `backward()`.",
        zh="程序每一轮都计算损失的第二部分（例如惩罚项），却忘了加上去。训练照样进行，只是没有它。请在 "
        "`backward()` 之前把它加到损失里。",
    ),
    why=T(
        en="`backward()` starts from one tensor and goes back along what that was computed from, its *graph*. A "
        "number that was computed from the same parameters but is no part of that tensor has a graph of its own, "
        "which is freed with the number. Parameters that only this term would train get no gradient, and `step()` "
        "passes them over without a word.",
        zh="`backward()` 从一个张量出发，沿着它的*计算图*往回走。由同样的参数算出、却不属于这个张量的数有自己的图，会"
        "随这个数一起释放。只由这一项训练的参数得不到梯度，`step()` 会默默略过它们。",
    ),
    advice=T(
        en="add what {line} computes to the loss before the backward on {backward}.",
        zh="在{backward}的反向传播之前，把{line}算出的结果加到损失里。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
for _ in range(3):
    loss = ((net(x) - y) ** 2).mean()
    penalty = 0.1 * net.weight.abs().sum()  # PL520
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
    print(loss.item(), net.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
for _ in range(3):
    loss = ((net(x) - y) ** 2).mean()
    penalty = 0.1 * net.weight.abs().sum()
    opt.zero_grad()
    (loss + penalty).backward()
    opt.step()
    print(loss.item(), net.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "    loss.backward()",
            "    penalty.detach_()\n    loss.backward()",
            T(
                en="Without its graph the term costs no memory, and still trains nothing.",
                zh="去掉计算图后这一项不占内存，但仍然什么也不训练。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",),
)
