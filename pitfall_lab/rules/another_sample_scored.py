"""PL682: the log-probability is that of a sample drawn for it alone, and the action that is taken is another sample."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import key, same_numbers
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

DRAWS = {"multinomial": 1, "normal": 2, "bernoulli": 1, "poisson": 1}
"""The calls that draw samples, each with the number of its tensor operands that describe the distribution."""
PASSING = {
    "T", "t", "reshape", "view", "long", "unsqueeze", "squeeze", "broadcast_tensors", "__getitem__", "detach", "clone",
    "stack", "cat", "to", "float", "expand", "flatten", "contiguous", "transpose", "permute", "unbind", "data",
}  # fmt: skip
"""Calls that a tensor is followed through: its numbers stay the same."""
WEIGHING = spellings("mul") | {"dot", "einsum"}
ADDING_UP = PASSING | {"sum", "neg", "mean", "add", "sub", "gather"}
"""Calls between the log-probability and the loss that the log-probability is followed through."""
ROUNDS, FURTHER = 2, 60


@dataclass(frozen=True, slots=True)
class Scored:
    """``scored`` is the call (``Event``) that drew a sample of which nothing but the log-probability is used.

    ``score`` is the call that computed this log-probability, or a term of it, and whose result is multiplied by a
    weight. ``carried`` is the call that drew another sample of the same distribution, which was used as the action.
    """

    scored: Event
    score: Event
    carried: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that draws samples of which only the log-probability is used, multiplied by a
    weight, while other samples of the same distribution are used as actions.

    Only if this happens at least ``ROUNDS`` times on the line, and an optimizer made a step.
    """
    groups: dict[Hashable, list[Event]] = defaultdict(list)
    for event in story.calls(*DRAWS) if story.trace.optimizer_steps else ():
        given = [o.label for o in event.operands if o.label is not None][: DRAWS[event.name]]
        if event.error is None and event.results and given:
            groups[
                event.name, *(key(story, same_numbers(story, each, event.step), event.step) for each in given)
            ].append(event)
    rounds: dict[Span | None, list[Scored]] = defaultdict(list)
    for draws in groups.values():
        if len(draws) > 1:
            for found in _scored(story, draws):
                rounds[story.span(found.scored.step)].append(found)
    for each in rounds.values():
        if len(each) >= ROUNDS:
            yield _finding(story, each[0])


def _scored(story: Story, draws: list[Event]) -> Iterator[Scored]:
    """Yield the data of a finding for each of ``draws`` that is used for a weighted log-probability alone; nothing
    unless another one of ``draws`` is used and never for a log-probability.
    """
    alone, carried = [], []
    for draw in draws:
        uses = list(_uses(story, draw))
        scores = [use for use in uses if _is_score(story, use)]
        if uses and len(scores) == len(uses):
            alone.append((draw, scores))
        elif uses and not scores:
            carried.append(draw)
    for draw, scores in alone if carried else ():
        score = next((each for each in scores if _is_weighted(story, each)), None)
        if score is not None:
            yield Scored(draw, score, carried[0])


def _uses(story: Story, draw: Event) -> Iterator[Event]:
    """Yield the calls that use a drawn tensor, or the result of a call that only passes its values on
    (:data:`PASSING`), which is not yielded itself.
    """
    pending, seen = [draw.results[0]], {draw.results[0]}
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.step <= draw.step or use.error is not None:
                continue
            place = next(
                number
                for number, operand in enumerate(o for o in use.operands if o.label is not None)
                if operand.label == label
            )
            passed = use.name in PASSING and (place == 0 or use.name in ("stack", "cat")) and use.results
            if not passed:
                yield use
                continue
            result = use.results[place] if use.name == "broadcast_tensors" else use.results[0]
            if result not in seen:
                seen.add(result)
                pending.append(result)


def _is_score(story: Story, use: Event) -> bool:
    """Whether the call is one of those of a ``log_prob``, or picks elements of a tensor that requires grad (``gather``,
    an index).
    """
    node = story.program.at(use.span)
    if isinstance(node, ast.Call) and call_name(node) == "log_prob":
        return True
    picked = use.operands[0].label if use.name in ("gather", "take_along_dim", "__getitem__") else None
    return bool((story.tensor(picked, use.step) or {}).get("requires_grad"))


def _is_weighted(story: Story, score: Event) -> bool:
    """Whether the score is multiplied by something that requires no grad, such as a return, and a backward ran through
    the product.

    Sums, changes of sign and calls on the score's line may lie between the score and the product. A Python number
    counts as a weight only if it differs between the runs of the line.
    """
    pending, seen = list(score.results[:1]), set(score.results)
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            others = [o.label for o in use.operands if o.label is not None and o.label != label]
            if use.error is not None or not use.results or use.step <= score.step:
                continue
            if use.name in WEIGHING and use.span != score.span:
                plain = [each for each in others if not (story.tensor(each, use.step) or {}).get("requires_grad")]
                if (plain and len(plain) == len(others)) or (not others and _varies(story, use)):
                    graph = (story.tensor(use.results[0], use.step) or {}).get("grad_fn")
                    return (story.record("nodes", graph) or {}).get("ran") is not None
            if use.results[0] not in seen and (use.name in ADDING_UP or use.span == score.span):
                seen.add(use.results[0])
                pending.append(use.results[0])
    return False


def _varies(story: Story, use: Event) -> bool:
    """Whether the Python number by which the line of ``use`` multiplies differs between the runs of the line."""
    steps = story.steps_at[use.span, use.op]
    numbers = {
        constant(story, None, o.text, step) for step in steps for o in story.events[step].operands if o.label is None
    }
    return len(numbers) > 1


