"""PL662: one line makes a new optimizer of the same parameters in every iteration, so the
state of the earlier one is lost.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import OptimizerMade, Span, T

COLLECTING = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta")
"""Optimizers whose steps depend on what earlier steps have left in them, however they are set up."""
ROUNDS = 3


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of the program that made, at least ``ROUNDS`` times, an optimizer with a state
    (Adam, RMSprop, …) of the same parameters, each for at most one step.
    """
    places: dict[Span, list[OptimizerMade]] = defaultdict(list)
    for made in story.trace.optimizers:
        if made.span is not None and made.span.source == 0:
            places[made.span].append(made)
    for span, rounds in places.items():
        alike = all(
            made.optimizer in COLLECTING and made.holds and set(made.holds) == set(rounds[0].holds) for made in rounds
        )
        if (
            len(rounds) >= ROUNDS
            and alike
            and all(made.steps <= 1 for made in rounds)
            and _each_for_one_step(story, rounds)
        ):
            yield _finding(story, span, rounds)


def _each_for_one_step(story: Story, rounds: list[OptimizerMade]) -> bool:
    """Whether each of the optimizers that a line makes is used for at most one step before the next one is made.

    At least ``ROUNDS`` of their steps must be recorded. Where rounds are left out, the optimizer of a recorded step may
    have been made in a round that was not recorded.
    """
    first, held = rounds[0], set(rounds[0].holds)
    steps = [u.step for u in story.trace.optimizer_steps if u.optimizer == first.optimizer and set(u.holds) == held]
    between = (sum(one.step <= step < other.step for step in steps) for one, other in pairwise(rounds))
    return len(steps) >= ROUNDS and all(count <= 1 for count in between)


def _finding(story: Story, span: Span, rounds: list[OptimizerMade]) -> Finding:
    here, kind = at_line(story, span), rounds[0].optimizer
    step = next((update for update in story.trace.optimizer_steps if update.made is not None), None)
    gone = T(en="it makes one step, and is gone", zh="它只走一步就没有了")
    stepped = [Related("step", step.span, None, gone)] if step is not None else []
    return RULE.finding(
        span,
        rounds[0].step,
        T(
            en=f"{capital(here.en)} makes a new `{kind}` of the same parameters in every round, and none makes "
            "more than one step.",
            zh=f"{here.zh}在每一轮都为同样的参数新建一个 `{kind}`，每个最多只走一步。",
        ),
        T(
            en=f"`{kind}` adapts its steps to the gradients that it has seen. A new one has seen none: its first "
            "step is as long for a tiny gradient as for a large one. Make it once, before the loop.",
            zh=f"`{kind}` 根据见过的梯度调整步长。新建的什么也没见过：梯度很小时，它的第一步也和梯度很大时一样长。"
            "请在循环之前只创建一次。",
        ),
        related=stepped,
        fixes=_fixes(story, span),
        facts=[Fact("made", len(rounds))],
    )


def _fixes(story: Story, span: Span) -> tuple[Fix, ...]:
    """Fixes that move the statement before the outermost loop around it; empty if it is no
    assignment alone on its lines.
    """
    program = story.program
    statement = program.statement_at(span)
    loops = (
        [n for n in program.ancestors(statement) if isinstance(n, ast.For | ast.While)] if statement is not None else []
    )
    if not isinstance(statement, ast.Assign) or not loops or not program.stands_alone(statement):
        return ()
    name = program.segment(statement.targets[0])
    edits = merge(program.delete(statement), program.insert_before(loops[-1], program.segment(statement)))
    title = T(en=f"Make `{name}` once, before the loop", zh=f"在循环之前只创建一次 `{name}`")
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


RULE = Rule(
    code="PL662",
    name="optimizer-made-in-every-round",
    severity="warning",
    title=T(en="An optimizer is made anew for every step", zh="每走一步都新建一个优化器"),
    what=T(
        en="A program makes its Adam inside the training loop. Each one makes its first step, without any state from "
        "the rounds before. Make the optimizer once, before the loop.",
        zh="程序在训练循环里创建 Adam。每一个都只走自己的第一步，对之前的各轮一无所知。请在循环之前只创建一次优化器。",
    ),
    why=T(
        en="Adam and its relatives keep averages of gradients and of their squares for each parameter and divide "
        "one by the other. In the first step both come from one gradient, and what is left of it is its sign: "
        "each weight moves by the whole learning rate. The averages are part of the optimizer and end with it; so "
        "does the momentum of SGD.",
        zh="Adam 及其同类为每个参数保存梯度及其平方的平均值，并把两者相除。第一步时两者都来自同一个梯度，剩下的只有它"
        "的符号：每个权重都移动整个学习率那么多。这些平均值属于优化器，随它一起消失；SGD 的动量也是如此。",
    ),
    advice=T(en="make the optimizer of {line} once, before the loop.", zh="{line}的优化器请在循环之前只创建一次。"),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(4):
    opt = torch.optim.Adam(net.parameters(), lr=0.1)  # PL662
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # step
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for _ in range(4):
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=0.01",
            T(en="Smaller steps, each still without a memory.", zh="步子更小，但每一步仍然没有记忆。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/optim.html",),
)
