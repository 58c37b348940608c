"""PL995: the weight of an action's log-probability sums the rewards before the action, not those after it."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, made_by
from pitfall_lab.rules.signals.loss_slopes import slopes
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS as PARTS
from pitfall_lab.rules.signals.value_origins import decimal
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

SUMS, PRODUCTS = spellings("add"), spellings("mul")
SCALED = SUMS | PRODUCTS | spellings("sub", "div")
"""Calls between the sums and the weights: a mean is taken away, or a deviation divides."""
PICKS = {"__getitem__", "select", "unbind"}
"""Calls that take one step of a tensor."""
JOINS = {"stack", "cat"}
TIMES = PRODUCTS | spellings("matmul") | {"dot", "inner", "vdot"}
"""Calls that multiply a log-probability with its weight."""
LOGARITHMS = {"cross_entropy", "log", "log_softmax", "logsigmoid", "logsumexp", "nll_loss"}
"""Calls that a log-probability was computed by."""
INNER = PARTS | SCALED | spellings("neg") | {"gather", "index_select", "take_along_dim"}
"""Calls between such a call and the log-probabilities of the actions."""
FURTHER, STEPS, PAIR, MOST = 40, 3, 2, 600
TURNED = ("[::-1]", "reversed(", "flip(")


@dataclass(frozen=True, slots=True)
class PastRewards:
    """``events`` are the calls (each an ``Event``) on one line that added a reward to ``discount`` times the last sum,
    in the order of the rewards in the tensor ``rewards`` (a label); ``used`` multiplies such sums with
    log-probabilities.
    """

    events: tuple[Event, ...]
    rewards: str
    discount: float
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that sums at least ``STEPS`` rewards of one tensor, from its beginning on, each
    time with a multiple of the sum before, where such sums are multiplied with log-probabilities of a loss.
    """
    lines: dict[Span | None, list[Event]] = defaultdict(list)
    for event in story.calls(*SUMS):
        if event.error is None and event.results and len(lines[event.span]) < MOST:
            lines[event.span].append(event)
    for several in lines.values():
        found = _past_rewards(story, several) if len(several) >= STEPS else None
        if found is not None:
            yield _finding(story, found)


def _past_rewards(story: Story, events: list[Event]) -> PastRewards | None:
    chain = [events[0]]
    picked = [_picked(story, events[0], None)]
    discounts = set[float]()
    for event in events[1:]:
        carried = _carried(story, event, chain[-1])
        if carried is None and len(chain) >= STEPS:
            break
        if carried is None:
            chain, picked, discounts = [], [], set()
        else:
            discounts.add(carried[1])
        chain.append(event)
        picked.append(_picked(story, event, carried[0] if carried is not None else None))
    known = [each for each in picked if each is not None]
    if len(chain) < STEPS or len(known) < len(chain) or len(discounts) != 1:
        return None
    if len({place[0] for place in known}) != 1 or not _ascends([place[1] for place in known]):
        return None
    rewards = known[0][2]
    if _is_turned(story, rewards, chain[0].step):
        return None
    used = _used(story, [event.results[0] for event in chain], chain)
    return PastRewards(tuple(chain), rewards, discounts.pop(), used) if used is not None else None


def _ascends(places: list[int]) -> bool:
    steps = {after - before for before, after in pairwise(places)}
    return len(steps) == 1 and steps.pop() > 0


def _carried(story: Story, event: Event, before: Event) -> tuple[str, float] | None:
    """The label of the operand of a sum that is the sum ``before`` times a factor between 0 and 1, and the factor; else
    None.
    """
    for each in event.operands:
        made = made_by(story, each.label, event.step) if each.label is not None else None
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or each.label is None or made.name not in PRODUCTS or given != [before.results[0]]:
            continue
        factor = next((decimal(o.text) for o in made.operands if o.label is None), None)
        if factor is not None and 0 < factor < 1:
            return each.label, factor
    return None


def _picked(story: Story, event: Event, carried: str | None) -> tuple[str, int, str] | None:
    """The storage, and the position in it, of the reward that a sum adds, and the label of the tensor from which it was
    picked; None if the other operand was computed.
    """
    for label in (o.label for o in event.operands if o.label not in (None, carried)):
        made, record = made_by(story, label, event.step), story.tensor(label, event.step) or {}
        if made is None or made.name not in PICKS or record.get("requires_grad"):
            continue
        source = made.operands[0].label
        own = story.tensor(source, made.step) or {}
        if source is not None and own.get("storage") == record.get("storage"):
            return str(record.get("storage")), int(record.get("offset") or 0), source
    return None


