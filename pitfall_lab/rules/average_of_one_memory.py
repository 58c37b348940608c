"""PL737: an average of weights adds up the same storage several times, because each summand is a reference."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.keeping_repairs import copies_of_state
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as method
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SUMS = spellings("add", in_place=True) | {"__radd__"}
FACTORS = spellings("mul", "div") | {"__rmul__"}
JOINS = ("stack", "cat")
AVERAGES = spellings("mul", "matmul") | {"mean", "sum", "mv", "mm", "einsum", "tensordot", "median"}
"""Calls that average what was joined, with weights or without."""
STARTS = {"zeros", "zeros_like", "new_zeros"}
"""Calls that make the tensor of zeros that a running sum starts from."""
FEW, FURTHER = 2, 60


@dataclass(frozen=True, slots=True)
class AveragedMemory:
    """``event`` is the call (``Event``) that adds up, or joins, tensors which all share the storage of one parameter.

    ``parts`` are the labels of these tensors and ``parameter`` that of the parameter. ``kept`` is the call that created
    the earliest of them; ``changed`` is the step of the first write to the storage between the creation of the earliest
    and of the latest.
    """

    event: Event
    parts: tuple[str, ...]
    parameter: str
    kept: Event
    changed: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that keeps a reference to a parameter, where several such references to one
    storage are later added up or joined, and the parameter was written between the creation of the first and of the
    last.

    Only for parameters that an optimizer holds.
    """
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    reported, taken = set(), set[str]()
    for event in reversed(list(story.calls(*SUMS, *JOINS))) if held else ():
        if event.error is not None or not event.results or event.results[0] in taken:
            continue
        if event.name in JOINS and not any(use.name in AVERAGES for use in story.uses(event.results[0])):
            continue  # a history of weights is no average
        parts = _parts(story, event, taken)
        found = _one_memory(story, event, parts, held) if len(parts) >= FEW else None
        place = story.span(found.kept.step) if found is not None else None
        if found is not None and place not in reported:
            reported.add(place)
            yield _finding(story, found)


def _parts(story: Story, event: Event, taken: set[str]) -> tuple[tuple[str, int], ...]:
    """Return the summands of a sum, or the tensors that a call joins, each in a pair with the step that read it.

    Factors that are plain numbers are left out. The partial sums are added to the set ``taken``, so that they are not
    looked at again.
    """
    pending = [(o.label, one.step) for one in _additions(story, event) for o in one.operands if o.label is not None]
    if event.writes and event.name not in JOINS:
        pending = [each for each in pending if each[0] != event.operands[0].label]
    found = list[tuple[str, int]]()
    while pending and len(found) < FURTHER:
        label, step = pending.pop()
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if label is not None and made is not None and made.name in SUMS and event.name not in JOINS:
            taken.add(label)
            pending += [(each, made.step) for each in given]
        elif made is not None and made.name in FACTORS and len(given) == 1:
            pending.append((given[0], made.step))
        elif label is not None and (made is None or made.name not in STARTS):
            found.append((label, step))
    return tuple(found)


def _additions(story: Story, event: Event) -> list[Event]:
    """Return the call alone, or, if it adds in place, the earlier calls that added to the same tensor, and the call."""
    target = event.operands[0].label if event.writes and event.operands else None
    before = [use for use in story.uses(target) if use.step < event.step and use.name in SUMS and use.writes]
    return [*(use for use in before if use.operands[0].label == target), event]


