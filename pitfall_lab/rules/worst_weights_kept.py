"""PL665: weights are kept where a loss is larger than the best so far, or an accuracy smaller."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import converted
from pitfall_lab.rules.kit.number_origins import conversions
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.loss_slopes import slopes
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = operations_that("difference_loss") | {"binary_cross_entropy", "binary_cross_entropy_with_logits",
                                               "cross_entropy", "nll_loss"}  # fmt: skip
"""Functions that are smaller, the better a prediction is."""
POWERS = spellings("pow", "square", "abs")
TAKES = spellings("sub")
HITS = spellings("eq")
CASTS = spellings("mul", "div") | {"cpu", "detach", "double", "float", "mean", "sqrt", "sum", "to"}
"""Calls of one tensor between a loss, or hits, and the number that is compared."""
KEEPS = {"state_dict", "deepcopy"}
"""Calls that keep the weights of a model."""
GREATER, LESS = (ast.Gt, ast.GtE), (ast.Lt, ast.LtE)
SIGNS = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<="}
MEANT = re.compile("worst|hard|prev|last|old|max|min|low|high|forget|attack|adv|domain|priv|leak|bias", re.IGNORECASE)
"""Names that say that it is not the best that is looked for."""
CONVERTS = ("item", "__float__", "tolist")
"""Calls that make a Python number of a tensor."""
FURTHER = 10


@dataclass(frozen=True, slots=True)
class WorstKept:
    """``test`` is the comparison in the condition of an ``if`` statement: where ``new`` (a part of it) is on the worse
    side of ``best``, a branch with the statements ``branch`` keeps the weights and sets ``best``.

    ``grows``: worse is larger, as of a loss. ``events`` are the calls (each an ``Event``) that converted the numbers.
    """

    test: ast.Compare
    new: ast.expr
    best: ast.expr
    branch: tuple[ast.stmt, ...]
    grows: bool
    events: tuple[Event, ...] = ()


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``if`` statement that keeps the weights of a model, and a number as the best so far,
    where this is a loss that is larger than before, or a share of hits that is smaller.

    Only where some backward made such a loss smaller, and none made one larger.
    """
    is_trained = None
    for found in _kept(story.program) if story.program.tree is not None else ():
        events = _events(story, found) if _keeps_weights(story, found) else []
        kinds = {_kind(story, label, step) for label, step in events}
        if kinds != {"loss" if found.grows else "hits"}:
            continue
        if is_trained is None:
            is_trained = _is_trained(story)
        if is_trained:
            yield from _finding(story, found, events)


def _kept(program: Program) -> Iterator[WorstKept]:
    for node in program.nodes:
        if not isinstance(node, ast.If):
            continue
        for test in _comparisons(node.test):
            for branch, is_else in ((node.body, False), (node.orelse, True)):
                found = _turned(program, test, branch, is_else=is_else)
                if found is not None:
                    yield found


def _comparisons(test: ast.expr) -> Iterator[ast.Compare]:
    for each in test.values if isinstance(test, ast.BoolOp) else [test]:
        if isinstance(each, ast.Compare) and len(each.ops) == 1 and isinstance(each.ops[0], GREATER + LESS):
            yield each


def _turned(program: Program, test: ast.Compare, branch: list[ast.stmt], *, is_else: bool) -> WorstKept | None:
    """The comparison of a number with the best one so far, if the branch sets that and keeps weights; else None."""
    if not any(isinstance(n, ast.Call) and called(n) in KEEPS for each in branch for n in ast.walk(each)):
        return None
    left, right = test.left, test.comparators[0]
    pairs = {(program.segment(a), program.segment(b)) for each in branch for a, b in _pairs(each)}
    for new, best in ((left, right), (right, left)):
        kept = best.left if isinstance(best, ast.BinOp) and isinstance(best.op, ast.Add | ast.Sub) else best
        texts = program.segment(kept), program.segment(new)
        if texts in pairs and not any(MEANT.search(each) for each in texts):
            grows = (isinstance(test.ops[0], GREATER) == (new is left)) != is_else
            return WorstKept(test, new, kept, tuple(branch), grows)
    return None


