"""PL692: an optimizer written in the program steps with the learning rate it was made with, although the rate of its
parameter groups was changed.
"""

from __future__ import annotations

import ast
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import rate_facts
from pitfall_lab.trace import Event, OptimizerMade, Span, T

MOVED = 0.05
"""By which share of the first rate a later one has to differ from it."""
AFTER = 2
"""How many steps with a changed rate must be recorded at least."""
EQUAL, FINE = 1e-9, 1e-12
"""``EQUAL``: the relative, ``FINE``: the absolute difference up to which numbers count as equal."""
LOOPS = (ast.For, ast.AsyncFor)

NumberPlace = tuple[Span | None, str, int]
"""Where a number was given: the span of the call, its operation, and the position among the operands."""


@dataclass(frozen=True, slots=True)
class RateKept:
    """``optimizer`` is an optimizer (:class:`OptimizerMade`) whose recorded steps all used the number ``rate``, with
    which it was made; ``event`` is the call (``Event``) with this number, in the first step with another rate of the
    groups.
    """

    optimizer: OptimizerMade
    rate: float
    event: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each optimizer of a class of the program of which the rate was changed between steps, where
    the writes to its parameters take the rate it was made with in every step, and no number follows the change.
    """
    reported = set()
    for optimizer in story.trace.optimizers:
        found = _kept(story, optimizer)
        if found is not None and (place := story.span(found.event.step)) not in reported:
            reported.add(place)
            yield _finding(story, found)


def _kept(story: Story, optimizer: OptimizerMade) -> RateKept | None:
    classes = _classes(story.program, optimizer.optimizer)
    if not classes or optimizer.apart or len(optimizer.given) != 1 or not optimizer.given[0] > 0:
        return None
    rate = optimizer.given[0]
    steps = _steps(story, optimizer, {f"{each.name}.step" for each in classes}) if _moved(optimizer, rate) else []
    later = [step for step in steps if abs(_rate_at(optimizer, step[0].step) - rate) > MOVED * rate]
    if len(later) < AFTER or _delegates(story, steps):
        return None
    numbers = [_numbers(step) for step in steps]
    rates = [_rate_at(optimizer, step[0].step) for step in steps]
    if _follows(numbers, rates, rate) or (_varies(numbers) and _reads_rate(classes)):
        return None
    kept = [
        event
        for place, event in _factors(story, optimizer, later[0])
        if all(_same(abs(each.get(place, math.nan)), rate) for each in numbers)
    ]
    fits = kept and (rate != 1 or _nodes(story.program, classes))
    return RateKept(optimizer, rate, kept[0]) if fits else None


def _moved(optimizer: OptimizerMade, rate: float) -> bool:
    return any(abs(other - rate) > MOVED * rate for _, other in optimizer.rates)


def _rate_at(optimizer: OptimizerMade, step: int) -> float:
    """The rate of the groups at ``step`` of the trace; the first one before the first step of the optimizer."""
    at = max(bisect_right(optimizer.begins, step) - 1, 0)
    return optimizer.rates[at][1]


def _classes(program: Program, name: str) -> list[ast.ClassDef]:
    """The class ``name`` of the program and the classes of the program that it derives from, nearest first."""
    known = {node.name: node for node in program.nodes if isinstance(node, ast.ClassDef)}
    found: list[ast.ClassDef] = []
    pending = [name]
    while pending:
        node = known.get(pending.pop(0))
        if node is not None and node not in found:
            found.append(node)
            pending += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return found


def _steps(story: Story, optimizer: OptimizerMade, scopes: set[str]) -> list[list[Event]]:
    """The calls made in each recorded step of the optimizer, without steps that wrote to none of its parameters."""
    found: list[list[Event]] = [[]]
    for event in story.calls():
        if event.parent is not None or event.error is not None:
            continue
        if scopes.intersection(event.scope):
            found[-1].append(event)
        elif found[-1]:
            found.append([])
    return [step for step in found if any(_writes(story, optimizer, event) for event in step)]


def _writes(story: Story, optimizer: OptimizerMade, event: Event) -> bool:
    """Whether a call writes to a parameter of the optimizer, in place or by assigning ``.data``."""
    if event.op == "torch.Tensor.data.__set__":
        return event.operands[0].label in optimizer.holds
    held = {(story.tensor(label, event.step) or {}).get("storage") for label in optimizer.holds}
    return bool(held.intersection(event.writes))


def _delegates(story: Story, steps: list[list[Event]]) -> bool:
    """Whether a step calls the ``step`` of another optimizer."""
    return any(story.said(event.step) == "step" for event in {e.span: e for step in steps for e in step}.values())


def _numbers(step: list[Event]) -> dict[NumberPlace, float]:
    """The number at each place of a step where one was given; the first one where there are several."""
    found: dict[NumberPlace, float] = {}
    for event in step:
        for at, operand in enumerate(event.operands):
            if operand.label is None and (value := _number(operand.text)) is not None:
                found.setdefault((event.span, event.op, at), value)
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=EQUAL)


def _follows(numbers: list[dict[NumberPlace, float]], rates: list[float], rate: float) -> bool:
    """Whether a number of the steps is the rate of its step where that is not ``rate``, or changes in proportion to the
    rates of the steps, or is 1 minus a number that does.
    """
    for step, now in zip(numbers, rates, strict=True):
        if not _same(now, rate) and any(_same(abs(value), now) for value in step.values()):
            return True
    for place in numbers[0]:
        pairs = [(step[place], now) for step, now in zip(numbers, rates, strict=True) if place in step]
        if _in_proportion(pairs) or _in_proportion([(1 - value, now) for value, now in pairs]):
            return True
    return False


def _in_proportion(pairs: list[tuple[float, float]]) -> bool:
    """Whether the first of each pair changes from pair to pair, and is always the same multiple of the second."""
    first, rate = pairs[0]
    moves = any(not _same(value, first) for value, _ in pairs)
    return moves and all(abs(value * rate - first * now) <= FINE * rate for value, now in pairs)


def _varies(numbers: list[dict[NumberPlace, float]]) -> bool:
    """Whether a number of the first step is another one in a later step."""
    return any(not _same(value, step.get(place, value)) for place, value in numbers[0].items() for step in numbers)


def _reads_rate(classes: list[ast.ClassDef]) -> bool:
    """Whether the classes read ``"lr"`` outside ``__init__``, other than from ``self.defaults``."""
    for each in classes:
        for part in each.body:
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                continue
            frozen = {
                id(node.slice) for node in ast.walk(part) if isinstance(node, ast.Subscript) and _is_default(node)
            }
            if any(isinstance(n, ast.Constant) and n.value == "lr" and id(n) not in frozen for n in ast.walk(part)):
                return True
    return False


def _is_default(node: ast.AST) -> bool:
    """Whether the node is ``self.defaults["lr"]``."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "defaults"
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == "lr"
    )


