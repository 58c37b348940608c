"""PL714: two modules should have weights of their own, and share the storage of one: the copy learns along."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.trace import Event, T

FURTHER = 120


@dataclass(frozen=True, slots=True)
class ParametersSharedByCopy:
    """``copy`` is the label of a parameter that was to have weights of its own, and shares the storage of the trained
    parameter labelled ``own``; ``made`` is the call (``Event``) that made them share it.

    ``update`` is the step of a later update of that storage, and ``use`` the call that reads the copy after it.
    """

    own: str
    copy: str
    made: Event
    update: int
    use: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line by which a parameter that nothing trains came to share the storage of a trained
    one, if it is used after an update and compared with something trained.
    """
    held = {label for made in story.trace.optimizers for label in made.holds}
    reported = set()
    for own in sorted(held & set(lives(story))) if held else ():
        for found in _shared(story, own, held):
            place = story.span(found.made.step)
            if place not in reported:
                reported.add(place)
                yield _finding(story, found)


def _shared(story: Story, own: str, held: set[str]) -> Iterator[ParametersSharedByCopy]:
    mine = story.tensor(own) or {}
    for label, record in story.tensors_on(mine.get("storage")):
        if label in held or record.get("kind") != "parameter" or label in lives(story) or not same_piece(record, mine):
            continue  # a parameter that learns too is tied on purpose
        shared = max(
            (step for step, storage in story.history("tensors", label, "storage") if storage == mine.get("storage")),
            default=-1,
        )
        if any(use.writes and use.step > shared for use in story.uses(label)):
            continue  # an average that is moved towards the other one: another rule says so
        uses = [use for use in story.uses(label) if use.results and not use.writes and use.error is None]
        updates = [m.step for m in lives(story)[own] if m.kind == "used"]
        for use in uses:
            update = next((step for step in updates if step < use.step), None)
            if update is not None and _compared(story, use) and (made := _made(story, own, uses[0].step)) is not None:
                yield ParametersSharedByCopy(own, label, made, update, use)
                break


def _made(story: Story, own: str, until: int) -> Event | None:
    """The call by which the two came to share a storage: the last ``detach()`` or ``.data`` of the trained parameter
    before the step ``until``; None if there is none.
    """
    looks = [e for e in story.uses(own) if e.name in ("detach", "data") and e.step < until]
    return looks[-1] if looks else None


def _compared(story: Story, use: Event) -> bool:
    """Whether the copy's result, which requires no grad, is combined soon after with something that
    requires grad, as a target is.
    """
    reached = set(use.results)
    if any((story.tensor(label, use.step) or {}).get("requires_grad") for label in reached):
        return False
    for event in story.events[use.step + 1 : use.step + FURTHER]:
        if event.kind != "call" or not any(o.label in reached for o in event.operands):
            continue
        for result in event.results:
            if (story.tensor(result, event.step) or {}).get("requires_grad"):
                return True
            reached.add(result)
    return False


