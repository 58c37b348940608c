"""PL731: names are passed on from round to round, the tensor that the last one gives is written again and again, and so
they all become one tensor.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, groupby

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import flat_targets, is_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.operand_names import all_written_as
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.trace import Event, T

FEWEST = 4
"""The rounds that have to be known."""
PAIR = 2


@dataclass(frozen=True, slots=True)
class OneFromTwo:
    """``statement`` reads the tensors named ``names`` in each round of ``loop``, and from round ``rounds`` (from 1) on
    both names are one tensor; ``read`` is the first call (``Event``) that read that tensor then.

    ``written`` is the step of the tensor's last write in the loop, ``passed`` the assignment in the loop that gives the
    tensor one of the two names, and ``source`` the name that the tensor had before.
    """

    loop: ast.For | ast.While
    statement: ast.stmt
    names: tuple[str, str]
    rounds: int
    read: Event
    written: int
    passed: ast.Assign
    source: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each loop in which a statement reads two tensors that differed in its first rounds (at most
    ``FEWEST``) and are one tensor in the following rounds, after an assignment in the loop gave one of their names to a
    tensor which the loop writes in place.

    At least ``FEWEST`` rounds must be known. Where the loop begins again, the two may differ again in its first rounds.
    """
    program = story.program
    for loop in program.nodes:
        if not isinstance(loop, ast.For | ast.While):
            continue
        passed = list(_passed_on(program, loop))
        statements = [node for node in ast.walk(loop) if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr)]
        found = (_became_one(story, loop, each, passed) for each in statements if passed)
        first = next((each for each in found if each is not None), None)
        if first is not None:
            yield _finding(story, first)


def _passed_on(program: Program, loop: ast.For | ast.While) -> Iterator[tuple[ast.Assign, str, str]]:
    """Yield an assignment in the loop, a name that it assigns, and the name that it assigns from, which no statement of
    the loop assigns, for each such pair of names.
    """
    assignments = [node for node in ast.walk(loop) if isinstance(node, ast.Assign)]
    given = {program.segment(t) for node in assignments for target in node.targets for t in flat_targets(target)}
    for node in assignments:
        targets, values = (
            list(side.elts) if isinstance(side, ast.Tuple) else [side] for side in (node.targets[0], node.value)
        )
        for target, value in zip(targets, values, strict=False) if len(targets) == len(values) else ():
            if is_name(target) and is_name(value) and program.segment(value) not in given:
                yield node, program.segment(target), program.segment(value)


def _became_one(
    story: Story, loop: ast.For | ast.While, statement: ast.stmt, passed: list[tuple[ast.Assign, str, str]]
) -> OneFromTwo | None:
    reads = _reads(story, statement)
    for one, other in combinations(reads, PAIR):
        mine, others = reads[one], reads[other]
        n = len(mine)
        if n < FEWEST or len(others) != n or not any(target in (one, other) for _, target, _ in passed):
            continue
        same = [
            same_piece(story.tensor(a, event.step), story.tensor(b, at.step))
            for (event, a), (at, b) in zip(mine, others, strict=True)
        ]
        start = same.index(True) if True in same else n
        if n - start < PAIR or not _is_kept(same):
            continue
        event, label = mine[start]
        storage = str((story.tensor(label, event.step) or {}).get("storage"))
        end = same.index(False, start) if False in same[start:] else n
        writes = story.writes(storage, mine[0][0].step, mine[end - 1][0].step)
        if len(writes) >= end - start - 1:
            assignment, _, source = next(each for each in passed if each[1] in (one, other))
            # The first call after rounds that were not recorded has what these wrote among its effects.
            own = [step for step in writes if (at := story.event(step)) is not None and _is_in_place(at.name)]
            written = (own or writes)[-1]
            return OneFromTwo(loop, statement, (one, other), start + 1, event, written, assignment, source)
    return None


def _is_in_place(name: str) -> bool:
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def _is_kept(same: list[bool]) -> bool:
    """Whether ``same``, which says for each round whether two names have one tensor, begins with False and then
    alternates: at most ``FEWEST`` rounds of False, and at least ``PAIR`` of True, at a time.

    The last of these runs may have any length.
    """
    runs = [(value, len(list(each))) for value, each in groupby(same)]
    return not same[0] and all(count <= FEWEST if not value else count >= PAIR for value, count in runs[:-1])


def _reads(story: Story, statement: ast.stmt) -> dict[str, list[tuple[Event, str]]]:
    """For each name that a statement reads, the calls that read it, each with the label of the tensor, in all runs of
    the statement.

    Of a name that is written several times, only the calls at the position in the source that is met first. Failed
    calls and index assignments are left out.
    """
    found: dict[str, list[tuple[Event, str]]] = defaultdict(list)
    places: dict[str, object] = {}
    for event in story.within(statement):
        labels = dict.fromkeys(operand.label for operand in event.operands if operand.label is not None)
        for label in labels if event.error is None and event.name != "__setitem__" else ():
            for node in all_written_as(story, event, label):
                name = story.program.segment(node)
                if is_name(node) and places.setdefault(name, event.span) == event.span:
                    found[name].append((event, label))
    return found