def _one_memory(story: Story, event: Event, read: tuple[tuple[str, int], ...], held: set[str]) -> AveragedMemory | None:
    """Return the data of the finding for the summands ``read``; None unless they are different tensors without grad
    that all have the storage and the shape of one trained parameter, which was written between the creation of the
    first and of the last.

    None also if the storage was written between the first and the last reading of the summands: each was then read in
    time.
    """
    parts, steps = tuple(label for label, _ in read), [step for _, step in read]
    records = [story.tensor(each, event.step) or {} for each in parts]
    storage, shape = records[0].get("storage"), records[0].get("shape")
    if storage in event.writes or (storage is not None and story.writes(storage, min(steps), max(steps))):
        return None  # an average that is kept up in the weights themselves, or from the weights of each moment
    if storage is None or len(set(parts)) < len(parts) or any(each.get("requires_grad") for each in records):
        return None
    if any(each.get("storage") != storage or each.get("shape") != shape for each in records):
        return None
    parameter = next(
        (label for label, r in story.tensors_on(storage) if label in held and r.get("shape") == shape), None
    )
    makers = sorted((m for each in parts if (m := made_by(story, each, event.step))), key=lambda each: each.step)
    if parameter is None or len(makers) < len(parts):
        return None
    changed = story.writes(storage, makers[0].step, makers[-1].step)
    return AveragedMemory(event, parts, parameter, makers[0], changed[0]) if changed else None


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general``, a finding about a tensor kept without a copy, if this rule
    has one on the same line; else None.
    """
    return next((finding for finding in find(story) if finding.span == general.span), None)


def _finding(story: Story, found: AveragedMemory) -> Finding:
    step, count = found.kept.step, len(found.parts)
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.event.step))
    then, name = at_line(story, story.span(found.changed)), called(story, found.parameter, None, found.event.step)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} keeps the weights themselves, not a copy: the {count} states that {there.en} "
            f"averages are one memory, that of {name.en}, and the average is its last value.",
            zh=f"{here.zh}留下的是权重本身，而不是副本：{there.zh}对 {count} 份状态求平均，而它们是同一块内存，"
            f"即 {name.zh} 的内存，平均值就是它最后的值。",
        ),
        T(
            en=f"`state_dict()` and `.data` give new tensors on the model's own memory. {capital(then.en)} writes that "
            f"memory, so all {count} hold what was trained last: what is averaged is one tensor with itself.",
            zh=f"`state_dict()` 和 `.data` 给出的是模型自己内存上的新张量。{then.zh}写入这块内存，所以 {count} 份里"
            "都是最后训练的结果：求平均的是同一个张量与它自己。",
        ),
        related=[
            story.related(
                "changed", found.changed, T(en="the same memory is written here", zh="同一块内存在这里被写入")
            ),
            story.related("used", found.event.step, T(en="averaged here", zh="在这里求平均")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("states", count, story.by(step)), Fact("parameter", found.parameter, story.by(step))],
    )


def _fixes(story: Story, found: AveragedMemory) -> tuple[Fix, ...]:
    """Fixes that keep copies; empty if the program does not show what is kept."""
    program = story.program
    node = program.at(story.span(found.kept.step)) if program.tree is not None else None
    if isinstance(node, ast.Call) and method(node) == "state_dict":
        return copies_of_state(program, node)
    if isinstance(node, ast.Attribute | ast.Call):
        new = f"{program.segment(node)}.clone()"
        title = T(en=f"Keep a copy: `{new}`", zh=f"保留副本：`{new}`")
        return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])
    return ()


RULE = Rule(
    code="PL737",
    name="average-of-one-memory",
    severity="warning",
    title=T(en="The averaged states are one memory", zh="被平均的各份状态是同一块内存"),
    what=T(
        en="A program trains one model several times, keeps its weights each time, and averages them (clients of "
        "federated learning, checkpoints, the members of a soup). It kept references: all of them show the weights of "
        "the last training, and so does the average. Keep copies: `copy.deepcopy(model.state_dict())`.",
        zh="程序多次训练同一个模型，每次留下它的权重，再求平均（联邦学习的客户端、检查点、模型汤）。但留下的是引用："
        "它们都是最后一次训练的权重，平均值也是。请保留副本：`copy.deepcopy(model.state_dict())`。",
    ),
    why=T(
        en="`state_dict()` makes a new dictionary, but its tensors are new objects on the *same memory* as the "
        "parameters. Optimizers and `load_state_dict` write into this memory. A sum of five such tensors with weights "
        "that add up to 1 is the tensor itself, without an error and with all shapes right.",
        zh="`state_dict()` 会新建一个字典，但其中的张量是与参数*同一块内存*上的新对象。优化器和 `load_state_dict` "
        "写入的正是这块内存。五个这样的张量按总和为 1 的权重相加，得到的就是它本身；没有错误，形状也都对。",
    ),
    bad="""import copy

import torch

torch.manual_seed(0)
model, states = torch.nn.Linear(2, 1), []
start = copy.deepcopy(model.state_dict())
for target in (1.0, -1.0):
    model.load_state_dict(start)  # changed
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        opt.zero_grad()
        (model(torch.ones(2)) - target).square().sum().backward()
        opt.step()
    states.append(model.state_dict())  # PL737
average = {name: sum(state[name] for state in states) / 2 for name in start}  # used
print(average["bias"])
""",
    good="""import copy

import torch

torch.manual_seed(0)
model, states = torch.nn.Linear(2, 1), []
start = copy.deepcopy(model.state_dict())
for target in (1.0, -1.0):
    model.load_state_dict(start)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        opt.zero_grad()
        (model(torch.ones(2)) - target).square().sum().backward()
        opt.step()
    states.append(copy.deepcopy(model.state_dict()))
average = {name: sum(state[name] for state in states) / 2 for name in start}
print(average["bias"])
""",
    find=find,
    refines=("PL702",),
    refine=refine,
    traps=(
        Trap(
            "states.append(model.state_dict())",
            "states.append(dict(model.state_dict()))",
            T(
                en="A new dictionary of the same tensors: their memory is still that of the model.",
                zh="只是同样张量的新字典：它们的内存仍是模型的内存。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.state_dict",),
)
