"""PL546: two steps of optimizers use the same gradient, since two hold the parameter, or since
``step()`` is called twice in a round.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import Moment, lives
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import OptimizerStep, Span, T

ROUNDS = 2


@dataclass(frozen=True, slots=True)
class SteppedTwice:
    """In the first of ``rounds`` rounds in which this happened, the optimizer step ``second`` used the gradient of the
    leaf ``leaf`` (a label) which the step ``first`` had used already.

    ``added`` is the moment (:class:`Moment`) of the backward that had computed this gradient.
    """

    leaf: str
    added: Moment
    first: OptimizerStep
    second: OptimizerStep
    rounds: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each pair of lines with a step of an optimizer each, if in at least ``ROUNDS`` iterations
    the second used a gradient that the first had used, with no backward and no clearing between.
    """
    steps: dict[Span, list[OptimizerStep]] = defaultdict(list)
    for step in story.trace.optimizer_steps:
        if step.span is not None:
            steps[step.span].append(step)
    found: dict[tuple[Span | None, Span | None], list[SteppedTwice]] = {}
    for leaf, moments in lives(story).items() if len(steps) > 1 else ():
        for again in _again(story, leaf, moments, steps):
            found.setdefault((again.first.span, again.second.span), []).append(again)
    for each in found.values():
        yield _finding(story, each[0], len(each) - 1)


def _again(
    story: Story, leaf: str, moments: list[Moment], steps: dict[Span, list[OptimizerStep]]
) -> Iterator[SteppedTwice]:
    """Yield the pairs of steps that used one gradient of a leaf in at least ``ROUNDS`` rounds, each pair of lines once.

    A round ends when a backward adds to the gradient or it is cleared.
    """
    pairs: dict[tuple[Span | None, Span | None], list[SteppedTwice]] = {}
    added: Moment | None = None
    used: list[OptimizerStep] = []
    for moment in [*moments, Moment("cleared", len(story.events), story.events[-1])]:
        span = story.span(moment.step) if moment.kind == "used" else None
        step = next((each for each in steps.get(span, ()) if leaf in each.holds), None) if span is not None else None
        if step is not None and step not in used:
            used.append(step)
        if moment.kind == "used" or (moment.kind == "changed" and not used):
            continue
        if added is not None:
            for first, second in pairwise(used):
                pairs.setdefault((first.span, second.span), []).append(SteppedTwice(leaf, added, first, second, 0))
        added, used = moment if moment.kind == "added" else None, []
    yield from (replace(each[0], rounds=len(each)) for each in pairs.values() if len(each) >= ROUNDS)


def _finding(story: Story, found: SteppedTwice, others: int) -> Finding:
    first, second = (at_line(story, step.span) for step in (found.first, found.second))
    name = called(story, found.leaf, None, found.added.step)
    more = T(en=f" and {others} more", zh=f" 等 {others + 1} 个参数") if others else T(en="", zh="")
    same = found.first.made is not None and found.first.made == found.second.made
    why = (
        T(
            en=f"Both calls step the same {found.first.optimizer}, and no backward ran in between.",
            zh=f"两次调用更新的是同一个 {found.first.optimizer}，中间没有反向传播。",
        )
        if same
        else T(
            en=f"The {found.first.optimizer} of {first.en} and the {found.second.optimizer} of {second.en} both "
            f"hold {name.en}{more.en}.",
            zh=f"{first.zh}的 {found.first.optimizer} 和{second.zh}的 {found.second.optimizer} 都持有 "
            f"{name.zh}{more.zh}。",
        )
    )
    return RULE.finding(
        found.second.span,
        found.second.step,
        T(
            en=f"{capital(second.en)} updates {name.en}{more.en} with the gradient that {first.en} has used already, "
            f"in each of {found.rounds} rounds: every update is made twice.",
            zh=f"{second.zh}用{first.zh}已经用过的梯度再次更新 {name.zh}{more.zh}，{found.rounds} 轮中每一轮都如"
            "此：每次更新都做了两遍。",
        ),
        T(
            en=f"{why.en} `step()` reads `.grad` and leaves it as it is, so a second step goes the same way once "
            "more. The learning rate of these parameters is then not the one that is written down.",
            zh=f"{why.zh}`step()` 读取 `.grad` 而不改变它，所以第二步会沿同一方向再走一次。这些参数的学习"
            "率于是不是写下的那个。",
        ),
        related=[
            story.related("backward", found.added.step, T(en="the gradient is computed here", zh="梯度在这里算出")),
            story.related("step", found.first.step, T(en="this step uses it", zh="这一步使用它")),
            story.related("used", found.second.step, T(en="and this one uses it again", zh="这一步又使用了它")),
        ],
        fixes=_fixes(story, found, same=same),
        facts=[Fact("tensor", found.leaf, story.by(found.added.step)), Fact("rounds", found.rounds)],
    )