def _is_turned(story: Story, rewards: str, step: int) -> bool:
    """Whether the rewards were reversed before, by a ``flip`` or in the statement that made their tensor."""
    for _ in range(FURTHER):
        made = made_by(story, rewards, step)
        if made is None:
            return False
        statement = story.program.statement_at(story.span(made.step))
        text = story.program.segment(statement) if isinstance(statement, ast.Assign) else ""
        if made.name in ("flip", "flipud") or any(each in text for each in TURNED):
            return True
        given = next((o.label for o in made.operands if o.label is not None), None)
        if given is None or given == rewards:
            return False
        rewards, step = given, made.step
    return False


def _used(story: Story, sums: list[str], chain: list[Event]) -> Event | None:
    """The call that multiplies the sums, in their order, with log-probabilities in a loss whose backward ran; None if
    there is none.
    """
    own = {event.step for event in chain}
    pending, seen = deque((label, chain[0].step) for label in sums), set(sums)
    while pending and len(seen) < MOST:
        label, at = pending.popleft()
        for use in (use for use in story.uses(label) if use.step > at and use.step not in own):
            others = [o.label for o in use.operands if o.label not in (None, label)]
            if use.name == "__setitem__" and use.operands[-1].label == label:
                result = use.operands[0].label
            elif use.name in JOINS and not _in_order(use, sums):
                return None
            elif use.name in TIMES and any(_is_log_probability(story, each, use.step) for each in others):
                if _in_loss(story, use):
                    return use
                continue
            elif use.name in SAME_NUMBERS | SCALED | JOINS | PICKS and use.results and not _has_grad(story, use):
                result = use.results[0]
            else:
                continue
            for each in (result, *(use.results[1:] if use.name == "unbind" else ())):
                if each is not None and each not in seen:
                    seen.add(each)
                    pending.append((each, use.step))
    return None


def _has_grad(story: Story, event: Event) -> bool:
    return bool((story.tensor(event.results[0], event.step) or {}).get("requires_grad"))


def _in_order(event: Event, sums: list[str]) -> bool:
    """Whether joined tensors have the sums among them in the order in which they were computed."""
    places = [sums.index(o.label) for o in event.operands if o.label in sums]
    return places == sorted(places)


def _is_log_probability(story: Story, label: str, step: int) -> bool:
    """Whether a tensor that requires grad was computed by a logarithm, and was neither flipped nor joined in reverse
    order after it.
    """
    if not (story.tensor(label, step) or {}).get("requires_grad"):
        return False
    pending, seen = deque([(label, step)]), {label}
    while pending and len(seen) < FURTHER:
        made = made_by(story, *pending.popleft())
        if made is None:
            continue
        if made.name in LOGARITHMS:
            return True
        given = [o.label for o in made.operands if o.label is not None]
        if made.name in ("flip", "flipud") or (made.name in JOINS and _is_backwards(story, given)):
            return False
        if made.name in INNER | {"broadcast_tensors"}:
            pending += [(each, made.step) for each in given if each not in seen]
            seen.update(given)
    return False


def _is_backwards(story: Story, labels: list[str]) -> bool:
    born = [int((story.tensor(label) or {}).get("born") or 0) for label in labels]
    return len(born) > 1 and born == sorted(born, reverse=True)


def _in_loss(story: Story, event: Event) -> bool:
    """Whether a loss, whose backward ran, is known to rise or fall with the result of a call."""
    for back in story.backwards():
        loss = back.operands[0].label if back.operands else None
        if back.step > event.step and event.results[0] in slopes(story, loss, back.step):
            return True
    return False


def _finding(story: Story, found: PastRewards) -> Finding:
    event, count = found.events[0], len(found.events)
    step = found.events[-1].step
    here = at_line(story, story.span(step))
    rewards = expression(story, found.rewards, event.step)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} sums {rewards.en} from the first of {count} steps to the last: the weight of each "
            "action holds the rewards before it, and not those that it led to.",
            zh=f"{here.zh}从 {count} 步中的第一步累加 {rewards.zh} 到最后一步：每个动作的权重包含的是它之前的奖励，而不"
            "是它带来的奖励。",
        ),
        T(
            en=f"The sum of a step is its reward plus {number(found.discount)} times the sum of the step before, so an "
            "action is praised for what came earlier. The first action only gets its own reward, whatever "
            "follows. A return goes the other way: the reward of the step plus the discounted return of the "
            "next one. Begin with the last step.",
            zh=f"某一步的和等于它的奖励加上 {number(found.discount)} 乘以前一步的和，于是动作因为更早发生的事而受到奖励"
            "；第一个动作只得到它自己的奖励，无论之后发生什么。回报应当反过来算：本步的奖励加上折扣后的下一步的回报。请从"
            "最后一步开始。",
        ),
        related=[
            story.related(
                "used", found.used.step, T(en="log-probabilities are weighted here", zh="在这里给对数概率加权")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("steps", count, story.by(step)), Fact("discount", found.discount, story.by(step))],
    )


