"""PL650: a moving average of weights gives its large factor to the new weights, so it is almost a copy of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.shared_memory import names_of
from pitfall_lab.rules.signals.value_origins import argument, decimal
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

MULTIPLY = spellings("mul", in_place=True)
ADD = spellings("add", in_place=True)
LERP = ("lerp_", "lerp")
LARGE = 0.9
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Blend:
    """``event`` is the call (``Event``) that computed an average as ``old`` · average + ``new`` · trained weights;
    ``old`` and ``new`` are numbers that add up to 1.

    ``parts`` are two pairs, first for the average, then for the weights: the call that multiplied by the factor (for a
    factor ``alpha``, the sum itself), and the label of the tensor that it multiplied. For a ``lerp`` there is one pair:
    the ``lerp``, and the label of the average.
    """

    event: Event
    old: float
    new: float
    parts: tuple[tuple[Event, str], ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes a moving average of trained weights and gives the large factor (at
    least ``LARGE``) to the new weights.

    Only if it ran at least ``ROUNDS`` times with an optimizer step in between, and the result is not written into
    trained weights, nor copied there before they are trained further.
    """
    trained = {
        (story.tensor(label) or {}).get("storage") for step in story.trace.optimizer_steps for label in step.holds
    }
    places: dict[object, list[Blend]] = defaultdict(list)
    for event in story.calls(*ADD, *LERP) if trained else ():
        found = _blend(story, event, trained) if event.error is None and event.parent is None else None
        if found is not None and not _written_back(story, event, trained):
            places[story.span(event.step)].append(found)
    steps = [each.step for each in story.trace.optimizer_steps]
    for blends in places.values():
        first, last = blends[0].event.step, blends[-1].event.step
        trained_between = any(first < step <= last for step in steps)
        if len(blends) >= ROUNDS and trained_between and not _continues_from(story, blends, trained):
            yield _finding(story, blends[0])


def _written_back(story: Story, event: Event, trained: set[object]) -> bool:
    """Whether the result is written into the storage of trained weights, or copied there by ``copy_`` or ``.data``.

    If it is, the program moves the weights a little towards their starting values, on purpose.
    """
    goals = (
        [use.operands[0].label for use in story.uses(event.results[0]) if use.name in ("copy_", "data")]
        if event.results
        else []
    )
    return bool(trained & {*event.writes, *((story.tensor(label, event.step) or {}).get("storage") for label in goals)})


def _continues_from(story: Story, blends: list[Blend], trained: set[object]) -> bool:
    """Whether the average is copied into trained weights (``fast.load_state_dict(slow.state_dict())``) before the last
    step of an optimizer: then it is where the training begins anew, as in Reptile, and no average to be used.
    """
    last = max((step.step for step in story.trace.optimizer_steps), default=-1)
    averages = {storage for each in blends for storage in each.event.writes}
    return any(
        event.error is None
        and blends[0].event.step < event.step < last
        and len(event.operands) > 1
        and trained.intersection(event.writes)
        and (story.tensor(event.operands[1].label, event.step) or {}).get("storage") in averages
        for event in story.calls("copy_")
    )


def _blend(story: Story, event: Event, trained: set[object]) -> Blend | None:
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) != 2:
        return None
    if event.name in LERP:
        share = decimal(argument(event, "weight", 2))
        if (
            share is None
            or not LARGE <= share < 1
            or not _is_new(story, labels[1], event, trained)
            or _is_new(story, labels[0], event, trained)
        ):
            return None
        return Blend(event, 1 - share, share, ((event, labels[0]),))
    sides = [_scaled(story, label, event, trained) for label in labels]
    alpha = decimal(argument(event, "alpha"))
    if alpha is not None and sides[1] is None and _is_new(story, labels[1], event, trained):
        sides[1] = (alpha, True, event, labels[1])
    if sides[0] is None or sides[1] is None:
        return None
    new, old = (sides[0], sides[1]) if sides[0][1] else (sides[1], sides[0])
    if not new[1] or old[1] or abs(new[0] + old[0] - 1) > 1e-6 or not LARGE <= new[0] < 1:
        return None
    return Blend(event, old[0], new[0], ((old[2], old[3]), (new[2], new[3])))