def _pairs(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of an assignment, each with its value; a tuple assigned to a tuple of the same length gives one
    pair for each element. Nothing for other statements.
    """
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        value = statement.value  # type: ignore[attr-defined]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _keeps_weights(story: Story, found: WorstKept) -> bool:
    """Whether a branch keeps the state of a module, or copies one: a copy reads the data of parameters."""
    calls = [n for each in found.branch for n in ast.walk(each) if isinstance(n, ast.Call)]
    read = (e.operands[0].label for n in calls if called(n) == "deepcopy" for e in story.within(n) if e.name == "data")
    return any(called(n) == "state_dict" for n in calls) or any(
        (story.tensor(label) or {}).get("kind") == "parameter" for label in read
    )


def _events(story: Story, found: WorstKept) -> list[tuple[str | None, int]]:
    """The tensors whose numbers are compared, each a label with the step of its use: those that were converted before,
    or the one that is compared itself.
    """
    program = story.program
    nodes = conversions(program, found.new)
    if nodes:
        places = {program.place(node) for node in nodes}
        events = [e for e in story.calls(*CONVERTS) if e.span in places and e.operands]
        return [(event.operands[0].label, event.step) for event in events]
    compared = story.calls(*spellings("gt", "ge", "lt", "le"))
    place = program.place(found.test)
    first = program.segment(found.test.left) == program.segment(found.new)
    return [(e.operands[0 if first else -1].label, e.step) for e in compared if e.span == place and e.operands]


def _kind(story: Story, label: str | None, step: int) -> Literal["loss", "hits"] | None:
    """``"loss"`` if a number is a mean or a sum of losses, ``"hits"`` if of hits; None if it is neither."""
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given:
            return None
        if _is_loss(story, made):
            return "loss"
        if made.name in HITS:
            return "hits"
        turned = any(o.text.startswith("-") and made.name not in ("mean", "sum") for o in made.operands if not o.label)
        if made.name not in CASTS or len(given) != 1 or turned:
            return None
        label, step = given[0], made.step
    return None


def _is_loss(story: Story, made: Event) -> bool:
    """Whether a call computes a loss: one of torch's, or squares or absolute values of differences."""
    if made.name in LOSSES:
        return True
    inner = made_by(story, made.operands[0].label, made.step) if made.name in POWERS and made.operands else None
    return inner is not None and inner.name in TAKES and sum(o.label is not None for o in inner.operands) > 1


def _is_trained(story: Story) -> bool:
    """Whether a backward made such a loss smaller, and none made one larger."""
    signs, places = set[int](), set[object]()
    for back in story.backwards():
        place = story.span(back.step)
        if place in places or not back.operands:
            continue
        places.add(place)
        for label, ways in slopes(story, back.operands[0].label, back.step).items():
            made = made_by(story, label, back.step)
            if made is not None and made.operands and _is_loss(story, made):
                signs |= {each.sign for each in ways}
    return signs == {1}


def _numbers(story: Story, found: WorstKept, events: list[tuple[str | None, int]]) -> tuple[float, float] | None:
    """The number whose weights were kept last, and the best number; None if the trace does not have them.

    Only where each number is compared just as it was measured.
    """
    nodes = conversions(story.program, found.new)
    given = [event for event in (story.event(step) for _, step in events) if event is not None]
    if nodes is None or len(nodes) != 1:
        return None
    values = {event.step: value for event in given if (value := converted(story, event)) is not None}
    lines = range(found.branch[0].lineno, (found.branch[-1].end_lineno or 0) + 1)
    saved = [each.step for each in story.trace.beside.savings if each.span is not None and each.span.line in lines]
    before = [step for step in values if saved and step < max(saved)]
    if not before or len({story.event(step).span for step in values if story.event(step)}) != 1:  # type: ignore[union-attr]
        return None
    return values[max(before)], (min if found.grows else max)(values.values())


def _finding(story: Story, found: WorstKept, events: list[tuple[str | None, int]]) -> Iterator[Finding]:
    program, step = story.program, events[0][1]
    span, measured = program.place(found.test), story.span(step)
    known = _numbers(story, found, events)
    if known is not None and known[0] == known[1]:
        return
    here, what = at_line(story, span), program.segment(found.new)
    larger = T(en="larger", zh="大于") if found.grows else T(en="smaller", zh="小于")
    kind = T(en="loss", zh="损失") if found.grows else T(en="share of hits", zh="命中率")
    values = T(en="", zh="")
    if known is not None:
        kept, best = number(known[0]), number(known[1])
        values = T(
            en=f" Those with {kept} were kept, although {best} was measured, too.",
            zh=f"被保留的是 {kept} 时的权重，尽管也测到过 {best}。",
        )
    yield RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} keeps the weights where the {kind.en} `{what}` is {larger.en} than the best so "
            "far, which are the worst ones.",
            zh=f"{here.zh}在{kind.zh} `{what}` {larger.zh}目前最好的值时保留权重，留下的是最差的权重。",
        ),
        T(
            en=f"`{program.segment(found.best)}` becomes `{what}` there, and the next comparison is with that, so each "
            f"copy is of worse weights than the one before.{values.en} Turn the comparison round, and let the best "
            f"begin with {'infinity' if found.grows else 'a number below all others'}.",
            zh=f"`{program.segment(found.best)}` 在那里变为 `{what}`，下一次就与它比较，于是每次保留的权重都比上一次的"
            f"差。{values.zh}请把比较反过来，并让最好的值从{'无穷大' if found.grows else '比所有值都小的数'}开始。",
        ),
        related=[] if measured is None else [story.related("made", step, T(en="measured here", zh="在这里测量"))],
        fixes=_fixes(program, found),
        facts=[Fact("grows", found.grows, story.by(step))],
    )