def _factors(story: Story, optimizer: OptimizerMade, step: list[Event]) -> Iterator[tuple[NumberPlace, Event]]:
    """Yield the places of numbers in the calls that write to a parameter and, nearest first, in the calls of this step
    from which the written values come.
    """
    for at, write in enumerate(step):
        if not _writes(story, optimizer, write):
            continue
        needed = {operand.label for operand in write.operands[1:]} - set(optimizer.holds)
        yield from _given(write)
        for event in reversed(step[:at]):
            if needed.intersection(event.results) and not _writes(story, optimizer, event):
                needed.update(operand.label for operand in event.operands)
                yield from _given(event)


def _given(event: Event) -> Iterator[tuple[NumberPlace, Event]]:
    for at, operand in enumerate(event.operands):
        if operand.label is None and _number(operand.text) is not None:
            yield (event.span, event.op, at), event


def _finding(story: Story, found: RateKept) -> Finding:
    optimizer, event = found.optimizer, found.event
    here, kind, rate = at_line(story, story.span(event.step)), optimizer.optimizer, number(found.rate)
    rates = [value for _, value in optimizer.rates]
    low, high = number(min(rates)), number(max(rates))
    span = T(en=f"between {low} and {high}", zh=f"在 {low} 与 {high} 之间")
    if low == high:
        span = T(en=low, zh=f"为 {low}")
    schedule = next((s for s in story.trace.beside.schedulers if s.optimizer == _place(story, optimizer)), None)
    related = (
        [Related("made", schedule.span, schedule.step, T(en="sets the rate", zh="设置学习率"))] if schedule else []
    )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} uses the factor {rate} in each step of `{kind}`, while the learning rate of its "
            f"groups was {span.en}: changes of the rate have no effect.",
            zh=f"`{kind}` 的每一步里，{here.zh}都用系数 {rate}，而它各组的学习率{span.zh}：改变学习率不起作用。",
        ),
        T(
            en=f"A scheduler, or a line that sets a rate, writes to `param_groups[i]['lr']` and nowhere else. `{kind}` "
            f"was made with {rate} and steps with that number all the time, so it does not matter what the groups say. "
            'Read `group["lr"]` in each step.',
            zh=f"调度器或设置学习率的语句只写入 `param_groups[i]['lr']`。`{kind}` 创建时得到 {rate}，此后一直"
            '用这个数来更新，组里写的是什么并不重要。请在每一步读取 `group["lr"]`。',
        ),
        related=related,
        fixes=_fixes(story.program, _classes(story.program, kind)),
        facts=[Fact("rate", found.rate, story.by(event.step)), Fact("rates", rates[:12]), *rate_facts(optimizer)],
    )


