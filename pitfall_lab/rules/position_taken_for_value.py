"""PL680: the position of the largest number is calculated with, or compared with a fraction, as
if it were the number itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import ADDING, SCALING, constant
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

ALONE = {"argmax": "amax", "argmin": "amin"}
PAIRS = {"max", "min", "topk", "sort", "median", "mode", "kthvalue"}
"""Calls that return values and positions."""
KEEPING = {
    "squeeze",
    "unsqueeze",
    "view",
    "reshape",
    "float",
    "to",
    "double",
    "detach",
    "clone",
    "contiguous",
    "type",
    "flatten",
    "expand",
}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
MIXING = ADDING.keys() | SCALING.keys() | {"addcmul", "lerp"}
LOSSES = spellings("sub") | operations_that("difference_loss")
COMPARES = spellings("ge", "gt", "le", "lt")
CHOOSING = {"gather", "__getitem__", "take_along_dim", "index_select", "max", "amax", "sum", "min"}
"""Calls that give the numbers at the positions."""
FURTHER = 30


@dataclass(frozen=True, slots=True)
class Taken:
    """``search`` is the call (``Event``), such as ``argmax``, that returned positions along an axis of ``count``
    numbers; ``used`` is the call that calculated with them, or compared them, as if they were the numbers.

    ``loss`` is the call that compared what was calculated with a prediction of one of the numbers; None where ``used``
    compared the positions with a fraction.
    """

    search: Event
    count: int
    used: Event
    loss: Event | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a search (``argmax``, ``topk``, …) whose positions become, after a
    calculation, targets of a loss that predicts values, or are compared with a fraction between 0.5 and 1.
    """
    reported = set()
    for search in story.calls(*ALONE, *PAIRS):
        place = story.span(search.step)
        if place in reported or search.error is not None or not search.results or search.operands[0].label is None:
            continue
        found = _taken(story, search)
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _taken(story: Story, search: Event) -> Taken | None:
    """The data of the finding if the positions that ``search`` found go as values into a comparison with a share, or
    into a loss; else None.

    A comparison counts with more than two positions only, a loss only after an element-wise calculation.
    """
    shape = story.shape(search.operands[0].label, search.step) or ()
    axis = (
        whole(argument(search, "dim", 2 if search.name == "topk" else 1)) if search.name not in ("topk", "sort") else -1
    )
    if (
        len(search.results) != (1 if search.name in ALONE else 2)
        or axis is None
        or not -len(shape) <= axis < len(shape)
    ):
        return None
    count, seen = shape[axis], {search.results[-1]}
    pending: list[tuple[str, Event | None]] = [(search.results[-1], None)]
    while pending and len(seen) < FURTHER:
        label, mixed = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results:
                continue
            if mixed is None and use.name in COMPARES and count > 2 and _is_share(story, use):
                return Taken(search, count, use, None)
            if mixed is not None and use.name in LOSSES and _values(story, use, label, count):
                return Taken(search, count, mixed, use)
            result = use.results[0]
            is_float = str((story.tensor(result, use.step) or {}).get("dtype")).startswith(("float", "bfloat"))
            if result not in seen and (use.name in KEEPING or (use.name in MIXING and is_float)):
                seen.add(result)
                pending.append((result, use if mixed is None and use.name in MIXING else mixed))
    return None


def _is_share(story: Story, use: Event) -> bool:
    """Whether the call compares with one number between 0.5 and 1 (exclusive), which may be a large share but is no
    position.
    """
    numbers = [constant(story, None, o.text, use.step) for o in use.operands if o.label is None]
    return len(numbers) == 1 and numbers[0] is not None and 0.5 < numbers[0] < 1


def _values(story: Story, loss: Event, target: str, count: int) -> bool:
    """Whether a loss, through which a backward went, compares the target with predictions that were chosen
    from ``count`` numbers each.

    False if the target requires grad or if other calls than choices and conversions made the predictions.
    """
    others = [o.label for o in loss.operands[:2] if o.label is not None and o.label != target]
    if len(others) != 1 or (story.tensor(target, loss.step) or {}).get("requires_grad"):
        return False
    graph = (story.tensor(loss.results[0], loss.step) or {}).get("grad_fn")
    if (story.record("nodes", graph) or {}).get("ran") is None:
        return False
    label, step = others[0], loss.step
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        if event is None or event.operands[0].label is None:
            return False
        if event.name in CHOOSING:
            shape = story.shape(event.operands[0].label, event.step) or ()
            by_index = (
                event.name != "__getitem__"
                or len(shape) == 1
                or len([o for o in event.operands if o.label is not None]) > 1
            )
            return by_index and count in (shape[1:] or shape)
        if event.name not in KEEPING:
            return False
        label, step = event.operands[0].label, event.step
    return False


