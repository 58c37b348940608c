"""PL516: the state of a recurrence was detached in every time step, so only the last step is trained."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import VIEW_METHODS
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.trace import Event, T

CUTS = ("detach", "data")
STEPS = 3
UPWARD = 60


@dataclass(frozen=True, slots=True)
class Recurrence:
    """``cuts`` are the calls (``Event``) of one line that detached the state of a recurrence, which was computed from
    the state before, in every time step before the backward ``backward``.
    """

    cuts: tuple[Event, ...]
    backward: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that detaches the state of a recurrence in every time step before a backward, so
    that none goes through the earlier time steps.

    Only with at least ``STEPS - 1`` such calls.
    """
    places: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls(*CUTS):
        if event.error is None and event.results and _node(story, event) is not None:
            places[event.span].append(event)
    backwards = [backward for backward in story.backwards() if backward.error is None]
    for cuts in places.values():
        last = -1
        for backward in backwards if len(cuts) >= STEPS - 1 else ():
            chain = [cut for cut in cuts if last < cut.step < backward.step]
            last = backward.step
            if _is_recurrence(story, chain):
                yield _finding(story, Recurrence(tuple(chain), backward))
                break


def _node(story: Story, cut: Event) -> str | None:
    return (story.tensor(cut.operands[0].label, cut.step) or {}).get("grad_fn")


def _is_recurrence(story: Story, cuts: list[Event]) -> bool:
    """Whether each state was computed from the one before and from new data, and no backward went through the graph of
    the states before they were detached.
    """
    if len(cuts) < STEPS - 1 or any(
        (story.record("nodes", _node(story, cut)) or {}).get("ran") is not None for cut in cuts
    ):
        return False
    data = [_data(story, after, before) for before, after in pairwise(cuts)]
    return all(data) and (len(data) == 1 or all(one != other for one, other in pairwise(data)))


def _data(story: Story, cut: Event, before: Event) -> frozenset[str]:
    """The data (tensors that require no grad and are views or were not computed since) that went into a state since the
    previous detached one; empty if the state was not computed from that one.
    """
    pending, seen, found = [cut.operands[0].label], set[str | None](), set[str]()
    reached, since = False, (story.tensor(before.operands[0].label) or {}).get("born") or before.step
    while pending and len(seen) < UPWARD:
        here = pending.pop()
        if here in seen or here is None:
            continue
        seen.add(here)
        if here in before.results:
            reached = True
            continue
        record = story.tensor(here, cut.step) or {}
        event = story.event(record.get("born"))
        made = event is not None and here in event.results and event.step > since and record.get("base") is None
        if event is not None and made and event.operands and record.get("kind") != "parameter":
            pending += [operand.label for operand in event.operands]
        elif not record.get("requires_grad"):
            found.add(here)
    return frozenset(found) if reached else frozenset()


def _finding(story: Story, found: Recurrence) -> Finding:
    first, last = found.cuts[0], found.cuts[-1]
    span, here, there = (
        story.span(first.step),
        at_line(story, story.span(first.step)),
        at_line(story, story.span(found.backward.step)),
    )
    what = expression(story, last.operands[0].label, last.step)
    count = len(found.cuts)
    return RULE.finding(
        span,
        first.step,
        T(
            en=f"{capital(here.en)} cuts the state from the step before, {count} times before the backward on "
            f"{there.en}: that goes through the last step only.",
            zh=f"{here.zh}把状态与前一步切断，在{there.zh}的反向传播之前共 {count} 次：反向传播只经过最后一步。",
        ),
        T(
            en=f"`detach()` returns the numbers of {what.en} without their history. Done once between two pieces of a "
            "long sequence it keeps memory small; done in every step it leaves nothing to learn through time: no "
            "gradient says how an early input should have changed the state. The graphs of the other steps were "
            "built and thrown away.",
            zh=f"`detach()` 返回 {what.zh} 的数值而不带历史。在一个长序列的两段之间做一次可以节省内存；每一步都做，就"
            "无法跨时间学习：没有梯度能说明较早的输入应当怎样改变状态。其他各步的计算图建好后又被丢弃。",
        ),
        related=[
            story.related("cut", last.step, T(en="cut off again in the last step", zh="在最后一步再次切断")),
            story.related("backward", found.backward.step, T(en="goes back through one step", zh="只回传一步")),
        ],
        fixes=_fixes(story, first),
        facts=[Fact("steps", count, story.by(last.step))],
    )


def _fixes(story: Story, cut: Event) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(cut.step)) if program.tree is not None else None
    value = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    value = node.value if isinstance(node, ast.Attribute) and node.attr == "data" else value
    if value is None or node is None or cut.name not in VIEW_METHODS | {"data"}:
        return ()
    title = T(en="Keep the state connected within a sequence", zh="在一个序列之内保持状态相连")
    return unique(program.text, [Fix(title, program.replace((node, in_parentheses(program, value))), meaning="later")])


RULE = Rule(
    code="PL516",
    name="state-cut-in-every-step",
    severity="warning",
    title=T(
        en="The state is detached in every time step, so only the last one is trained",
        zh="状态在每个时间步都被切断，只有最后一步得到训练",
    ),
    what=T(
        en="A program walks through a sequence and cuts the state off from the step before, each time. Then "
        "it can only learn from the last step, as if the sequence had a single entry. Cut between two "
        "sequences, not between two steps.",
        zh="程序沿序列前进，每一步都把状态与前一步切断。这样它只能从最后一步学习，好像序列只有一项。请在两段序列之间切"
        "断，而不是在两步之间。",
    ),
    why=T(
        en="A recurrent net uses the same weights in each step, and its gradient is the sum over all steps, each "
        "through the states in between. `detach()` gives a tensor that shares the numbers but has no `grad_fn`, so "
        "backward stops there. The weights still get a gradient, from the last step, so nothing is missing that an "
        "optimizer could notice. Against graphs that grow from batch to batch, detach the state once per batch.",
        zh="循环网络在每一步使用相同的权重，其梯度是各步之和，每一步都要经过中间的状态。`detach()` 给出共享数值但没有 "
        "`grad_fn` 的张量，反向传播到此为止。权重仍从最后一步得到梯度，所以优化器察觉不到缺少了什么。若要避免计算图逐"
        "批增长，请每批切断一次。",
    ),
    bad="""import torch

torch.manual_seed(0)
step, read = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
opt = torch.optim.SGD([*step.parameters(), *read.parameters()], lr=0.1)
x, y = torch.randn(4, 5, 1), torch.randn(4, 1)
for _ in range(2):
    state = torch.zeros(4, 2)
    for t in range(5):
        state = torch.tanh(step(torch.cat([x[:, t], state.detach()], 1)))  # PL516 cut
    loss = ((read(state) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
step, read = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
opt = torch.optim.SGD([*step.parameters(), *read.parameters()], lr=0.1)
x, y = torch.randn(4, 5, 1), torch.randn(4, 1)
for _ in range(2):
    state = torch.zeros(4, 2)
    for t in range(5):
        state = torch.tanh(step(torch.cat([x[:, t], state], 1)))
    loss = ((read(state) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "state.detach()",
            "state.data",
            T(
                en="`.data` cuts the history as well, and hides later writes besides.",
                zh="`.data` 同样切断历史，而且还会隐藏之后的写入。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html",
    ),
)