def _finding(story: Story, found: OneFromTwo) -> Finding:
    program, place = story.program, story.program.place(found.passed)
    here, read = at_line(story, place), at_line(story, story.span(found.read.step))
    written = at_line(story, story.span(found.written))
    one, other = (f"`{name}`" for name in found.names)
    return RULE.finding(
        place,
        found.read.step,
        T(
            en=f"{capital(here.en)} passes the tensor of `{found.source}` on, and {written.en} writes that one tensor "
            f"in every round: from round {found.rounds} on, {one} and {other}, which {read.en} reads, are the same.",
            zh=f"{here.zh}把 `{found.source}` 的张量传下去，而{written.zh}每一轮都写入这同一个张量：从第 "
            f"{found.rounds} 轮起，{read.zh}读取的 {one} 与 {other} 就是同一个。",
        ),
        T(
            en="An assignment gives an object another name and copies nothing. In the first rounds the names still "
            "belong to different tensors; then each has become the one that is written, and an earlier state is "
            "nowhere kept.",
            zh="赋值只是给对象另起一个名字，不复制任何东西。头几轮里这些名字还属于不同的张量；之后都变成了被写入的那一个，更"
            "早的状态在哪里都没有留下。",
        ),
        related=[
            story.related("changed", found.written, T(en="the one tensor is written here", zh="在这里写入同一个张量")),
            story.related("read", found.read.step, T(en="both names are read here", zh="在这里读取两个名字")),
        ],
        fixes=_fixes(program, found),
        facts=[Fact("names", list(found.names)), Fact("round", found.rounds, story.by(found.read.step))],
    )


def _fixes(program: Program, found: OneFromTwo) -> tuple[Fix, ...]:
    """Fixes that reuse the tensor which is no longer needed for the next write, or that pass on a copy
    (``.clone()``).
    """
    target, value = found.passed.targets[0], found.passed.value
    fixes = list[Fix]()
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and is_name(target.elts[0]):
        oldest = program.segment(target.elts[0])
        left = ", ".join([*(program.segment(each) for each in target.elts), found.source])
        right = ", ".join([*(program.segment(each) for each in value.elts), oldest])
        title = T(en=f"Write the oldest one next: `{left} = {right}`", zh=f"下一次写入最旧的那个：`{left} = {right}`")
        edits = program.replace((found.passed, f"{left} = {right}"))
        fixes.append(Fix(title, edits, meaning="later"))
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    node = next(each for each in values if program.segment(each) == found.source)
    new = f"{found.source}.clone()"
    title = T(en=f"Pass on a copy: `{new}`", zh=f"传下去一个副本：`{new}`")
    return unique(program.text, [*fixes, Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL731",
    name="levels-become-one",
    severity="warning",
    title=T(en="Two names became one tensor as they were passed on", zh="两个名字在传递中变成了同一个张量"),
    what=T(
        en="A loop keeps the last states under several names and passes them on: the previous one, the current one, "
        "the next one. The next one is always the same tensor, written in place, so after some rounds all names are "
        "that tensor. Rotate all of them, or pass on a copy.",
        zh="循环用几个名字保存最近的状态并逐轮传递：上一个、当前、下一个。而下一个始终是同一个张量，就地写入，于是几轮之后所有"
        "名字都成了它。请把它们全部轮换，或者传下去一个副本。",
    ),
    why=T(
        en="With buffers that are made before the loop, nothing new is made inside: the number of tensors stays as it "
        "was, and each name has to get one that no other name has. `previous, current = current, following` leaves two "
        "names on one tensor; `previous, current, following = current, following, previous` does not.",
        zh="缓冲区在循环之前建好，循环里就不再产生新的：张量的个数不变，每个名字都必须得到一个别的名字没有的张量。"
        "`previous, current = current, following` 会让两个名字落在同一个张量上；"
        "`previous, current, following = current, following, previous` 则不会。",
    ),
    bad="""import torch

x = torch.linspace(0, 1, 7)
before, now = torch.sin(x), torch.sin(x)
after = torch.zeros_like(now)
for _ in range(5):
    curve = now[2:] - 2 * now[1:-1] + now[:-2]
    after[1:-1] = 2 * now[1:-1] - before[1:-1] + 0.2 * curve  # changed read
    before, now = now, after  # PL731
print(now)
""",
    good="""import torch

x = torch.linspace(0, 1, 7)
before, now = torch.sin(x), torch.sin(x)
after = torch.zeros_like(now)
for _ in range(5):
    curve = now[2:] - 2 * now[1:-1] + now[:-2]
    after[1:-1] = 2 * now[1:-1] - before[1:-1] + 0.2 * curve
    before, now, after = now, after, before
print(now)
""",
    find=find,
    traps=(
        Trap(
            "torch.zeros_like(now)",
            "now.clone()",
            T(
                en="It is a tensor of its own at first; the loop still passes it on without making another.",
                zh="它起初是独立的张量，但循环仍把它传下去而不产生新的。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.clone.html",),
)