def _fixes(story: Story, found: PastRewards) -> tuple[Fix, ...]:
    """At most one fix: it reverses the loop and, where the sums are appended to a list, inserts each at the front.
    Empty if the sum is not assigned directly in a loop over a range or a tensor's name.
    """
    program = story.program
    statement = program.statement_at(story.span(found.events[-1].step))
    loop = program.parents.get(statement) if statement is not None else None
    if not isinstance(loop, ast.For) or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ()
    total = program.segment(statement.targets[0])
    turned = _turned(program, loop.iter)
    edits = [(loop.iter, turned)] if turned else []
    for node in (n for each in loop.body for n in ast.walk(each) if isinstance(n, ast.Call)):
        given = [program.segment(each) for each in node.args]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and given == [total]:
            edits.append((node, f"{program.segment(node.func.value)}.insert(0, {total})"))
    if not turned:
        return ()
    title = T(en=f"Begin with the last step: `{turned}`", zh=f"从最后一步开始：`{turned}`")
    return unique(program.text, [Fix(title, program.replace(*edits), meaning="later")])


def _turned(program: Program, steps: ast.expr) -> str:
    """The source of what a loop runs over, in reverse order; empty if that is neither a range nor a tensor's name."""
    if isinstance(steps, ast.Call):
        return f"reversed({program.segment(steps)})" if call_name(steps) == "range" else ""
    return f"{operand(program, steps)}.flip(0)" if isinstance(steps, ast.Name | ast.Attribute) else ""


RULE = Rule(
    code="PL995",
    name="summed-from-the-past",
    severity="warning",
    title=T(en="The weight of an action sums the rewards before it", zh="动作的权重累加的是它之前的奖励"),
    what=T(
        en="A policy gradient weights the log-probability of each action with its return: the discounted rewards from "
        "that step on. Here the loop runs from the first step to the last, so the sum of a step holds the rewards of "
        "earlier steps. Run the loop from the last step to the first.",
        zh="策略梯度用回报给每个动作的对数概率加权：回报是从该步起的折扣奖励之和。这里循环从第一步走到最后一步，于是某一步"
        "的和包含的是更早各步的奖励。请让循环从最后一步走到第一步。",
    ),
    why=T(
        en="The line `total = reward + gamma * total` is the same in both directions; only the order of the loop "
        "decides whether `total` is the past or the future. Both have the same shape and about the same size, and the "
        "loss says nothing: it shows in a policy that does not learn what leads to a later reward.",
        zh="`total = reward + gamma * total` 这一行在两个方向上写法相同，只有循环的次序决定 `total` 是过去还是未来。"
        "两者形状相同，大小也差不多，损失看不出区别：表现是策略学不会那些会带来后续奖励的动作。",
    ),
    bad="""import torch

torch.manual_seed(0)
rewards = torch.tensor([0.0, 0.0, 0.0, 1.0])
returns, total = torch.zeros(4), torch.zeros(())
for i in range(len(rewards)):
    total = rewards[i] + 0.9 * total  # PL995
    returns[i] = total
scores = torch.zeros(3, requires_grad=True)
log_probs = scores.log_softmax(0)[torch.tensor([0, 1, 2, 0])]
loss = -(log_probs * returns).sum()  # used
loss.backward()
print("gradient", scores.grad)
""",
    good="""import torch

torch.manual_seed(0)
rewards = torch.tensor([0.0, 0.0, 0.0, 1.0])
returns, total = torch.zeros(4), torch.zeros(())
for i in reversed(range(len(rewards))):
    total = rewards[i] + 0.9 * total
    returns[i] = total
scores = torch.zeros(3, requires_grad=True)
log_probs = scores.log_softmax(0)[torch.tensor([0, 1, 2, 0])]
loss = -(log_probs * returns).sum()
loss.backward()
print("gradient", scores.grad)
""",
    find=find,
    traps=(
        Trap(
            "0.9 * total",
            "0.99 * total",
            T(
                en="With another discount the sum still holds the rewards before the action.",
                zh="换一个折扣，和里仍然是动作之前的奖励。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#score-function",),
)