def _scaled(story: Story, label: str, event: Event, trained: set[object]) -> tuple[float, bool, Event, str] | None:
    """Return the factor that the tensor ``label`` was just multiplied by, whether the tensor that was multiplied is a
    trained one, the multiplication, and the label of the tensor that was multiplied.

    None if ``label`` is not the product of one tensor and one literal number, or was written since.
    """
    record = story.tensor(label, event.step) or {}
    writes = story.writes(str(record.get("storage")), record.get("born") or 0, event.step)
    before = [
        step
        for step in story.writes(str(record.get("storage")), -1, event.step)
        if story.events[step].name in ("mul_", "__imul__")
    ]
    made = story.event(before[-1] if before else record.get("born"))
    if made is None or made.name not in MULTIPLY or (writes and made.step < writes[-1]):
        return None
    given = [o.label for o in made.operands if o.label is not None]
    factors = [value for o in made.operands if o.label is None and (value := decimal(o.text)) is not None]
    if len(given) != 1 or len(factors) != 1:
        return None
    return factors[0], _is_new(story, given[0], made, trained), made, given[0]


def _is_new(story: Story, label: str, event: Event, trained: set[object]) -> bool:
    return (story.tensor(label, event.step) or {}).get("storage") in trained


def _finding(story: Story, found: Blend) -> Finding:
    event = found.event
    here, old, new = at_line(story, story.span(event.step)), number(found.old), number(found.new)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} keeps {old} of the average and takes {new} of the new weights: the average is "
            "almost the newest weights.",
            zh=f"{here.zh}只保留平均值的 {old}，却取新权重的 {new}：平均值几乎就是最新的权重。",
        ),
        T(
            en=f"An average with a decay of {new} keeps {new} of itself and takes {old} of the new weights, "
            f"so it looks back over about {1 / found.old:.0f} steps. With the numbers exchanged it looks back "
            f"over {1 / found.new:.2f} steps: it smooths nothing, and a target network moves along with the "
            "one that it is to steady.",
            zh=f"衰减为 {new} 的平均值保留自己的 {new}，取新权重的 {old}，于是大约回顾 {1 / found.old:.0f} 步。两个数"
            f"互换后，它只回顾 {1 / found.new:.2f} 步：什么也没有平滑，目标网络会跟着它本应稳住的网络一起动。",
        ),
        related=[],
        fixes=_fixes(story, found),
        facts=[Fact("old", found.old, story.by(event.step)), Fact("new", found.new, story.by(event.step))],
    )


def _fixes(story: Story, found: Blend) -> tuple[Fix, ...]:
    """Fixes that swap the two factors of the average; empty if the program does not show both."""
    program = story.program
    nodes = [_factor(story, event, label) for event, label in found.parts] if program.tree is not None else []
    title = T(en="Exchange the two numbers", zh="交换这两个数")
    if len(nodes) == 1 and nodes[0] is not None:
        given = nodes[0]
        turned = (
            program.segment(given.right)
            if _from_one(given) and isinstance(given, ast.BinOp)
            else f"1 - {operand(program, given)}"
        )
        return unique(program.text, [Fix(title, program.replace((given, turned)), meaning="later")])
    if len(nodes) == 2:
        nodes = [node or _same_text(story, found.parts[i][0], nodes[1 - i]) for i, node in enumerate(nodes)]
    if len(nodes) == 2 and nodes[0] is not None and nodes[1] is not None:
        one, other = nodes[0], nodes[1]
        if isinstance(sum_of := program.parents.get(one), ast.BinOp) and isinstance(
            also := program.parents.get(other), ast.BinOp
        ):
            one = (
                sum_of.left if one is sum_of.right else sum_of.right
            )  # the tensors change places: no parentheses are left over
            other = also.left if other is also.right else also.right
        return unique(
            program.text,
            [
                Fix(
                    title,
                    program.replace((one, program.segment(other)), (other, program.segment(one))),
                    meaning="later",
                )
            ],
        )
    return ()