def _finding(story: Story, found: ParametersSharedByCopy) -> Finding:
    span = story.span(found.made.step)
    own, copy = called(story, found.own, None, found.made.step), called(story, found.copy, None, found.use.step)
    here, then, there = (at_line(story, story.span(step)) for step in (found.made.step, found.update, found.use.step))
    name = T(en=story.name(found.copy, found.use.step) or copy.en, zh=story.name(found.copy, found.use.step) or copy.zh)
    node = story.program.at(span)
    said = (
        story.program.segment(node.value)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        else ""
    )
    if said and f"`{said}`" != own.en:  # what the line calls it, and what it is
        own = T(en=f"`{said}` ({own.en})", zh=f"`{said}`（{own.zh}）")
    return RULE.finding(
        span,
        found.made.step,
        T(
            en=f"{capital(here.en)} gives `{name.en}` the memory of {own.en} itself, so every update on "
            f"{then.en} changes both.",
            zh=f"{here.zh}把 {own.zh} 的内存交给了 `{name.zh}`，所以{then.zh}的每次更新都同时改变两者。",
        ),
        T(
            en=f"They are two parameters that look at one memory. What {there.en} computes with the copy is "
            "to stay as it was for a while, as the values of a target network do; here it moves along with "
            "what is compared with it.",
            zh=f"它们是看着同一块内存的两个参数。{there.zh}用副本算出的东西本应在一段时间里保持不变（例如目标网络的"
            "值），这里却与被比较的一方一起变动。",
        ),
        related=[
            story.related(
                "alias", found.made.step, T(en="from here on both have one memory", zh="从这里起两者共用一块内存")
            ),
            story.related("changed", found.update, T(en="the memory is updated here", zh="这块内存在这里被更新")),
            story.related(
                "used", found.use.step, T(en="the copy is used here, changed too", zh="副本在这里被使用，它也已改变")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("own", found.own, story.by(found.made.step)), Fact("copy", found.copy, story.by(found.use.step))],
    )


def _fixes(story: Story, found: ParametersSharedByCopy) -> tuple[Fix, ...]:
    program, fixes = story.program, []
    statement = program.statement_at(story.span(found.made.step)) if program.tree is not None else None
    for node in ast.walk(statement) if statement is not None else ():
        keyword = next((k for k in node.keywords if k.arg == "assign"), None) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and keyword is not None:
            given = [
                *map(program.segment, node.args),
                *(f"{k.arg}={program.segment(k.value)}" for k in node.keywords if k is not keyword),
            ]
            new = f"{program.segment(node.func)}({', '.join(given)})"
            title = T(en=f"Copy the numbers and keep the memory: `{new}`", zh=f"复制数值，保留各自的内存：`{new}`")
            fixes.append(Fix(title, program.replace((node, new)), meaning="later"))
    look = program.at(story.span(found.made.step)) if program.tree is not None else None
    if isinstance(look, ast.Attribute | ast.Call) and found.made.name in ("data", "detach") and not fixes:
        new = f"{program.segment(look)}.clone()"
        fixes.append(
            Fix(T(en=f"Keep a copy: `{new}`", zh=f"保留副本：`{new}`"), program.replace((look, new)), meaning="later")
        )
    return unique(program.text, fixes)


RULE = Rule(
    code="PL714",
    name="parameters-shared-by-copy",
    severity="warning",
    title=T(
        en="A copy of a network shares its weights' memory, and learns along",
        zh="网络的副本共用权重的内存，跟着一起改变",
    ),
    what=T(
        en="A program makes a second network that is to keep the weights of a moment, and gives it the weights "
        "themselves and not their numbers. Each update of the first then changes the second. Copy the numbers: "
        "`load_state_dict(…)` without `assign=True`, `copy.deepcopy`.",
        zh="程序想让第二个网络保留某一刻的权重，却把权重本身而不是其中的数交给了它。于是第一个网络的每次更新都会改变第"
        "二个。请复制数值：不带 `assign=True` 的 `load_state_dict(…)`，或 `copy.deepcopy`。",
    ),
    why=T(
        en="`state_dict()` returns tensors that look at the model's own memory. `load_state_dict` copies their "
        "numbers into the parameters that are there; with `assign=True` it makes parameters of the given tensors, on "
        "the same memory, which saves a copy when a file was loaded. Assigning `.data` does so too. An optimizer "
        "writes in place, so both networks have the new weights.",
        zh="`state_dict()` 返回的张量看着模型自己的内存。`load_state_dict` 把它们的数复制到已有的参数里；用 "
        "`assign=True` 时，则直接用给出的张量（同一块内存）作为参数，这在载入文件时可以省去一次复制。给 `.data` 赋值也"
        "是如此。优化器就地写入，于是两个网络都得到新的权重。",
    ),
    advice=T(
        en="copy the numbers on {alias}: `load_state_dict(…)` without `assign=True`, or `copy.deepcopy(…)`.",
        zh="在{alias}复制数值：不带 `assign=True` 的 `load_state_dict(…)`，或 `copy.deepcopy(…)`。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
online, target = nn.Linear(2, 1), nn.Linear(2, 1)
target.load_state_dict(online.state_dict(), assign=True)  # PL714 alias
opt = torch.optim.SGD(online.parameters(), lr=0.1)
x = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
for _ in range(2):
    with torch.no_grad():
        goal = 1 + 0.5 * target(x)  # used
    loss = (online(x) - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # changed
print((target.weight - online.weight).abs().sum())
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
online, target = nn.Linear(2, 1), nn.Linear(2, 1)
target.load_state_dict(online.state_dict())
opt = torch.optim.SGD(online.parameters(), lr=0.1)
x = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
for _ in range(2):
    with torch.no_grad():
        goal = 1 + 0.5 * target(x)
    loss = (online(x) - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print((target.weight - online.weight).abs().sum())
""",
    find=find,
    traps=(
        Trap(
            "online.state_dict(), assign=True",
            "dict(online.state_dict()), assign=True",
            T(en="A new dictionary holds the same tensors.", zh="新的字典里仍是同样的张量。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
