"""PL744: a slowly following copy of a network is averaged into a dictionary or list that is never loaded back."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SUMS = spellings("add", "lerp", "sub")
PARTS = SUMS | spellings("div", "mul") | {"clone", "data", "detach", "float", "to"}
"""Calls that may lie between a weight and the sum that averages it."""
DEEP = 8
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Unloaded:
    """A moving average of a parameter that nothing reads.

    ``events`` are the calls (``Event``) that computed it, one in each iteration. Each averages the parameter labelled
    ``still``, which is not written from the first of them on, with the parameter labelled ``moving``, which an
    optimizer trains. ``call`` is the first call that computed with the parameter ``still`` between the first and the
    last of ``events``.
    """

    events: list[Event]
    still: str
    moving: str
    call: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that averages the parameters of two networks, one trained and one not, into
    tensors that no call reads.

    Only where the untrained parameter is used between the first and the last average, and the average is neither
    assigned to a plain variable nor written in place.
    """
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    trained = {(story.tensor(label) or {}).get("storage") for label in held}
    parameters = {
        record.get("storage"): label for label, record in story.tensors.items() if record.get("kind") == "parameter"
    }
    places: dict[object, dict[tuple[str, str], list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in story.calls(*SUMS) if held else ():
        if len(event.results) == 1 and not event.writes and event.error is None and _is_kept(story, event):
            storages = _sources(story, event, set(parameters))
            still, moving = storages - trained, storages & trained
            if len(still) == len(moving) == 1:
                pair = (parameters[min(still)], parameters[min(moving)])
                places[story.span(event.step)][pair].append(event)
    for pairs in places.values():
        for (one, other), events in pairs.items():
            call = _used_between(story, one, other, events)
            if call is not None and not any(_is_read(story, event) for event in events):
                yield _finding(story, Unloaded(events, one, other, call))
                break


def _sources(story: Story, event: Event, parameters: set[object]) -> set[str]:
    """Return the storages of the parameters of which the call's result is a weighted sum; empty if another tensor with
    dimensions is in the sum.
    """
    found, pending = set[str](), [(event, 0)]
    while pending:
        here, depth = pending.pop()
        for operand in here.operands:
            if operand.label is None:
                continue
            record = story.tensor(operand.label, here.step) or {}
            if record.get("storage") in parameters:
                found.add(str(record["storage"]))
                continue
            made = story.event(record.get("born"))
            if made is None or made.name not in PARTS or operand.label not in made.results or depth > DEEP:
                if (record.get("shape") or []) != []:
                    return set()  # a tensor that is no parameter, and no share of one
                continue
            pending.append((made, depth + 1))
    return found


def _is_read(story: Story, event: Event) -> bool:
    """Whether a call reads the result, or writes it in place; the calls of :data:`PARTS` do not count, but their
    results are followed.
    """
    pending, seen = list(event.results), set(event.results)
    while pending:
        for use in story.uses(pending.pop()):
            if use.name not in PARTS or use.writes or use.op.endswith("__set__"):
                return True
            pending += [label for label in use.results if label not in seen]
            seen.update(use.results)
    return False


def _is_kept(story: Story, event: Event) -> bool:
    """Whether the statement stores the sum without assigning it to a plain variable, and no larger expression of the
    statement computes with it.
    """
    node = story.program.at(story.span(event.step)) if story.program.tree is not None else None
    statement = story.program.statement(node)
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return):
        return False
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    plain = isinstance(target, ast.Name) and getattr(statement, "value", None) is node
    above = story.program.ancestors(node) if node is not None else ()
    around = {story.program.place(each) for each in above if isinstance(each, ast.expr)}
    inner = any(story.span(use.step) in around for use in story.uses(event.results[0]))
    return node is not None and not plain and not inner


def _used_between(story: Story, still: str, moving: str, events: list[Event]) -> Event | None:
    """Return the first call that computes with the parameter ``still`` after the first average and before the last;
    None if there is none, if ``still`` is written from the first average on, or if ``moving`` is not.
    """
    first, last = events[0].step, events[-1].step
    storages = [str((story.tensor(label) or {}).get("storage")) for label in (still, moving)]
    if len(events) < ROUNDS or story.writes(storages[0], first, len(story.events)):
        return None
    if not story.writes(storages[1], first, last) or story.history("tensors", still, "storage")[1:]:
        return None
    return next((use for use in story.uses(still) if first < use.step < last and use.name not in PARTS), None)


def _finding(story: Story, found: Unloaded) -> Finding:
    first = found.events[0]
    span = story.span(first.step)
    here, there = at_line(story, span), at_line(story, story.span(found.call.step))
    still, moving = (called(story, label, None, first.step) for label in (found.still, found.moving))
    count = len(found.events)
    return RULE.finding(
        span,
        first.step,
        T(
            en=f"{capital(here.en)} averages {moving.en} into a new tensor that nothing reads, {count} times so far: "
            f"{still.en}, which {there.en} uses, never changes.",
            zh=f"{here.zh}把 {moving.zh} 平均进一个没有谁读取的新张量，到目前为止 {count} 次：{there.zh}使用的 "
            f"{still.zh} 从不改变。",
        ),
        T(
            en="`state_dict()` and `named_parameters()` give a dictionary or a sequence of the network's tensors. An "
            "assignment to an entry puts another tensor into that dictionary; the network keeps its own. Write into "
            "the tensor (`entry.copy_(new)`), or give the dictionary back with `load_state_dict`.",
            zh="`state_dict()` 和 `named_parameters()` 给出的是装着网络张量的字典或序列。对其中一项赋值，只是把另一个"
            "张量放进这个字典；网络仍保留自己的张量。请写入张量本身（`entry.copy_(new)`），或用 `load_state_dict` 把"
            "字典交还给网络。",
        ),
        related=[
            story.related(
                "used",
                found.call.step,
                T(en="the copy is used here, as it was at first", zh="这里使用的副本仍是最初的"),
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("rounds", count), Fact("still", found.still)],
    )


def _fixes(story: Story, found: Unloaded) -> tuple[Fix, ...]:
    """Fixes that load the dictionary after it was filled, or that write into the entry which the statement replaces.

    Empty if the program shows neither the dictionary's network nor an entry that is replaced.
    """
    program, fixes = story.program, list[Fix]()
    statement = program.statement_at(story.span(found.events[0].step))
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not program.stands_alone(statement):
        return ()
    target, state = statement.targets[0], _state(story, found)
    kept = target.value if isinstance(target, ast.Subscript) else target
    if isinstance(state, ast.Call) and isinstance(state.func, ast.Attribute) and isinstance(kept, ast.Name):
        owner = program.segment(state.func.value)
        made = program.statement(state)
        direct = isinstance(made, ast.Assign) and made.value is state and program.segment(made.targets[0]) == kept.id
        if direct or made is statement or target is kept:
            load = f"{owner}.load_state_dict({kept.id})"
            place: ast.stmt = statement
            for outer in program.ancestors(statement) if target is not kept else ():
                if isinstance(outer, ast.For) and made not in set(ast.walk(outer)):
                    place = outer
                elif not isinstance(outer, ast.With | ast.If):
                    break
            title = T(en=f"Load it into the network: `{load}`", zh=f"把它载入网络：`{load}`")
            fixes.append(Fix(title, program.insert_after(place, load), meaning="later"))
    if isinstance(target, ast.Subscript):
        new = f"{program.segment(target)}.copy_({program.segment(statement.value)})"
        title = T(en=f"Write into the tensor itself: `{new}`", zh=f"写入张量本身：`{new}`")
        fixes.append(Fix(title, program.replace((statement, new)), meaning="later"))
    return unique(program.text, fixes)


def _state(story: Story, found: Unloaded) -> ast.AST | None:
    """Return the ``state_dict()`` call of the program that made the dictionary of the parameter ``found.still``; None
    if the last ``detach`` of the parameter before the first average was not in such a call.
    """
    for use in reversed([use for use in story.uses(found.still) if use.step < found.events[0].step]):
        node = story.program.at(story.span(use.step))
        if use.name == "detach" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node if node.func.attr == "state_dict" else None
    return None


RULE = Rule(
    code="PL744",
    name="average-never-loaded",
    severity="warning",
    title=T(en="The average for a following copy is never loaded into it", zh="为跟随副本算出的平均值从未载入其中"),
    what=T(
        en="A program keeps a copy of its network that should follow it slowly, and puts the new averages into a "
        "dictionary of the copy's weights. Only the dictionary changes, and the copy stays as it was at first. "
        "Load the dictionary: `copy.load_state_dict(state)`.",
        zh="程序保留网络的一个副本，让它慢慢跟随，并把新的平均值放进装着副本权重的字典。改变的只是字典，副本仍和最初"
        "一样。请载入这个字典：`copy.load_state_dict(state)`。",
    ),
    why=T(
        en="`state_dict()` returns a new dictionary whose entries are the tensors of the module, on the same memory. "
        "`state[key].mul_(0.9)` writes into that memory, and so into the module. `state[key] = average` binds the "
        "entry to another tensor, as every assignment does; the module does not see its dictionary again until "
        "`load_state_dict` copies the values back.",
        zh="`state_dict()` 返回一个新的字典，其中各项是模块的张量，用的是同一块内存。`state[key].mul_(0.9)` 写入这块内"
        "存，也就写入了模块。`state[key] = average` 则和任何赋值一样，让这一项指向另一个张量；在 `load_state_dict` 把"
        "值复制回去之前，模块不会再看到这个字典。",
    ),
    bad="""import copy

import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
slow = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, reward = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    with torch.no_grad():
        goal = reward + 0.9 * slow(x)  # used
    loss = (net(x) - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    state, new = slow.state_dict(), net.state_dict()
    for key in state:
        state[key] = 0.9 * state[key] + 0.1 * new[key]  # PL744
    print(slow.weight)
""",
    good="""import copy

import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
slow = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, reward = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    with torch.no_grad():
        goal = reward + 0.9 * slow(x)
    loss = (net(x) - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    state, new = slow.state_dict(), net.state_dict()
    for key in state:
        state[key].copy_(0.9 * state[key] + 0.1 * new[key])
    print(slow.weight)
""",
    find=find,
    traps=(
        Trap(
            "0.9 * state[key] + 0.1 * new[key]",
            "0.1 * state[key] + 0.9 * new[key]",
            T(
                en="A larger share does not help where nothing arrives.",
                zh="什么都没有到达时，份额再大也没有用。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.copy_.html",
    ),
)
