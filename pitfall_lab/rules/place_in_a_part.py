"""PL460: a position in a part of a tensor is used as a position in the whole."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, operand
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.axes import ELEMENTWISE
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T

FINDS = {"argmax": (0, 1), "argmin": (0, 1), "max": (1, 1), "min": (1, 1), "topk": (1, 2), "sort": (1, 1),
         "argsort": (0, 1), "nonzero": (0, None), "kthvalue": (1, 2), "median": (1, 1)}  # fmt: skip
"""Calls that return positions: the place of that result, and of the argument that says along which axis."""
ROW_BY_ROW = ELEMENTWISE | {"mul", "div", "pow", "square", "abs", "exp", "sqrt", "linear", "squeeze", "unsqueeze",
                            "view", "reshape", "__getitem__", "softmax", "gt", "lt", "ge", "le", "eq", "ne", "sum",
                            "mean", "norm", "cross_entropy", "add", "log_softmax"}  # fmt: skip
"""Calls that compute each row from the same row."""
SAME_PLACES = {
    "squeeze",
    "unsqueeze",
    "view",
    "reshape",
    "to",
    "long",
    "int",
    "clone",
    "detach",
    "cpu",
    "__getitem__",
    "flip",
    "unbind",
}
"""Calls that a position is followed through: it stays a position in the same tensor."""
UPWARD, FURTHER = 60, 200


@dataclass(frozen=True, slots=True)
class Misplaced:
    """``found`` is the call (``Event``) that returned positions in the tensor ``part``, whose rows the call ``taken``
    took out of the tensor ``table``; both are labels.

    ``used`` is the call that takes entries of ``table``, or of a tensor with the same rows, by these positions.
    """

    found: Event
    part: str
    taken: Event
    table: str
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source that finds positions (``argmax``, ``nonzero``, …) along axis 0 of
    a part of a tensor, by which the whole tensor, or one with the same rows as the whole, is then read.
    """
    reported = set()
    for event in story.calls(*FINDS):
        place = story.span(event.step)
        misplaced = (
            _misplaced(story, event) if place not in reported and event.error is None and event.results else None
        )
        if misplaced is not None:
            reported.add(place)
            yield _finding(story, misplaced)


def _misplaced(story: Story, event: Event) -> Misplaced | None:
    """The data of the finding if positions along axis 0 of a part are used for the whole tensor, or for one with the
    same rows as the whole; else None.
    """
    part = event.operands[0].label
    number, axis = FINDS[event.name]
    shape = story.shape(part, event.step)
    said = whole(argument(event, "dim", axis)) if axis is not None else None
    if (
        part is None
        or not shape
        or number >= len(event.results)
        or (len(shape) > 1 and said != 0 and event.name != "nonzero")
    ):
        return None
    if len(shape) > 1 and event.name == "nonzero":
        return None
    taken = _taken(story, part, event.step, shape[0])
    if taken is None:
        return None
    table = str(taken.operands[0].label)
    rows = (story.shape(table, taken.step) or (0,))[0]
    together = _together(story, table, taken, rows)
    for used, label in _reads(story, event, event.results[number]):
        if (story.shape(label, used.step) or (0,))[0] == rows and label in together:
            return Misplaced(event, part, taken, table, used)
    return None


def _taken(story: Story, label: str, step: int, rows: int) -> Event | None:
    """The call that took the ``rows`` out of more rows; only calls that keep the rows may follow it.

    None if there is none, if it took the first rows, or if a row was combined from several neighbours.
    """
    for _ in range(UPWARD):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is None or label not in made.results or not made.operands or made.operands[0].label in (None, label):
            return None
        before = story.shape(made.operands[0].label, made.step) or ()
        if before and before[0] == rows and made.name in ROW_BY_ROW:
            if _is_of_neighbours(story, made):
                return None
            label, step = str(made.operands[0].label), made.step
            continue
        moved = made.name in ("__getitem__", "index_select", "masked_select") and before and before[0] > rows
        return made if moved and not _is_beginning(story, made, label) else None
    return None


def _is_of_neighbours(story: Story, event: Event) -> bool:
    """Whether a call combines rows with a slice that begins at row 0, as ``x[1:] - x[:-1]`` does.

    Its positions then are also positions of the table.
    """
    for label in (o.label for o in event.operands[1:] if o.label is not None):
        made = story.event((story.tensor(label) or {}).get("born"))
        if (
            made is not None
            and made.name == "__getitem__"
            and label in made.results
            and _is_beginning(story, made, label)
        ):
            return True
    return False