def _fixes(story: Story, found: SteppedTwice, *, same: bool) -> tuple[Fix, ...]:
    """Fixes that remove one of the two steps: alone with ``same`` (one optimizer steps twice), else together with its
    optimizer.

    Only a step that is a statement of its own, and without ``same`` only if the other optimizer holds all its
    parameters.
    """
    program, candidates = story.program, []
    for mine, other in ((found.second, found.first), (found.first, found.second)):
        statement = program.statement_at(mine.span)
        if not isinstance(statement, ast.Expr) or not (same or set(mine.holds) <= set(other.holds)):
            continue
        edits = program.delete(statement) if same else _without(story, statement)
        line = statement.lineno
        title = T(en=f"Make each update once: leave line {line} out", zh=f"每次更新只做一遍：去掉第 {line} 行")
        candidates += [Fix(title, edits, meaning="later")] if edits else []
    return unique(program.text, candidates)


def _without(story: Story, statement: ast.Expr) -> tuple[Edit, ...] | None:
    """The edits that remove an optimizer: where it is made, cleared and stepped; None if something else needs it."""
    program, call = story.program, statement.value
    owner = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    if not isinstance(owner, ast.Name):
        return None
    statements = []
    for node in (n for n in program.nodes if isinstance(n, ast.Name) and n.id == owner.id):
        around = program.statement(node)
        calls = (
            isinstance(around, ast.Expr)
            and isinstance(around.value, ast.Call)
            and around.value.func is program.parents.get(node)
        )
        makes = isinstance(around, ast.Assign) and around.targets == [node]
        if not calls and not makes:
            return None
        statements.append(around)
    return merge(*(program.delete(each) for each in dict.fromkeys(statements) if each is not None))


RULE = Rule(
    code="PL546",
    name="stepped-twice",
    severity="warning",
    title=T(en="One gradient is used for two updates", zh="一个梯度被用于两次更新"),
    what=T(
        en="A program computed its gradients once and then called two steps that change the same parameters: one "
        "optimizer was stepped twice, or two optimizers hold the same layer. These parameters move twice as far as "
        "the learning rate says. Step each parameter once for each backward.",
        zh="程序只算了一次梯度，却调用了两次改变同样参数的更新：一个优化器更新了两次，或者两个优化器持有同一层。这些参"
        "数移动的距离是学习率所说的两倍。每次反向传播之后，每个参数只更新一次。",
    ),
    why=T(
        en="`step()` reads `.grad` of every parameter that the optimizer holds. It does not clear it, and does not "
        "know which optimizers read it before. Within one optimizer torch refuses a parameter that is in two groups; "
        "between two optimizers nothing is checked. With momentum, or with Adam, the second step is not even the same "
        "again: it also moves the averages once more.",
        zh="`step()` 读取优化器持有的每个参数的 `.grad`。它不会清零，也不知道之前有哪些优化器读过。在一个优化器之内，"
        "torch 拒绝同时在两个参数组里的参数；在两个优化器之间则什么也不检查。使用动量或 Adam 时，第二步甚至不是同样的"
        "一步：它还会让平均值再移动一次。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)

def train():
    loss = (w - 5).square().sum()
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()  # step

for _ in range(3):
    train()
    opt.step()  # PL546 used
print(w)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)

def train():
    loss = (w - 5).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()

for _ in range(3):
    train()
print(w)
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=0.05",
            T(
                en="Half the rate makes up for it only with plain SGD and one step's gradient; the update "
                "is still made twice.",
                zh="把学习率减半只对普通的 SGD 和单步的梯度有效；更新仍然做了两遍。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.step.html",),
)