def _fixes(program: Program, found: WorstKept) -> tuple[Fix, ...]:
    """A fix that reverses the comparison, and sets the other infinity as the first best number; empty if the comparison
    has a margin.
    """
    left, right = found.test.left, found.test.comparators[0]
    if isinstance(left, ast.BinOp) or isinstance(right, ast.BinOp):
        return ()
    sign = SIGNS[type(found.test.ops[0])].translate(str.maketrans("<>", "><"))
    new = f"{program.segment(left)} {sign} {program.segment(right)}"
    begin = 'float("inf")' if found.grows else 'float("-inf")'
    edits: list[tuple[ast.AST, str]] = [(found.test, new)]
    for node in program.nodes:
        for target, value in _pairs(node) if isinstance(node, ast.Assign) and node not in found.branch else ():
            if program.segment(target) == program.segment(found.best) and (text := _begun(program, value, begin)):
                edits.append((value, text))
    title = T(en=f"Turn the comparison round: `{new}`", zh=f"把比较反过来：`{new}`")
    return unique(program.text, [Fix(title, program.replace(*edits), meaning="later")])


def _begun(program: Program, value: ast.expr, begin: str) -> str:
    """The source of a number, or of a tensor of one number, that is ``begin`` in place of ``value``; empty if ``value``
    is neither.
    """
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and called(value) in ("zeros", "tensor"):
        return f"{program.segment(value.func.value)}.tensor({begin})"
    inner = value.operand if isinstance(value, ast.UnaryOp) else value
    is_constant = isinstance(inner, ast.Constant) and isinstance(inner.value, int | float)
    return begin if is_constant or "inf" in program.segment(value) else ""


RULE = Rule(
    code="PL665",
    name="worst-weights-kept",
    severity="warning",
    title=T(en="The weights of the worst round are kept for the best", zh="把最差一轮的权重当作最好的保留"),
    what=T(
        en="A training keeps the weights of its best round by comparing a number with the best one so far. The "
        "comparison is turned round: a loss is better when it is smaller, and an accuracy when it is larger. Where "
        "the best begins with 0, the first loss is larger, so the program seems to work. Turn the comparison round, "
        "and begin with infinity for a loss.",
        zh="训练时，程序把一个数与目前最好的值比较，以保留最好一轮的权重。这里比较反了：损失越小越好，准确率越大越好。如果"
        "最好的值从 0 开始，第一个损失就比它大，程序看起来正常。请把比较反过来；对损失，从无穷大开始。",
    ),
    why=T(
        en="Code for an accuracy begins with `best = 0.0` and asks `if value > best`; for a loss both have to be "
        "turned round, and nothing raises if they are not. With early stopping the training then ends as soon as the "
        "loss falls, and what is loaded at the end are the weights of about the first round.",
        zh="用于准确率的代码从 `best = 0.0` 开始，条件是 `if value > best`；对损失，两处都要反过来，不改也不会报错。"
        "配合提前停止时，损失一下降训练就结束，最后加载的大约是第一轮的权重。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, seen = torch.randn(40, 3), torch.randn(40, 3)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
best, kept = 0.0, None
for _ in range(20):
    loss = torch.nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        value = torch.nn.functional.mse_loss(net(seen), seen.sum(1, keepdim=True)).item()  # made
    if value > best:  # PL665
        best = value
        kept = {name: each.clone() for name, each in net.state_dict().items()}
net.load_state_dict(kept)
with torch.no_grad():
    print("error", (net(seen) - seen.sum(1, keepdim=True)).square().mean().item())
""",
    good="""import torch

torch.manual_seed(0)
x, seen = torch.randn(40, 3), torch.randn(40, 3)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
best, kept = float("inf"), None
for _ in range(20):
    loss = torch.nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        value = torch.nn.functional.mse_loss(net(seen), seen.sum(1, keepdim=True)).item()
    if value < best:
        best = value
        kept = {name: each.clone() for name, each in net.state_dict().items()}
net.load_state_dict(kept)
with torch.no_grad():
    print("error", (net(seen) - seen.sum(1, keepdim=True)).square().mean().item())
""",
    find=find,
    traps=(
        Trap(
            "best, kept = 0.0, None",
            'best, kept = float("-inf"), None',
            T(
                en="Another beginning only decides about the first round.",
                zh="换一个起始值只影响第一轮。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
