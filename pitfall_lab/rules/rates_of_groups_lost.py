"""PL667: the parameter groups of an optimizer were given rates of their own, and all step with one and the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import OptimizerMade, Span, T

FEWEST = 2


@dataclass(frozen=True, slots=True)
class Setter:
    """What gives all parameter groups of an optimizer one learning rate: ``node`` is the assignment in a loop over the
    groups, or the call of a scheduler; ``span`` is its place in the source, None where it is not known.
    """

    node: ast.Assign | ast.Call
    span: Span | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each optimizer whose groups were given different rates and never stepped with different
    ones.

    Only where the program sets the rates of all groups to one number, in a loop over the groups or by a scheduler.
    """
    for place, optimizer in enumerate(story.trace.optimizers):
        if len(optimizer.given) > 1 and not optimizer.apart and optimizer.steps >= FEWEST and optimizer.rates:
            setter = _written(story.program) or _scheduled(story, place)
            if setter is not None:
                yield _finding(story, place, optimizer, setter)


def _written(program: Program) -> Setter | None:
    """The assignment to ``["lr"]`` of the variable of a loop over ``param_groups``, if the program has one of them.

    None if what it assigns depends on the group.
    """
    found = []
    for loop in (n for n in program.nodes if isinstance(n, ast.For) and isinstance(n.target, ast.Name)):
        group = loop.target.id if isinstance(loop.target, ast.Name) else ""
        for node in ast.walk(loop):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not _is_rate(node.targets[0], group):
                continue
            if any(isinstance(n, ast.Name) and n.id == group for n in ast.walk(node.value)):
                return None
            if isinstance(loop.iter, ast.Attribute) and loop.iter.attr == "param_groups":
                found.append(node)
    return Setter(found[0], program.place(found[0])) if len(found) == 1 else None


def _is_rate(node: ast.expr, group: str) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == group
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == "lr"
    )


def _scheduled(story: Story, place: int) -> Setter | None:
    """The call that makes the scheduler of the optimizer, if it gives all groups one highest rate; else None."""
    for scheduler in story.trace.beside.schedulers:
        call = call_of(story, scheduler.span) if scheduler.optimizer == place and scheduler.made else None
        if call is not None and scheduler.scheduler in ("OneCycleLR", "CyclicLR") and _highest(call) is not None:
            return Setter(call, scheduler.span)
    return None


def _highest(call: ast.Call) -> ast.expr | None:
    """The single rate that a call of ``OneCycleLR`` or ``CyclicLR`` is given as the highest for all groups; None if it
    is given a list or none.
    """
    given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "max_lr")]
    return given[0] if given and not isinstance(given[0], ast.List | ast.Tuple | ast.ListComp) else None


def _finding(story: Story, place: int, optimizer: OptimizerMade, setter: Setter) -> Finding:
    here, there = at_line(story, setter.span), at_line(story, optimizer.span)
    given = [number(rate) for rate in optimizer.given]
    used = [number(rate) for rate in dict.fromkeys(rate for _, rate in optimizer.rates)]
    rates = T(en=" and ".join(given[:3]), zh="、".join(given[:3]))
    highest = max(rate for _, rate in optimizer.rates)
    lowest = min(optimizer.given)
    times = number(round(highest / lowest, 1)) if lowest else ""
    more = T(
        en=f" The group with the lowest rate stepped with up to {times} times of it." if times else "",
        zh=f"学习率最低的那一组，步子最大达到它应有的 {times} 倍。" if times else "",
    )
    first = next((step for step in story.trace.optimizer_steps if step.made == place), None)
    one = T(en="all groups step with one rate", zh="所有组用同一个学习率更新")
    related = [Related("made", optimizer.span, optimizer.step, T(en="the groups get their rates", zh="各组得到学习率"))]
    if first is not None:
        related.append(Related("step", first.span, first.step, one))
    return RULE.finding(
        setter.span,
        first.step if first is not None else optimizer.step,
        T(
            en=f"{capital(here.en)} sets all groups to one learning rate: the groups made on {there.en} were given "
            f"{rates.en}, and none of the {optimizer.steps} steps used different rates.",
            zh=f"{here.zh}把所有参数组设为同一个学习率：{there.zh}为各组给出了 {rates.zh}，而 {optimizer.steps} 步中没"
            "有一步用过不同的学习率。",
        ),
        T(
            en=f"All groups stepped with {', '.join(used[:4])}{' …' if len(used) > 4 else ''}.{more.en} A rate of "
            "its own for pretrained layers keeps them near what they have learned; overwritten before the first "
            "step, it has no effect.",
            zh=f"所有组都用 {'、'.join(used[:4])}{' …' if len(used) > 4 else ''} 更新。{more.zh}给预训练的层单独设一"
            "个学习率，是为了让它们留在学到的东西附近；在第一步之前就被覆盖，它便没有作用。",
        ),
        related=related,
        fixes=_fixes(story.program, setter, optimizer, story),
        facts=[Fact("given", list(optimizer.given)), Fact("steps", optimizer.steps)],
    )


