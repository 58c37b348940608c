"""PL990: a target adds the next state's value to each reward, also where the episode ends: the flags of the ends were
made into a tensor, and nothing uses it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import flat_targets, operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

SUMS = spellings("add", in_place=True)
PRODUCTS = spellings("addcmul") | spellings("mul", in_place=True)
LOSSES = spellings("sub", exchanged=True) | operations_that("difference_loss")
VIEWS = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "contiguous", "clone", "detach", "to", "float", "double",
         "long", "bool", "int", "cpu", "type", "type_as", "view_as", "expand", "expand_as"}  # fmt: skip
"""Calls that a tensor is followed through: its numbers stay the same."""
GIVEN = (
    spellings("as_tensor", "cat", "vstack")
    | {"__getitem__", "chunk", "from_numpy", "hstack", "index_select", "select", "split", "stack", "tensor", "unbind"}
)  # fmt: skip
"""Calls that make the data of a batch, from Python numbers or from stored tensors."""
SELECTS = (
    spellings("masked_fill", "masked_scatter", "scatter", in_place=True)
    | {"__setitem__", "index_copy_", "index_put_", "where"}
)  # fmt: skip
"""Calls by which the next state's value may be left out of some rows."""
FEWEST, FURTHER, WINDOW = 4, 60, 400