def _is_beginning(story: Story, taken: Event, label: str) -> bool:
    """Whether a view begins at the first row of its table, where positions in both are the same, or has fewer axes than
    the table.
    """
    one, other = story.tensor(taken.operands[0].label, taken.step) or {}, story.tensor(label, taken.step) or {}
    shares = one.get("storage") == other.get("storage")
    return shares and (
        (one.get("offset") or 0) == (other.get("offset") or 0)
        or len(one.get("shape") or ()) != len(other.get("shape") or ())
    )


def _together(story: Story, table: str, taken: Event, rows: int) -> set[str]:
    """The tensors with the same rows as a table: those that it was computed from row by row, those on one of these
    tensors' storages, and those that the same index was applied to.
    """
    found = {table}
    pending = deque([(table, taken.step)])
    while pending and len(found) < UPWARD:
        label, step = pending.popleft()
        made = story.event((story.tensor(label, step) or {}).get("born"))
        for each in made.operands if made is not None and label in made.results and made.name in ROW_BY_ROW else ():
            if (
                each.label is not None
                and each.label not in found
                and (story.shape(each.label, step) or (0,))[0] == rows
            ):
                found.add(each.label)
                pending.append((each.label, made.step if made is not None else step))
    index = next((o.label for o in taken.operands[1:] if o.label is not None), None)
    if index is not None:
        same = (
            use
            for use in story.uses(index)
            if use.name in ("__getitem__", "index_select") and use.operands[0].label is not None
        )
        found.update(str(use.operands[0].label) for use in same)
        found.add(index)
    memories = {(story.tensor(label) or {}).get("storage") for label in found}
    return found | {label for memory in memories if memory is not None for label, _ in story.tensors_on(str(memory))}


def _reads(story: Story, event: Event, label: str) -> Iterator[tuple[Event, str]]:
    """Yield the calls that take entries of a tensor by these positions, as an index or by a Python number made of one,
    each with that tensor.
    """
    pending, seen = deque([label]), {label}
    while pending:
        here = pending.popleft()
        for use in story.uses(here):
            if use.step <= event.step or use.error is not None or not use.operands:
                continue
            first = use.operands[0].label
            if use.name in ("__getitem__", "index_select") and first is not None and first != here:
                yield use, first
            elif first == here and use.name in ("item", "__int__", "__index__"):
                yield from _by_number(story, use)
            for result in use.results if first == here and use.name in SAME_PLACES else ():
                if result not in seen:
                    seen.add(result)
                    pending.append(result)


def _by_number(story: Story, conversion: Event) -> Iterator[tuple[Event, str]]:
    """Yield the calls that take an entry by a name which got the number that a position was converted to."""
    program = story.program
    statement = program.statement_at(conversion.span)
    names = assigned(program, statement) if statement is not None else set()
    for use in story.events[conversion.step + 1 : conversion.step + FURTHER] if names else ():
        node = (
            program.at(use.span)
            if use.name == "__getitem__" and use.operands and use.operands[0].label is not None
            else None
        )
        if (
            isinstance(node, ast.Subscript)
            and program.segment(node.slice) in names
            and program.function(node) is program.function(statement or node)
        ):
            yield use, str(use.operands[0].label)