def _finding(story: Story, found: Taken) -> Finding:
    step = found.search.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.used.step))
    code = snippet(story, story.span(step))
    does = (
        T(en="calculates with it", zh="用它来计算")
        if found.loss
        else T(en="compares it with a share", zh="把它与一个比例相比")
    )
    best = T(en="smallest", zh="最小") if "min" in found.search.name else T(en="largest", zh="最大")
    related = [story.related("used", found.used.step, T(en="used as a value here", zh="在这里当作数值使用"))]
    if found.loss is not None:
        related.append(
            story.related(
                "read", found.loss.step, T(en="taken as target of predicted values here", zh="在这里成为数值的目标")
            )
        )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} takes the position of the {best.en} of {found.count} numbers (0 to "
            f"{found.count - 1}), and {there.en} {does.en} as if it were the number itself.",
            zh=f"{here.zh}取出 {found.count} 个数中{best.zh}者的位置（0 到 {found.count - 1}），"
            f"而{there.zh}{does.zh}，好像它就是那个数本身。",
        ),
        T(
            en=f"`{code}` returns values and positions, or positions alone. A position is right as an index or a "
            "class; a target, or a confidence, is the value at it.",
            zh=f"`{code}` 返回数值与位置，或只返回位置。位置可以当作索引或类别；目标或置信度则应是该位置上的数值。",
        ),
        related=related,
        fixes=_fixes(story, found.search),
        facts=[Fact("positions", found.search.results[-1], story.by(step))],
    )


def _fixes(story: Story, search: Event) -> tuple[Fix, ...]:
    """At most one fix: it takes the value instead of the position: ``max(1)[0]`` for ``max(1)[1]``, ``amax(1)`` for
    ``argmax(1)``. Empty if the source has another form.
    """
    program, node = story.program, story.program.at(story.span(search.step))
    parent = program.parents.get(node) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call):
        return ()
    edits: tuple[Edit, ...] = ()
    name = ALONE.get(call_name(node))
    if name is not None and isinstance(node.func, ast.Attribute):
        edits = program.replace((node.func, f"{program.segment(node.func.value)}.{name}"))
    elif isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant) and parent.slice.value == 1:
        edits = program.replace((parent.slice, "0"))
    elif isinstance(parent, ast.Attribute) and parent.attr == "indices":
        edits = program.replace((parent, f"{program.segment(node)}.values"))
    elif (
        isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple) and len(parent.targets[0].elts) == 2
    ):
        one, other = map(program.segment, parent.targets[0].elts)
        edits = program.replace((parent.targets[0].elts[0], other), (parent.targets[0].elts[1], one))
    title = T(en="Take the value and not its position", zh="取数值而不是它的位置")
    return unique(program.text, [Fix(title, edits, meaning="later")] if edits else [])


RULE = Rule(
    code="PL680",
    name="position-taken-for-value",
    severity="warning",
    title=T(en="The position of the largest number is taken for the number", zh="把最大数的位置当作那个数"),
    what=T(
        en="A program looks for the largest of several numbers, gets its position, and goes on as if that were the "
        "number: it discounts it, adds a reward, and trains a network towards it. The network learns the numbers 0, "
        "1, 2 of the places. Take the values: `x.max(1)[0]` or `x.amax(1)`.",
        zh="程序在若干个数中寻找最大的一个，得到的是它的位置，却当作那个数来用：乘以折扣、加上奖励，再让网络朝它训练。"
        "网络学到的是位置编号 0、1、2。请取数值：`x.max(1)[0]` 或 `x.amax(1)`。",
    ),
    why=T(
        en="`x.max(dim)`, `topk` and `sort` return a pair: the values, then their positions. `[1]`, `.indices` and "
        "the second of two names are the positions, as is the result of `argmax`. They are whole numbers of the same "
        "shape as the values, and arithmetic with fractions turns them into fractions, so nothing fails.",
        zh="`x.max(dim)`、`topk` 和 `sort` 返回一对结果：先是数值，再是位置。`[1]`、`.indices` 以及两个名字中的第二个"
        "都是位置，`argmax` 的结果也是。它们是与数值形状相同的整数，与小数运算后就变成小数，所以不会报错。",
    ),
    bad="""import torch

torch.manual_seed(0)
state, following, reward = torch.randn(6, 3), torch.randn(6, 3), torch.rand(6)
action = torch.tensor([0, 1, 0, 1, 1, 0])
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    value = net(state).gather(1, action.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = net(following).max(1)[1]  # PL680
        target = reward + 0.9 * best  # used
    loss = torch.nn.functional.mse_loss(value, target)  # read
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
state, following, reward = torch.randn(6, 3), torch.randn(6, 3), torch.rand(6)
action = torch.tensor([0, 1, 0, 1, 1, 0])
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    value = net(state).gather(1, action.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = net(following).max(1)[0]
        target = reward + 0.9 * best
    loss = torch.nn.functional.mse_loss(value, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "max(1)[1]",
            "max(1)[1].float()",
            T(en="As a fraction it still is a position.", zh="变成小数之后，它仍然是位置。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.max.html",),
)