def _finding(story: Story, found: Scored) -> Finding:
    step = found.scored.step
    here, there, score = (at_line(story, story.span(each.step)) for each in (found.scored, found.carried, found.score))
    where = T(
        en="in the same line" if here == there else f"on {there.en}",
        zh="在同一行" if here == there else f"在{there.zh}",
    )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} draws a sample for nothing but its log-probability; what is carried out is "
            f"another sample, drawn {where.en}.",
            zh=f"{here.zh}抽取的样本只用来计算它的对数概率；真正执行的是{where.zh}抽取的另一个样本。",
        ),
        T(
            en=f"Each call of `sample()` draws anew. The weight that multiplies the log-probability of {score.en} "
            "says how good the sample was that was carried out, and has nothing to do with the one that is scored: "
            "on average the gradient is zero, and the policy does not learn.",
            zh=f"每次调用 `sample()` 都重新抽取。与{score.zh}的对数概率相乘的权重，说的是被执行的样本有多好，与被评分"
            "的样本无关：平均而言梯度为零，策略学不到东西。",
        ),
        related=[
            story.related("made", found.carried.step, T(en="this sample is carried out", zh="执行的是这个样本")),
            story.related(
                "used", found.score.step, T(en="the log-probability of the other one", zh="另一个样本的对数概率")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("scored", found.scored.results[0], story.by(step)), *_drawn(story, found)],
    )


def _drawn(story: Story, found: Scored) -> list[Fact]:
    """Return a fact that lists, for each example, the sample that is scored and the one that is used as the action;
    empty if no numbers are known, or a draw gave several numbers for each example.
    """
    one, other = (dict(Elements(story, draw.results[0], draw.step).known()) for draw in (found.scored, found.carried))
    shape = story.shape(found.scored.results[0], found.scored.step) or ()
    single = max(shape, default=0) == prod(shape)  # one number for each example
    rows = [(max(index), one[index], other[index]) for index in sorted(one.keys() & other.keys()) if single and index]
    return pairs(T(en="example", zh="样本"), T(en="sample that is scored", zh="打分的样本"), rows)


def _fixes(story: Story, found: Scored) -> tuple[Fix, ...]:
    """At most one fix: it computes the log-probability of the sample that is used as the action, by its variable, or by
    a new variable that is first assigned.

    Empty unless both calls are in one function, and the sample is assigned above the score or drawn in the same
    statement.
    """
    program = story.program
    scored, carried = (program.at(story.span(each.step)) for each in (found.scored, found.carried))
    if (
        not isinstance(scored, ast.Call)
        or not isinstance(carried, ast.Call)
        or program.function(scored) is not program.function(carried)
    ):
        return ()
    statement, own = program.statement(carried), program.statement(scored)
    title = T(en="Score the sample that is carried out", zh="对被执行的样本评分")
    edits: tuple[Edit, ...] = ()
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) and statement.value is carried:
        if statement.lineno < scored.lineno:
            edits = program.replace((scored, statement.targets[0].id))
    elif statement is own and statement is not None and program.stands_alone(statement):
        place, name = program.place(statement), _new_name(story)
        begin = Span(place.line, place.column, place.line, place.column)
        line = f"{name} = {snippet(story, program.place(carried), 200)}\n{program.indent(statement)}"
        edits = program.splice((begin, line), (program.place(scored), name), (program.place(carried), name))
    return unique(program.text, [Fix(title, edits, meaning="later")] if edits else [])


def _new_name(story: Story) -> str:
    used = {node.id for node in story.program.nodes if isinstance(node, ast.Name)}
    return next(name for name in ("action", "sample", "drawn", "drawn_action") if name not in used)


RULE = Rule(
    code="PL682",
    name="another-sample-scored",
    severity="warning",
    title=T(
        en="The log-probability of another sample than the one that is carried out",
        zh="对数概率属于另一个样本，而不是被执行的那个",
    ),
    what=T(
        en="A policy draws an action to carry it out, and draws once more to compute a log-probability. The reward "
        "then makes a different action more or less probable than the one that earned it, and nothing is learned. "
        "Draw once and use the same sample in both places.",
        zh="策略抽取一个动作去执行，又抽取一次来计算对数概率。于是奖励使另一个动作变得更可能或更不可能，而不是赢得奖励"
        "的那一个，什么也学不到。请只抽取一次，两处用同一个样本。",
    ),
    why=T(
        en="The gradient of an expected reward is that of `log_prob(action)`, times the reward of this very action. "
        "`sample()` returns new numbers at each call; two independent samples are uncorrelated, so the product has "
        "mean zero for every policy. All shapes fit and the loss moves about as in any such training.",
        zh="期望奖励的梯度，是 `log_prob(action)` 的梯度乘以这同一个动作的奖励。`sample()` 每次调用都返回新的数；两个"
        "独立的样本互不相关，所以无论什么策略，乘积的均值都是零。形状都相符，损失也像平常一样波动。",
    ),
    bad="""import torch
from torch.distributions import Categorical

torch.manual_seed(0)
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    policy = Categorical(logits=net(torch.ones(4, 2)))
    action = policy.sample()  # made
    score = policy.log_prob(policy.sample())  # PL682 used
    reward = (action == 1).float()
    loss = -(score * reward).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
from torch.distributions import Categorical

torch.manual_seed(0)
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    policy = Categorical(logits=net(torch.ones(4, 2)))
    action = policy.sample()
    score = policy.log_prob(action)
    reward = (action == 1).float()
    loss = -(score * reward).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "policy.log_prob(policy.sample())",
            "policy.log_prob(policy.sample().detach())",
            T(
                en="A sample has no gradient anyway; it still is another one.",
                zh="样本本来就没有梯度；它仍是另一个样本。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#score-function",),
)