def _place(story: Story, optimizer: OptimizerMade) -> int:
    return next(at for at, each in enumerate(story.trace.optimizers) if each is optimizer)


def _nodes(program: Program, classes: Sequence[ast.ClassDef]) -> list[tuple[ast.AST, str]]:
    """The expressions in the ``step`` of the classes that read the rate of the beginning (``self.lr``,
    ``self.defaults["lr"]``), each with the expression that reads the rate of the group.
    """
    functions = [part for each in classes for part in each.body if isinstance(part, ast.FunctionDef)]
    kept = {name for part in functions if part.name == "__init__" for name in _copies(part)}
    step = next((part for part in functions if part.name == "step"), None)
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(step) if step is not None else ():
        is_copy = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and program.segment(node) in kept
        if is_copy or _is_default(node):
            found.append((node, f'{_group(program, node)}["lr"]'))
    return found


def _copies(function: Function) -> Iterator[str]:
    """Yield the attributes to which ``__init__`` assigns the rate: ``self.lr``."""
    names = {"lr"} | {
        word.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "lr" and isinstance(word.value, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield from (ast.unparse(target) for target in node.targets if isinstance(target, ast.Attribute))


def _group(program: Program, node: ast.AST) -> str:
    """The expression of the parameter group where ``node`` is: the variable of the loop around it, or the first
    group.
    """
    for around in program.ancestors(node):
        if isinstance(around, LOOPS) and isinstance(around.target, ast.Name):
            groups = program.segment(around.iter)
            if groups.endswith(".param_groups"):
                return around.target.id
    return "self.param_groups[0]"


def _fixes(program: Program, classes: Sequence[ast.ClassDef]) -> tuple[Fix, ...]:
    """A fix that reads the rate of the group in ``step``; empty where the source does not show the kept one."""
    changes = _nodes(program, classes)
    if not changes:
        return ()
    title = T(en=f"Read the rate of the group: `{changes[0][1]}`", zh=f"读取组的学习率：`{changes[0][1]}`")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")])


RULE = Rule(
    code="PL692",
    name="rate-kept-from-the-start",
    severity="warning",
    title=T(
        en="An optimizer steps with the rate it was made with, whatever its groups say",
        zh="优化器一直用创建时的学习率更新，不管各组写的是什么",
    ),
    what=T(
        en="An optimizer written in the program keeps the learning rate it was made with, and steps with that. A "
        "schedule changes the rate in the optimizer's groups, and prints it, but each step is as large as at the "
        'beginning. Read `group["lr"]` in each step.',
        zh="程序自己写的优化器保存了创建时的学习率，并一直用它更新。调度改变了优化器各组里的学习率，打印出来的也是新值，"
        '但每一步仍和开始时一样大。请在每一步读取 `group["lr"]`。',
    ),
    why=T(
        en="The options of an optimizer are copied to each of its groups, `param_groups[i]`, and that copy is the one "
        "that schedulers, `load_state_dict` and programs change. torch does not look at other attributes of an "
        "optimizer, such as `self.lr`, nor at `self.defaults`, which are only used when a group is added. No call "
        "fails, and the printed rates look as planned.",
        zh="优化器的选项会复制到每个参数组 `param_groups[i]` 中，调度器、`load_state_dict` 和程序改变的都是这份副本。"
        "torch 不看优化器的其他属性（例如 `self.lr`），也不看 `self.defaults`，后者只在添加参数组时使用。没有调用会失"
        "败，打印出来的学习率也与计划一致。",
    ),
    bad="""import torch

class Signs(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))
        self.lr = lr

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad.sign(), alpha=-self.lr)  # PL692

w = torch.zeros(1, requires_grad=True)
opt = Signs([w], lr=0.4)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)  # made
for _ in range(8):
    opt.zero_grad()
    (w - 0.7).square().sum().backward()
    opt.step()
    schedule.step()
print(w.item())
""",
    good="""import torch

class Signs(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))
        self.lr = lr

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad.sign(), alpha=-group["lr"])

w = torch.zeros(1, requires_grad=True)
opt = Signs([w], lr=0.4)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
for _ in range(8):
    opt.zero_grad()
    (w - 0.7).square().sum().backward()
    opt.step()
    schedule.step()
print(w.item())
""",
    find=find,
    traps=(
        Trap(
            "alpha=-self.lr",
            'alpha=-self.defaults["lr"]',
            T(
                en="`defaults` has the options for groups that are added later; a scheduler does not change it.",
                zh="`defaults` 是给以后添加的参数组用的选项，调度器不会改变它。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/optim.html#base-class",),
)