def _same_text(story: Story, event: Event, other: ast.expr | None) -> ast.expr | None:
    """Return the side of the product at ``event`` that is written like ``x`` in ``other``, if ``other`` is ``1 - x``;
    None if there is none.
    """
    program, node = story.program, story.program.at(story.span(event.step))
    if not isinstance(node, ast.BinOp) or not isinstance(other, ast.BinOp) or not _from_one(other):
        return None
    text = program.segment(other.right)
    return next((side for side in (node.left, node.right) if program.segment(side) == text), None)


def _from_one(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.left, ast.Constant)
        and node.left.value == 1
    )


def _factor(story: Story, event: Event, label: str) -> ast.expr | None:
    """Return the expression of the number in a multiplication, an addition with ``alpha``, or a ``lerp``.

    None if both sides of a product look equally like a number, or if the line is written in another way.
    """
    node = story.program.at(story.span(event.step))
    if isinstance(node, ast.BinOp):
        names = names_of(story, (story.tensor(label, event.step) or {}).get("storage"), event.step)
        left, right = (_like_a_number(story.program.segment(side), side, names) for side in (node.left, node.right))
        return None if left == right else node.left if left > right else node.right
    if isinstance(node, ast.AugAssign):
        return node.value
    if isinstance(node, ast.Call):
        named = next((k.value for k in node.keywords if k.arg in ("alpha", "weight", "other")), None)
        return named or (node.args[-1] if node.args and event.name not in ("add_", "add") else None)
    return None


def _like_a_number(text: str, node: ast.expr, names: set[str]) -> int:
    """How surely an expression is a number: 3 for a literal, 2 for ``1 - x``, 1 for a variable or attribute that is not
    in ``names`` (those of tensors), else 0.
    """
    if isinstance(node, ast.Constant):
        return 3
    if _from_one(node):
        return 2
    named = isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and node.attr not in ("data", "grad"))
    return int(named and text not in names)


RULE = Rule(
    code="PL650",
    name="average-of-the-newest",
    severity="warning",
    title=T(en="A moving average keeps almost nothing of its past", zh="滑动平均几乎不保留过去"),
    what=T(
        en="A program keeps a slow average of a network's weights, and gives the large number to the new weights. "
        "So the average is the newest weights, and smooths nothing. Exchange the numbers: `average = 0.99 * "
        "average + 0.01 * weight`.",
        zh="程序保存网络权重的缓慢平均，却把大的那个数给了新权重。于是平均值就是最新的权重，什么也没有平滑。请交换两个"
        "数：`average = 0.99 * average + 0.01 * weight`。",
    ),
    why=T(
        en="The number is called decay, momentum, beta or tau, and means the share of the old value in one "
        "place and of the new one in another: `tau` of a soft update is the share of the new weights (0.005), "
        "a decay that of the old ones (0.999), and `lerp_(new, w)` takes w of the new value. Torch cannot "
        "know which was meant; both run.",
        zh="这个数叫 decay、momentum、beta 或 tau，在一个地方指旧值的份额，在另一个地方指新值的份额：软更新的 "
        "`tau` 是新权重的份额（0.005），decay 是旧值的份额（0.999），而 `lerp_(new, w)` 取新值的 w。torch 无法知道"
        "想要的是哪一个；两种都能运行。",
    ),
    bad="""import copy

import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
slow = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
decay = 0.99
for _ in range(3):
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for average, weight in zip(slow.parameters(), net.parameters()):
            average.mul_(1 - decay).add_(weight, alpha=decay)  # PL650
    print(slow(x).mean().item(), net(x).mean().item())
""",
    good="""import copy

import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
slow = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
decay = 0.99
for _ in range(3):
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for average, weight in zip(slow.parameters(), net.parameters()):
            average.mul_(decay).add_(weight, alpha=1 - decay)
    print(slow(x).mean().item(), net(x).mean().item())
""",
    find=find,
    traps=(
        Trap(
            "decay = 0.99",
            "decay = 0.999",
            T(en="A larger decay takes even more of the new weights here.", zh="衰减越大，这里取的新权重反而越多。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.lerp.html",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
)
