"""PL710: the weights of one model were copied to another, or averaged with it, and both have the same storage: they
were never separate.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name, receiver
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.rules.signals.kept_weights import restored
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.trace import Event, Span, T

NEAR = 1e-6
APART = 4
"""The largest number of steps from one copy in a loop to the next."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that copied trained parameters onto themselves (``copy_``), or averaged them with
    themselves (``lerp_``, ``add_``).

    Only after a step of an optimizer. Nothing where saved weights are restored, or among copies of one load or loop
    that changed other tensors.
    """
    reported = set()
    kept = {story.span(found.load.step) for found in restored(story)}  # another rule says where they were kept
    parts = _parts(story)
    for event in story.calls("copy_", "lerp_", "add_"):
        labels = [o.label for o in event.operands[:2]]
        if (
            event.error is not None
            or len(labels) < 2
            or None in labels
            or (event.name == "add_" and not _averages(story, event))
        ):
            continue
        if story.span(event.step) in kept or event.step in parts:
            continue
        target, source = (story.tensor(label, event.step - 1) or story.tensor(label, event.step) for label in labels)
        storage, place = (target or {}).get("storage"), story.span(event.step)
        if not same_piece(target, source) or place in reported or target is None or source is None or place is None:
            continue
        trained = any(r.get("is_leaf") and r.get("requires_grad") for _, r in story.tensors_on(storage))
        alive = (
            source.get("kind") == "parameter" and target.get("kind") == "parameter"
        )  # no snapshot: the weights themselves, by two names
        since = story.writes(str(storage), source.get("born") or 0, event.step)
        fresh = labels[0] == labels[1] or alive or not since
        born = min((r.get("born") or 0 for _, r in story.tensors_on(storage)), default=0)
        updates = [update.step for update in story.trace.optimizer_steps if born < update.step < event.step]
        if trained and fresh and updates:
            reported.add(place)
            yield _finding(story, event, updates[0])


def _parts(story: Story) -> set[int]:
    """Return the steps of the ``copy_`` calls that closely follow each other on one line (one load, or the iterations
    of a loop), if at least one of them is not of a tensor onto itself.
    """
    groups: dict[Span | None, list[list[Event]]] = defaultdict(list)
    for event in story.calls("copy_"):
        runs = groups[story.span(event.step)]
        if runs and event.step - runs[-1][-1].step <= APART:
            runs[-1].append(event)
        else:
            runs.append([event])
    found = set[int]()
    for run in (run for runs in groups.values() for run in runs if len(run) > 1):
        if not all(
            same_piece(*(story.tensor(o.label, e.step) for o in e.operands[:2])) for e in run if len(e.operands) > 1
        ):
            found |= {event.step for event in run}
    return found


def _averages(story: Story, event: Event) -> bool:
    """Whether the call is the second half of a moving average, ``t.mul_(m).add_(s, alpha=1 - m)``,
    with weights that add up to 1.
    """
    before = story.event(event.step - 1)
    if before is None or before.name != "mul_" or not set(before.writes) & set(event.writes):
        return False
    factor = next((o.text for o in before.operands[1:2]), "")
    part = next((o.text for o in event.operands[2:] if o.name in ("alpha", "")), "")
    try:
        return abs(float(factor) + float(part) - 1) < NEAR and 0 < float(part) < 1
    except ValueError:
        return False


def _finding(story: Story, copy: Event, update: int) -> Finding:
    program, span = story.program, story.span(copy.step)
    shared = _shared(story, copy)
    bound = _bound(program, program.statement_at(span)) if shared is None else None
    place = program.place(bound) if bound is not None else story.span(shared.step) if shared is not None else span
    here, there = at_line(story, span), at_line(story, place)
    what = called(story, copy.operands[0].label, None, copy.step)
    code = statement_text(story, span)
    name = program.segment(bound.value) if bound is not None else ""
    twice = T(
        en=f" {capital(there.en)} gives `{name}` a second name and makes no second model." if bound is not None else "",
        zh=f"{there.zh}只是给 `{name}` 起了第二个名字，并没有创建第二个模型。" if bound is not None else "",
    )
    if shared is not None:
        twice = T(
            en=f" {capital(there.en)} made two parameters one memory.", zh=f"{there.zh}使两个参数成为同一块内存。"
        )
    if copy.name == "add_":
        return _averaged(story, copy, update, place, shared)
    did, nothing, ends = (
        (
            T(en=f"averages {what.en} with itself", zh=f"把 {what.zh} 与它自己求平均"),
            T(
                en=f"Both operands of `{code}` are the same memory.{twice.en} Each update changes both, and the "
                "average changes nothing.",
                zh=f"`{code}` 的两个操作数是同一块内存。{twice.zh}每次更新同时改变两者，而求平均什么也不改变。",
            ),
            T(en="averaged with itself here", zh="在这里与自己求平均"),
        )
        if copy.name == "lerp_"
        else (
            T(en=f"copies {what.en} onto itself", zh=f"把 {what.zh} 复制到它自己身上"),
            T(
                en=f"Source and target of `{code}` are the same memory.{twice.en} Each update changes both, and "
                "copying changes nothing.",
                zh=f"`{code}` 的来源和目标是同一块内存。{twice.zh}每次更新同时改变两者，而复制什么也不改变。",
            ),
            T(en="copied onto itself here", zh="在这里复制到它自己身上"),
        )
    )
    return RULE.finding(
        place,
        update,
        T(
            en=f"{capital(here.en)} {did.en}: both are one memory, so what was to stay or lag behind moves along.",
            zh=f"{here.zh}{did.zh}：两者其实是同一块内存，本应不变或滞后的总是跟着一起动。",
        ),
        nothing,
        related=[
            *([Related("alias", place, None, T(en="a second name", zh="第二个名字"))] if bound is not None else []),
            story.related(
                "changed", update, T(en="training changes the one model here", zh="训练在这里改变这同一个模型")
            ),
            story.related("copied", copy.step, ends),
        ],
        fixes=_fixes(program, bound),
        facts=[Fact("tensor", copy.operands[0].label, story.by(copy.step))],
    )


def _averaged(story: Story, copy: Event, update: int, place: Span | None, shared: Event | None) -> Finding:
    here, there = at_line(story, story.span(copy.step)), at_line(story, place)
    what = called(story, copy.operands[0].label, None, copy.step)
    cause = T(
        en=f"{capital(there.en)} made the two one memory: assigning `.data` shares the memory itself."
        if shared is not None
        else "Both names lead to one memory.",
        zh=f"{there.zh}使两者成为同一块内存：对 `.data` 赋值交出的是内存本身。"
        if shared is not None
        else "两个名字通向同一块内存。",
    )
    return RULE.finding(
        place,
        update,
        T(
            en=f"{capital(here.en)} averages {what.en} with itself: the average and the model are one memory, so "
            "nothing lags behind.",
            zh=f"{here.zh}把 {what.zh} 与它自己求平均：平均值和模型是同一块内存，什么都没有滞后。",
        ),
        T(
            en=f"{cause.en} `mul_` then shrinks the model's own weights, and `add_` adds a part of what "
            "has just been shrunk.",
            zh=f"{cause.zh}于是 `mul_` 缩小的是模型自己的权重，`add_` 再加上刚刚缩小后的一部分。",
        ),
        related=[
            *[
                story.related("alias", s.step, T(en="the memory is handed on", zh="内存在这里被交出"))
                for s in (shared,)
                if s is not None
            ],
            story.related(
                "changed", update, T(en="training changes the one memory here", zh="训练在这里改变这同一块内存")
            ),
            story.related("copied", copy.step, T(en="averaged with itself here", zh="在这里与自己求平均")),
        ],
        fixes=_data_fixes(story, shared),
        facts=[Fact("tensor", copy.operands[0].label, story.by(copy.step))],
    )


def _shared(story: Story, copy: Event) -> Event | None:
    """Return the first assignment ``t.data = s.data`` to one of the copy's two operands before it.

    None if there is none, or if both operands are one tensor.
    """
    labels = {o.label for o in copy.operands[:2]}
    sets = (
        e
        for e in story.calls("data")
        if e.op.endswith("__set__") and e.step < copy.step and e.operands[0].label in labels
    )
    return next(sets, None) if len(labels) > 1 else None


def _data_fixes(story: Story, shared: Event | None) -> tuple[Fix, ...]:
    statement = story.program.statement_at(story.span(shared.step)) if shared is not None else None
    if not isinstance(statement, ast.Assign):
        return ()
    value = story.program.segment(statement.value)
    title = T(en=f"Give it memory of its own: `{value}.clone()`", zh=f"让它有自己的内存：`{value}.clone()`")
    return unique(
        story.program.text, [Fix(title, story.program.replace((statement.value, f"{value}.clone()")), meaning="later")]
    )


def _bound(program: Program, statement: ast.stmt | None) -> ast.Assign | None:
    """Return the first assignment ``a = b`` of two variables or attributes, one of which ``statement`` also contains,
    compared by the last component of the name; None if there is none.

    After such an assignment ``a.load_state_dict(b.state_dict())`` copies a module onto itself.
    """
    names = {program.segment(n) for n in ast.walk(statement) if is_name(n)} if statement is not None else set()
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)] if statement is not None else []
    names |= {program.segment(r) for call in calls if (r := receiver(call)) is not None and is_name(r)}
    for node in program.nodes:
        if isinstance(node, ast.Assign) and is_name(node.value) and is_name(node.targets[0]):
            ends = {program.segment(node.targets[0]).rpartition(".")[2], program.segment(node.value).rpartition(".")[2]}
            if ends & {name.rpartition(".")[2] for name in names}:
                return node
    return None


def _fixes(program: Program, bound: ast.Assign | None) -> tuple[Fix, ...]:
    """At most one fix: it makes a second model with the same weights, by ``copy.deepcopy``; empty if ``bound`` is
    None.
    """
    if bound is None or program.tree is None:
        return ()
    value = program.segment(bound.value)
    title = T(en=f"Make a second model: `copy.deepcopy({value})`", zh=f"创建第二个模型：`copy.deepcopy({value})`")
    imported = any(isinstance(n, ast.Import) and any(a.name == "copy" for a in n.names) for n in program.nodes)
    edits = program.replace((bound.value, f"copy.deepcopy({value})"))
    first = next((n for n in program.tree.body if isinstance(n, ast.Import | ast.ImportFrom)), None)
    if not imported and first is not None:
        together = merge(program.insert_before(first, "import copy"), edits)
        return unique(program.text, [Fix(title, together, meaning="later")] if together else [])
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL710",
    name="copied-onto-itself",
    severity="warning",
    title=T(
        en="A model's weights were copied onto themselves, or averaged with themselves",
        zh="模型的权重被复制到它自己身上，或与自己求平均",
    ),
    what=T(
        en="A program keeps a second model that should lag behind the first one (a target network, an average, a "
        "teacher), but only gave the first one another name, or the same memory. There is only one set of weights, so "
        "both always have the same ones. Make a second model: `target = copy.deepcopy(online)`.",
        zh="程序想保留第二个模型，让它滞后于第一个（目标网络、平均模型、教师），却只是给第一个模型起了另一个名字，或让"
        "两者使用同一块内存。实际上只有一份权重，两者始终相同。请创建第二个模型：`target = copy.deepcopy(online)`。",
    ),
    why=T(
        en="`target = online` copies nothing: it makes a second name for one module. Its parameters are the same "
        "objects, an optimizer that steps one steps the other, and `target.load_state_dict(online.state_dict())` "
        "writes every number into the place where it is already. `copy.deepcopy` makes new modules with memory of "
        "their own; `load_state_dict` then copies between two memories.",
        zh="`target = online` 不复制任何东西：只是给同一个模块起了第二个名字。它们的参数是同样的对象，优化器更新一个就"
        "是更新另一个，`target.load_state_dict(online.state_dict())` 把每个数写回原处。`copy.deepcopy` 会创建拥有自己"
        "内存的新模块；之后 `load_state_dict` 才是在两块内存之间复制。",
    ),
    advice=T(
        en="keep a second one with `copy.deepcopy(…)`, so that {line} works on two memories and not on one.",
        zh="用 `copy.deepcopy(…)` 另外保存一份，这样{line}用的是两块内存，而不是同一块。",
    ),
    bad="""import copy

import torch

torch.manual_seed(0)
online = torch.nn.Linear(2, 1)
target = online  # PL710 alias
opt = torch.optim.SGD(online.parameters(), lr=0.1)
x = torch.ones(2)
for _ in range(2):
    with torch.no_grad():
        wanted = 1 + 0.9 * target(x)
    loss = (online(x) - wanted).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
target.load_state_dict(online.state_dict())  # copied
print(loss.item())
""",
    good="""import copy

import torch

torch.manual_seed(0)
online = torch.nn.Linear(2, 1)
target = copy.deepcopy(online)
opt = torch.optim.SGD(online.parameters(), lr=0.1)
x = torch.ones(2)
for _ in range(2):
    with torch.no_grad():
        wanted = 1 + 0.9 * target(x)
    loss = (online(x) - wanted).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
target.load_state_dict(online.state_dict())
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "target = online",
            "target = online.eval()",
            T(
                en="`eval()` returns the module itself.",
                zh="`eval()` 返回的就是模块本身。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict",),
)
