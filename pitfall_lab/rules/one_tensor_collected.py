"""PL709: one tensor was put into a collection again and again and written in between: all
entries show its last numbers.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.snapshots import COLLECTING
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression, numbers
from pitfall_lab.rules.signals.shared_memory import names_of
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

JOINING = spellings("cat", "vstack") | {"column_stack", "dstack", "hstack", "stack"}
"""Calls that join the tensors of a collection."""
PAIR = 2


@dataclass(frozen=True, slots=True)
class OneTensorCollected:
    """``join`` is the call (``Event``), a ``stack`` or ``cat``, that was given one tensor ``count`` times; ``label`` is
    one of its labels.

    ``written`` are the steps at which it had been overwritten since the first entry was made.
    """

    join: Event
    label: str
    count: int
    written: list[int]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each tensor that is several times in a stacked or joined list, after a line in a loop had
    overwritten it in between.

    Not for gradients, detached tensors and arrays, which other rules report.
    """
    reported = set()
    reported_elsewhere = {
        label for event in story.calls("grad", "detach", "data", "numpy", "from_numpy") for label in event.results
    }  # by other rules
    for event in story.calls(*JOINING):
        pieces: dict[object, list[str]] = defaultdict(list)
        for label in (o.label for o in event.operands if o.label is not None):
            record = story.tensor(label, event.step) or {}
            pieces[tuple(str(record.get(key)) for key in ("storage", "offset", "shape", "stride"))].append(label)
        for labels in pieces.values():
            label, count = labels[0], len(labels)
            storage = (story.tensor(label, event.step) or {}).get("storage")
            if (
                count < PAIR
                or storage is None
                or storage in reported
                or event.error is not None
                or label in reported_elsewhere
                or len({(story.tensor(each, event.step) or {}).get("counter") for each in labels}) > 1
            ):  # tensors of one memory with counters of their own came in through NumPy
                continue
            # What was written before there was any of the entries has changed none of them.
            born = min(((story.tensor(each, event.step) or {}).get("born") or 0 for each in labels), default=0)
            written = list(story.writes(storage, born, event.step))
            rounds = Counter(story.span(step) for step in written)
            if max(rounds.values(), default=0) >= PAIR and len(written) >= count - 1:
                reported.add(storage)
                yield _finding(story, OneTensorCollected(event, label, count, written))


def _finding(story: Story, found: OneTensorCollected) -> Finding:
    program, join = story.program, found.join
    storage = (story.tensor(found.label, join.step) or {}).get("storage")
    collected = _collected(story, found)
    span = program.place(collected) if collected is not None else story.span(found.written[-1])
    name, last = expression(story, found.label, join.step), found.written[-1]
    there, change = at_line(story, story.span(join.step)), at_line(story, story.span(last))
    held = [(story.record("storages", storage, step) or {}).get("cells") for step in (found.written[0], join.step)]
    shown = held[0] is not None and held[0] != held[1]
    first, end = numbers(held[0]), numbers(held[1])
    was = T(
        en=f" After the first of these writes it held {first}; in the result every entry is {end}." if shown else "",
        zh=f"第一次写入之后它是 {first}；而结果中每一项都是 {end}。" if shown else "",
    )
    return RULE.finding(
        span,
        join.step,
        T(
            en=f"{capital(there.en)} joins {name.en} {found.count} times: what was kept, round after round, is one "
            f"tensor, and {change.en} has changed all entries.",
            zh=f"{there.zh}把 {name.zh} 合并了 {found.count} 次：一轮又一轮留下的是同一个张量，"
            f"{change.zh}把所有项都改变了。",
        ),
        T(
            en=f"A list keeps references and no numbers. {capital(change.en)} writes into the same memory in every "
            f"round, so the entries do not stay what they were when they were kept.{was.en}",
            zh=f"列表保存的是引用，而不是数值。{change.zh}每一轮都写入同一块内存，所以各项不会保持"
            f"存入时的样子。{was.zh}",
        ),
        related=[
            *(
                [Related("kept", span, None, T(en="the tensor itself is kept here", zh="留下的是张量本身"))]
                if collected
                else []
            ),
            story.related(
                "changed",
                last,
                T(en="the one memory is written here, in every round", zh="每一轮都在这里写入同一块内存"),
            ),
            story.related(
                "used", join.step, T(en="all entries are the same tensor here", zh="到这里所有项都是同一个张量")
            ),
        ],
        fixes=_fixes(story, found, collected),
        facts=[Fact("tensor", found.label, story.by(join.step)), Fact("times", found.count, story.by(join.step))],
    )