def _finding(story: Story, found: Misplaced) -> Finding:
    here, there = at_line(story, story.span(found.found.step)), at_line(story, story.span(found.used.step))
    part, rows = expression(story, found.part, found.found.step), (story.shape(found.part, found.found.step) or (0,))[0]
    target = expression(story, found.used.operands[0].label, found.used.step)
    count = (story.shape(found.used.operands[0].label, found.used.step) or (0,))[0]
    return RULE.finding(
        story.span(found.found.step),
        found.found.step,
        T(
            en=f"{capital(here.en)} finds positions among the {rows} entries of {part.en}, and {there.en} uses them "
            f"for all {count} of {target.en}: these are other entries.",
            zh=f"{here.zh}在 {part.zh} 的 {rows} 项中找到位置，{there.zh}却用它们来取 {target.zh} 的全部 {count} "
            "项中的项：那是别的项。",
        ),
        T(
            en="A part is a tensor of its own, whose entries are numbered from 0 again. A position in it says "
            "which entry of the part it is; which one of the whole that was, the index or the mask knows by "
            "which the part was taken.",
            zh="取出的部分是一个独立的张量，其中的项重新从 0 编号。部分里的位置说的是部分中的第几项；它原来是整体中的"
            "第几项，只有取出它时用的索引或掩码才知道。",
        ),
        related=[
            story.related("copied", found.taken.step, T(en="the part is taken here", zh="在这里取出一部分")),
            story.related("used", found.used.step, T(en="used for the whole here", zh="在这里用于整体")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("part", rows, story.by(found.found.step)), Fact("whole", count, story.by(found.used.step))],
    )


def _fixes(story: Story, found: Misplaced) -> tuple[Fix, ...]:
    """At most one fix: it looks the positions up in the index of the part, or adds the beginning of the slice.

    Empty if the program's source shows no index, or if the expression of the positions is neither the call itself nor
    its ``.indices``.
    """
    program = story.program
    node = program.at(story.span(found.found.step)) if program.tree is not None else None
    taken = program.at(story.span(found.taken.step))
    outer = program.parents.get(node) if node is not None else None
    if isinstance(outer, ast.Attribute) and outer.attr == "indices":
        node = outer
    index = _index(taken)
    if not isinstance(node, ast.Call | ast.Attribute) or index is None:
        return ()
    if FINDS[found.found.name][0] == 1 and node is not outer:
        return ()
    text = program.segment(node)
    kind = next(
        ((story.tensor(o.label) or {}).get("dtype") for o in found.taken.operands[1:] if o.label is not None), None
    )
    if isinstance(index, ast.Slice) and index.lower is not None and index.step is None:
        new = f"{text} + {operand(program, index.lower)}"
        new = f"({new})" if isinstance(program.parents.get(node), ast.Attribute | ast.Subscript | ast.BinOp) else new
    elif kind == "bool":
        new = f"{operand(program, index)}.nonzero().squeeze(1)[{text}]"
    elif kind is not None:
        new = f"{operand(program, index)}[{text}]"
    else:
        return ()
    title = T(en=f"Positions in the whole: `{new}`", zh=f"换成整体中的位置：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


def _index(taken: ast.AST | None) -> ast.expr | None:
    """The expression of the index by which a part was taken, ``x[index]`` or ``x.index_select(0,
    index)``; None for other calls.
    """
    if isinstance(taken, ast.Subscript):
        return taken.slice
    return taken.args[-1] if isinstance(taken, ast.Call) and call_name(taken) == "index_select" and taken.args else None


RULE = Rule(
    code="PL460",
    name="place-in-a-part",
    severity="warning",
    title=T(en="A position in a part is used for the whole", zh="把部分中的位置用于整体"),
    what=T(
        en="A program looks for the best entry among those that a mask allows, and takes the entry with that number "
        "out of all of them. The number counts the allowed ones alone, so it is some other entry. Look it up: "
        "`mask.nonzero().squeeze(1)[best]`.",
        zh="程序在掩码允许的项中寻找最好的一项，再按这个编号从全部项中取出。这个编号只数了允许的项，所以取到的是别的"
        "项。请先换算：`mask.nonzero().squeeze(1)[best]`。",
    ),
    why=T(
        en="`scores[mask]` copies the chosen entries into a new tensor, and `scores[10:]` is a view that "
        "begins at the tenth: both are numbered from 0, and nothing in them knows where they came from. "
        "`argmax`, `topk` and `sort` return positions in what they were given. These are valid positions of "
        "the whole as well, so nothing is raised.",
        zh="`scores[mask]` 把选中的项复制到新的张量里，`scores[10:]` 是从第 10 项开始的视图：两者都从 0 编号，其中"
        "没有任何东西知道它们来自哪里。`argmax`、`topk` 和 `sort` 返回的是所给张量中的位置。它们对整体来说也是合法"
        "的位置，所以不会报错。",
    ),
    bad="""import torch

scores = torch.tensor([0.9, 0.2, 0.1, 0.7, 0.4])
allowed = torch.tensor([False, True, True, True, True])
best = scores[allowed].argmax()  # PL460 copied
print(scores[best], best)  # used
""",
    good="""import torch

scores = torch.tensor([0.9, 0.2, 0.1, 0.7, 0.4])
allowed = torch.tensor([False, True, True, True, True])
best = allowed.nonzero().squeeze(1)[scores[allowed].argmax()]
print(scores[best], best)
""",
    find=find,
    traps=(
        Trap(
            "scores[allowed].argmax()",
            "scores[allowed].max(0).indices",
            T(en="Another way to the same position in the part.", zh="换一种方法，得到的仍是部分中的位置。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.argmax.html",),
)