def _fixes(program: Program, setter: Setter, optimizer: OptimizerMade, story: Story) -> tuple[Fix, ...]:
    """At most one fix: each group's own rate is scaled by the ratio of the single rate to the optimizer's default rate.
    Empty if the source does not show both.
    """
    node = setter.node
    if isinstance(node, ast.Assign):
        loop = next((a for a in program.ancestors(node) if isinstance(a, ast.For)), None)
        if loop is None or not isinstance(loop.iter, ast.Attribute):
            return ()
        group, owner = program.segment(loop.target), program.segment(loop.iter.value)
        own = f'{group}.setdefault("initial_lr", {group}["lr"])'
        value, new = node.value, f'{own} * {_factor(program, node.value)} / {owner}.defaults["lr"]'
        title = T(en="Multiply each group's own rate", zh="乘在每一组自己的学习率上")
        return unique(program.text, [Fix(title, program.replace((value, new)), meaning="later")])
    highest = _highest(node)
    made = call_of(story, optimizer.span)
    owner = program.segment(node.args[0]) if node.args else ""
    if highest is None or not owner or made is None or called(made) != optimizer.optimizer:
        return ()
    new = f'[{_factor(program, highest)} * group["lr"] / {owner}.defaults["lr"] for group in {owner}.param_groups]'
    title = T(en="Give each group a highest rate of its own", zh="给每一组各自的最高学习率")
    return unique(program.text, [Fix(title, program.replace((highest, new)), meaning="later")])


def _factor(program: Program, value: ast.expr) -> str:
    return program.segment(value) if isinstance(value, ast.Call | ast.Name) else operand(program, value)


RULE = Rule(
    code="PL667",
    name="rates-of-groups-lost",
    severity="warning",
    title=T(
        en="Groups of parameters are given learning rates of their own, and all step with one",
        zh="各组参数有自己的学习率，却都用同一个学习率更新",
    ),
    what=T(
        en="A program gives some layers a learning rate of their own, mostly a low one for layers that are trained "
        "already. Before the first step another line sets all layers to one rate, so the low one is never used. "
        "Multiply each group's own rate by the factor of the schedule.",
        zh="程序给一部分层单独设了学习率，通常是给已经训练好的层一个较低的值。第一步之前，另一行又把所有层设为同一个学"
        "习率，那个较低的值从未被用到。请把调度的系数乘在每一组自己的学习率上。",
    ),
    why=T(
        en='Each group of an optimizer is a dictionary, and `group["lr"]` is the rate that its next step uses. What is '
        "written there replaces what the constructor was given; nothing remembers it. Torch's schedulers keep it as "
        '`group["initial_lr"]` and multiply it by a factor, which leaves the ratio of the groups as it was. '
        "`OneCycleLR` and `CyclicLR` are the exception: a single `max_lr` holds for all groups, a list gives each "
        "its own.",
        zh='优化器的每一组是一个字典，`group["lr"]` 是它下一步使用的学习率。写进去的值会替换构造时给出的值，没有别处记'
        '着它。torch 的调度器把它保存为 `group["initial_lr"]`，再乘以系数，各组之间的比例因而不变。`OneCycleLR` 和 '
        "`CyclicLR` 是例外：单个 `max_lr` 对所有组都有效，列表才给每一组各自的值。",
    ),
    bad="""import torch

torch.manual_seed(0)
body, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
groups = [{"params": body.parameters(), "lr": 1e-4}, {"params": head.parameters()}]
opt = torch.optim.SGD(groups, lr=0.1)  # made
x, y = torch.randn(8, 3), torch.randn(8, 1)
start = body.weight.detach().clone()
for step in range(4):
    for group in opt.param_groups:
        group["lr"] = 0.1 * (step + 1) / 4  # PL667
    loss = (head(body(x).tanh()) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # step
print([group["lr"] for group in opt.param_groups], (body.weight - start).abs().max())
""",
    good="""import torch

torch.manual_seed(0)
body, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
groups = [{"params": body.parameters(), "lr": 1e-4}, {"params": head.parameters()}]
opt = torch.optim.SGD(groups, lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
start = body.weight.detach().clone()
for step in range(4):
    for group in opt.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * (0.1 * (step + 1) / 4) / opt.defaults["lr"]
    loss = (head(body(x).tanh()) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print([group["lr"] for group in opt.param_groups], (body.weight - start).abs().max())
""",
    find=find,
    traps=(
        Trap(
            '{"params": body.parameters(), "lr": 1e-4}',
            '{"params": body.parameters(), "lr": 1e-6}',
            T(en="A lower rate is overwritten like the first one.", zh="再低的学习率同样会被覆盖。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/optim.html#per-parameter-options",),
)