def _names(story: Story, found: OneTensorCollected) -> set[str]:
    record = story.tensor(found.label, found.join.step) or {}
    return names_of(story, record.get("storage"), found.join.step)


def _collected(story: Story, found: OneTensorCollected) -> ast.Call | None:
    """The first call by which the program puts the tensor, under one of its names, into a collection (``append``, for
    example); None if there is none.
    """
    program, names = story.program, _names(story, found)
    for node in program.nodes:
        if (
            isinstance(node, ast.Call)
            and call_name(node) in COLLECTING
            and any(_reads(program.segment(a), a, names) for a in node.args)
        ):
            return node
    return None


def _reads(text: str, node: ast.expr, names: set[str]) -> bool:
    return text in names or (isinstance(node, ast.Tuple) and any(ast.unparse(n) in names for n in node.elts))


def _fixes(story: Story, found: OneTensorCollected, collected: ast.Call | None) -> tuple[Fix, ...]:
    """Fixes that copy the tensor where it is put into the list, or where a function returns it; empty if neither place
    writes it by its name.
    """
    program, names = story.program, _names(story, found)
    places: list[ast.expr] = []
    for argument in collected.args if collected is not None else ():
        entries = argument.elts if isinstance(argument, ast.Tuple) else [argument]
        places += [n for n in entries if program.segment(n) in names]
    candidates: list[Fix | None] = []
    if places:
        texts = [(n, f"{program.segment(n)}.clone()") for n in places]
        shown = ", ".join(dict.fromkeys(f"`{text}`" for _, text in texts))
        candidates.append(
            Fix(T(en=f"Keep a copy: {shown}", zh=f"保留副本：{shown}"), program.replace(*texts), meaning="later")
        )
    returned = [n.value for n in program.nodes if isinstance(n, ast.Return) and n.value is not None]
    handed = [n for value in returned for n in (value.elts if isinstance(value, ast.Tuple) else [value]) if is_name(n)]
    own = [n for n in handed if program.segment(n) in names]
    if own:
        fix = appended(program, (own[0], ".clone()"))
        candidates.append(
            Fix(fix.title, program.replace(*((n, f"{program.segment(n)}.clone()") for n in own)), meaning="later")
        )
    return unique(program.text, candidates)


RULE = Rule(
    code="PL709",
    name="one-tensor-collected",
    severity="warning",
    title=T(
        en="One tensor was collected again and again, and written in between", zh="同一个张量被反复收集，其间又被写入"
    ),
    what=T(
        en="A program put a tensor into a list in every round of a loop and changed it in the next round. The list "
        "holds the same tensor many times, so all entries show its last numbers. Put a copy into the list: "
        "`history.append(state.clone())`.",
        zh="程序在循环的每一轮把一个张量放进列表，下一轮又修改它。列表里是同一个张量的许多次引用，所以每一项都显示最后"
        "的数值。请放入副本：`history.append(state.clone())`。",
    ),
    why=T(
        en="Neither `append` nor a tuple nor a dictionary copies what it is given. A name that gets a *new* tensor in "
        "each round (`state = state + 1`) leaves the old one in the list as it was; an operation that writes in place "
        "(`state += 1`, `buf[0] = v`, `state.zero_()`) changes the one tensor that all entries are. `torch.stack` "
        "copies the numbers, but only when it is called.",
        zh="无论 `append`、元组还是字典，都不会复制交给它的东西。如果名字每一轮得到一个*新*张量（`state = state + "
        "1`），列表里的旧张量保持不变；就地写入的操作（`state += 1`、`buf[0] = v`、`state.zero_()`）改变的则是所有项共"
        "同的那个张量。`torch.stack` 会复制数值，但要到调用它的那一刻。",
    ),
    advice=T(
        en="keep a copy on {kept}, with `.clone()`, or make a new tensor on {changed}.",
        zh="在{kept}留下副本（`.clone()`），或在{changed}产生新的张量。",
    ),
    bad="""import torch

state = torch.zeros(2)
history = []
for _ in range(3):
    state += 1  # changed
    history.append(state)  # PL709 kept
path = torch.stack(history)  # used
w = torch.ones(2, requires_grad=True)
(path @ w).square().sum().backward()
print(path, w.grad)
""",
    good="""import torch

state = torch.zeros(2)
history = []
for _ in range(3):
    state += 1
    history.append(state.clone())
path = torch.stack(history)
w = torch.ones(2, requires_grad=True)
(path @ w).square().sum().backward()
print(path, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "history.append(state)",
            "history.append(state.detach())",
            T(
                en="`detach()` gives another tensor on the same memory.",
                zh="`detach()` 给出的是同一块内存上的另一个张量。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.clone.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.stack.html",
    ),
)