@dataclass(frozen=True, slots=True)
class Target:
    """``event`` is the call (``Event``) that added rewards and ``next_values``, the label of the discounted values of
    the next states; ``used`` is the call that compares the sum with a prediction.

    ``flags`` is the label of a tensor of truth values that tell where episodes end and that no call used; ``made`` is
    the call that made it.
    """

    event: Event
    next_values: str
    used: Event
    flags: str
    made: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds rewards and predicted values to a target for a loss, where the batch
    also has a tensor of flags, one for each row, that no call uses.
    """
    told = set()
    last: dict[object, int] = {}
    for event in story.calls(*SUMS):
        place, labels = story.span(event.step), [o.label for o in event.operands if o.label is not None]
        if place in told or event.error is not None or not event.results or len(labels) != 2:
            continue
        target = _target(story, event, labels, last.get(place, event.step - WINDOW))
        last[place] = event.step
        if target is not None:
            told.add(place)
            yield _finding(story, target)


def _target(story: Story, event: Event, labels: list[str], since: int) -> Target | None:
    """Return the data of the finding for a sum; None unless it adds data of the batch and values that a network
    computed, the result is compared with a prediction, and unused flags are found after the step ``since``.
    """
    rows = prod(story.shape(event.results[0], event.step) or ())
    if rows < FEWEST:
        return None
    predicted = [_predicted(story, label, event.step) for label in labels]
    if predicted not in ([True, False], [False, True]):
        return None
    given, values = labels if predicted[1] else labels[::-1]
    if not _is_data(story, given, event.step) or prod(story.shape(given, event.step) or ()) != rows:
        return None
    used = _compared(story, event)
    flags = _flags(story, rows, max(since, event.step - WINDOW), event.step) if used is not None else None
    return Target(event, values, used, *flags) if used is not None and flags is not None else None


def _predicted(story: Story, label: str, step: int) -> bool | None:
    """Return whether a tensor was computed with parameters; None if some rows may have been left out of it after that,
    by a product of two tensors of several values or by a call of :data:`SELECTS`.
    """
    pending, seen, found = [(label, step)], {label}, False
    while pending and len(seen) < FURTHER:
        here, at = pending.pop()
        made = made_by(story, here, at)
        if made is None:
            continue
        record = story.tensor(here, at) or {}
        if any(story.events[one].name in SELECTS for one in story.writes(str(record.get("storage")), made.step, step)):
            return None
        given = [o.label for o in made.operands if o.label is not None]
        if any((story.tensor(each, made.step) or {}).get("kind") == "parameter" for each in given):
            found = True
            continue
        if made.name in SELECTS:
            return None
        if made.name in PRODUCTS and sum(prod(story.shape(each, made.step) or ()) > 1 for each in given) > 1:
            return None
        new = [each for each in given if each not in seen]
        seen.update(new)
        pending += [(each, made.step) for each in new]
    return found


def _is_data(story: Story, label: str, step: int) -> bool:
    """Whether a tensor is data of the batch, at most converted, viewed or multiplied by a number."""
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None:
            return (story.tensor(label, step) or {}).get("kind") != "parameter"
        if made.name in GIVEN:
            return True
        given = [o.label for o in made.operands if o.label is not None]
        if made.name not in VIEWS | PRODUCTS or len(given) != 1 or given[0] == label:
            return False
        label, step = given[0], made.step
    return False


def _compared(story: Story, event: Event) -> Event | None:
    """Return the loss, or difference, of the sum and a prediction that requires grad; None if there is none."""
    pending, seen = [event.results[0]], {event.results[0]}
    while pending and len(seen) < FURTHER:
        here = pending.pop()
        for use in (use for use in story.uses(here) if use.step > event.step and use.error is None):
            others = [o.label for o in use.operands if o.label is not None and o.label != here]
            if use.name in LOSSES and any((story.tensor(o, use.step) or {}).get("requires_grad") for o in others):
                return use
            if use.name in VIEWS and use.results and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return None


def _flags(story: Story, rows: int, since: int, until: int) -> tuple[str, Event] | None:
    """Return the label of the latest tensor of flags before ``until`` that no call uses, and the call that made it;
    None if there is none.

    Flags are bools, or zeros and ones, one for each of ``rows`` rows, some of them true and some not, among the data of
    the batch.
    """
    for step in range(until - 1, max(since, -1), -1):
        made = story.events[step]
        if made.kind != "call" or made.error is not None or made.name not in GIVEN | VIEWS:
            continue
        for label in made.results:
            shape = story.shape(label, step) or ()
            if prod(shape) != rows or max(shape, default=0) != rows or story.uses(label):
                continue
            known = [value for _, value in Elements(story, label, step, answers=True).known()]
            if known and set(known) <= {0, 1} and any(known) and not all(known) and _is_data(story, label, step):
                return label, made
    return None


def _finding(story: Story, target: Target) -> Finding:
    event = target.event
    here, there, by = (at_line(story, story.span(each.step)) for each in (event, target.made, target.used))
    name = _name(story, target)
    flags = T(en=f"`{name}`", zh=f"`{name}`") if name else expression(story, target.flags, target.made.step)
    rows = prod(story.shape(event.results[0], event.step) or ())
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} adds the predicted value of the next state to each of {rows} rewards, also where "
            f"nothing follows: the flags of {there.en} that could say so are not used.",
            zh=f"{here.zh}给 {rows} 个奖励都加上了下一个状态的预测值，没有后续的也一样：没有用到{there.zh}的标志。",
        ),
        T(
            en=f"What {by.en} learns from is the reward plus the discounted value of what comes next. After the last "
            "step of an episode nothing comes next, and the state that is stored there is the start of another "
            f"episode, or no state at all. With its value added, the values grow beyond what can be earned. {flags.en} "
            "has one flag for each row: multiply the next values by 1 where it goes on and 0 where it ends.",
            zh=f"{by.zh}学习的目标是奖励加上后续状态的折扣价值。一个回合的最后一步之后没有后续，那里存下的状态是另一个回合"
            f"的起点，或者根本不是状态。把它的价值加上去，价值就会超过所能得到的奖励。{flags.zh} 对每一行都有一个标志："
            "请给下一个状态的价值乘上一个因子，继续时为 1，结束时为 0。",
        ),
        related=[
            story.related("made", target.made.step, T(en="flags that nothing uses", zh="没有用到的标志")),
            story.related("used", target.used.step, T(en="learned from here", zh="在这里用来学习")),
        ],
        fixes=_fixes(story, target),
        facts=[Fact("rows", rows, story.by(event.step))],
    )


def _fixes(story: Story, target: Target) -> tuple[Fix, ...]:
    """At most one fix: it multiplies the next values by the negated flags.

    Empty if the flags are not a variable that the function of the sum can read, or the program does not show the next
    values.
    """
    program, event = story.program, target.event
    node = program.at(story.span(event.step))
    values, name = written_as(story, event, target.next_values), _name(story, target)
    if node is None or values is None or name is None or not name.isidentifier() or name == "_":
        return ()
    around = program.function(node)
    bound = [n for n in program.nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    if not any(program.function(n) in (around, None) for n in bound):
        return ()
    is_bool = (story.tensor(target.flags, target.made.step) or {}).get("dtype") == "bool"
    there, own = (story.shape(each, event.step) or () for each in (target.next_values, target.flags))
    name = name if own == there else f"{name}.view_as({program.segment(values)})"
    goes_on = f"~{name}" if is_bool else f"(1 - {name})"
    product = isinstance(values, ast.BinOp) and isinstance(values.op, ast.Mult)
    text = program.segment(values) if product else operand(program, values)
    title = T(en=f"Leave out what follows an end: `* {goes_on}`", zh=f"结束之后不再相加：`* {goes_on}`")
    return unique(program.text, [Fix(title, program.replace((values, f"{text} * {goes_on}")), meaning="later")])


def _name(story: Story, target: Target) -> str | None:
    """Return the name of the variable of the flags, also if several tensors are unpacked, as from a ``map``; None if it
    is not known.
    """
    name, made, program = story.name(target.flags, target.made.step), target.made, story.program
    statement = program.statement_at(story.span(made.step))
    if name is not None or not isinstance(statement, ast.Assign | ast.For):
        return name
    goal = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    names = list(flat_targets(goal))
    first = made.step
    while first > 0 and _alike(story.events[first - 1], made):
        first -= 1
    last = made.step
    while last + 1 < len(story.events) and _alike(story.events[last + 1], made):
        last += 1
    place = names[(made.step - first) % len(names)]
    known = (last - first + 1) % len(names) == 0 and isinstance(place, ast.Name)
    return place.id if known and isinstance(place, ast.Name) else None


def _alike(one: Event, other: Event) -> bool:
    return (one.span, one.op, one.parent) == (other.span, other.op, other.parent)


RULE = Rule(
    code="PL990",
    name="end-of-episode-unused",
    severity="warning",
    title=T(
        en="The value of a next state is added after the end of an episode",
        zh="在回合结束之后仍加上了下一个状态的价值",
    ),
    what=T(
        en="A program learns the value of a state from the reward and the value of the next state, and also stores "
        "whether a game ended there. If it does not use that, it adds the value of a state that never came, and all "
        "values become too large. Multiply: `reward + gamma * next_value * ~done`.",
        zh="程序从奖励和下一个状态的价值学习一个状态的价值，并且还存下了游戏是否在那里结束。如果不用它，就会加上一个从未出"
        "现的状态的价值，所有的价值都会太大。请相乘：`reward + gamma * next_value * ~done`。",
    ),
    why=T(
        en="A network returns a value for every input, also for the state that is stored after the last step, "
        "which mostly is the start of the next game. Its value is learned from targets of the same kind, so each "
        "round adds a little more, up to the reward over `1 - gamma`. The flags are one tensor of the batch, and "
        "torch cannot know that one of five tensors was to be used.",
        zh="不管问什么，网络都会给出一个价值，包括最后一步之后存下的状态，而它多半是下局的起点。它的价值又是从同样的目标"
        "学来的，于是每一轮都多加一点，直到奖励除以 `1 - gamma`。标志是这一批数据中的一个张量，而 torch 无法知道五个"
        "张量中的某一个本该用到。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
value = nn.Linear(3, 1)
state, after = torch.rand(6, 3), torch.rand(6, 3)
batch = ([0.0, 1.0, 0.0, 0.0, 1.0, 0.0], [False, True, False, False, True, False])
reward, ended = map(torch.tensor, batch)  # made
with torch.no_grad():
    goal = reward + 0.9 * value(after).squeeze(1)  # PL990
loss = nn.functional.mse_loss(value(state).squeeze(1), goal)  # used
loss.backward()
print(loss, goal)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
value = nn.Linear(3, 1)
state, after = torch.rand(6, 3), torch.rand(6, 3)
batch = ([0.0, 1.0, 0.0, 0.0, 1.0, 0.0], [False, True, False, False, True, False])
reward, ended = map(torch.tensor, batch)
with torch.no_grad():
    goal = reward + 0.9 * value(after).squeeze(1) * ~ended
loss = nn.functional.mse_loss(value(state).squeeze(1), goal)
loss.backward()
print(loss, goal)
""",
    find=find,
    traps=(
        Trap(
            "reward + 0.9 *",
            "reward + 0.5 *",
            T(
                en="The values stay smaller, and what follows an end is still added.",
                zh="价值会小一些，但结束之后的仍会加上。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.mul.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.SmoothL1Loss.html",
    ),
)
