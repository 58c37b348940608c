"""PL554: a factor of a term of the loss is trained with it, and nothing else in the loss depends on the factor."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import stepper
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.loss_slopes import Slope, slopes
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, values
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

OF_ONE = (
    SAME_NUMBERS | spellings("abs", "add", "mul", "neg", "pow", "sigmoid") | spellings("div", "sub", exchanged=True)
    | {"exp", "exp2", "getitem", "log_softmax", "mean", "reciprocal", "relu", "softmax", "softplus", "sqrt", "square",
       "sum", "tanh"}
)  # fmt: skip
"""Calls whose result is computed from a factor alone, if they have no other operand that requires grad."""
PRODUCTS = spellings("mul") | {"dot"}
MOST, FEWEST, MOVED = 64, 2, 0.02
"""The largest number of elements of a factor, the fewest iterations, and the fraction of itself by which the factor
must have moved.
"""


@dataclass(frozen=True, slots=True)
class Driven:
    """``product`` is the call (``Event``) that multiplied ``factor``, computed from ``parameter`` alone, by ``term``,
    before ``backward``, the backward of the loss (an ``Event``). ``parameter``, ``factor`` and ``term`` are labels.

    ``first`` and ``last`` are the values of one number of the factor in the first and the last iteration that was
    recorded.
    """

    parameter: str
    product: Event
    factor: str
    term: str
    backward: Event
    first: float
    last: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each parameter of at most ``MOST`` elements that an optimizer holds and that the loss
    depends on only as a factor of one of its terms, if that factor moved to where the loss is smaller.

    Only the last backward of each line is looked at. Nothing if the program writes the parameter itself.
    """
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    small = [label for label in held if _size(story, label) <= MOST]
    told = set[Span | None]()
    for backward in reversed(story.backwards()) if small else ():
        loss = backward.operands[0].label if backward.operands and backward.error is None else None
        if story.span(backward.step) in told or loss is None:
            continue
        told.add(story.span(backward.step))
        rising = slopes(story, loss, backward.step)
        for parameter in small:
            found = _driven(story, parameter, backward, rising)
            if found is not None:
                yield _finding(story, found)


def _size(story: Story, label: str) -> int:
    shape = story.shape(label)
    return MOST + 1 if shape is None else math.prod(shape)


def _driven(story: Story, parameter: str, backward: Event, rising: dict[str, list[Slope]]) -> Driven | None:
    """Return the data of the finding for a product of the last iteration with a factor computed from ``parameter``
    alone, if the loss depends on ``parameter`` only by such products; else None.
    """
    loss = backward.operands[0].label
    behind = set(story.behind((story.tensor(loss, backward.step) or {}).get("grad_fn")))
    before = max((b.step for b in story.backwards() if b.step < backward.step), default=-1)
    pending, seen, products = [parameter], {parameter}, list[tuple[Event, str, str]]()
    while pending:
        label = pending.pop()
        for use in story.uses(label):
            if not before < use.step < backward.step or use.error is not None or not use.results:
                continue
            node = (story.tensor(use.results[0], use.step) or {}).get("grad_fn")
            if node not in behind:
                continue
            others = [o.label for o in use.operands if o.label not in (None, *seen)]
            trained = [o for o in others if o is not None and (story.tensor(o, use.step) or {}).get("requires_grad")]
            if not trained and use.name.strip("_") in OF_ONE:
                fresh = [each for each in use.results if each not in seen]
                seen.update(fresh)
                pending += fresh
            elif len(trained) == 1 and use.name.strip("_") in PRODUCTS and use.results[0] in rising:
                products.append((use, label, trained[0]))
            else:
                return None
    flow = Flow(story)
    for product, factor, term in sorted(products, key=lambda each: each[0].step):
        if flow.leaves(term, product.step) - {parameter} and not _is_written(story, parameter):
            moved = _moved(story, product, (factor, term), rising[product.results[0]][0].sign)
            if moved is not None:
                return Driven(parameter, product, factor, term, backward, *moved)
    return None


def _is_written(story: Story, parameter: str) -> bool:
    """Whether anything but an optimizer wrote the parameter after the first backward: the program then limits it
    itself.
    """
    storage, first = str((story.tensor(parameter) or {}).get("storage")), story.backwards()[0].step
    members = {label for label, _ in story.tensors_on(storage)}
    writes = (story.events[step] for step in story.writes(storage, first, len(story.events)))
    # where rounds are left out, their updates are found at a call that has nothing to do with them
    own = (write for write in writes if members & {o.label for o in write.operands})
    return any(stepper(story, write.step) is None for write in own)


def _moved(story: Story, product: Event, pair: tuple[str, str], sign: int) -> tuple[float, float] | None:
    """Return a number of the factor in the first and in the last run of the product's line: the one whose move made the
    loss smallest.

    None if numbers are unknown, if that number hardly moved, or if all moves together did not make the loss smaller.
    ``pair`` is the factor and the term of the last run; ``sign`` is positive if the loss grows with the product, else
    negative.
    """
    rounds = story.steps_at.get((product.span, product.op), [])
    if len(rounds) < FEWEST:
        return None
    place = [o.label for o in product.operands].index(pair[0])
    event = story.event(rounds[0])
    label = event.operands[place].label if event is not None and len(event.operands) > place else None
    was, now, terms = (
        _numbers(story, each, step)
        for each, step in ((label, rounds[0]), (pair[0], product.step), (pair[1], product.step))
    )
    if not was or not terms or len(was) != len(now):
        return None
    gains = [sign * terms[i % len(terms)] * (new - old) for i, (old, new) in enumerate(zip(was, now, strict=True))]
    best = min(range(len(gains)), key=gains.__getitem__)
    has_moved = abs(now[best] - was[best]) > MOVED * abs(was[best])
    return (was[best], now[best]) if has_moved and gains[best] < 0 and sum(gains) < 0 else None


def _numbers(story: Story, label: str | None, step: int) -> list[float]:
    """Return the numbers of a tensor; empty if some are unknown, NaN or infinite."""
    known = values(story, label, step)
    return known if len(known) == _size(story, label or "") else []


def _finding(story: Story, found: Driven) -> Finding:
    step = found.product.step
    here, name = at_line(story, story.span(step)), expression(story, found.parameter, step)
    factor, term = expression(story, found.factor, step), expression(story, found.term, step)
    first, last = number(found.first), number(found.last)
    falls = abs(found.last) < abs(found.first)
    same = found.factor == found.parameter
    made = T(en="", zh="") if same else T(en=f", computed from {name.en},", zh=f"（由 {name.zh} 算出）")
    way = T(en="falls towards 0", zh="趋向 0") if falls else T(en="grows without a bound", zh="无限增大")
    # the first round: the fix changes all of them
    return RULE.finding(
        story.span(step),
        story.steps_at[found.product.span, found.product.op][0],
        T(
            en=f"{capital(here.en)} multiplies {term.en} by {factor.en}{made.en} and the optimizer trains that factor "
            f"to make the loss small. Nothing else in the loss depends on it, so it {way.en} ({first} → {last} in the "
            "rounds that were recorded), whatever the term is.",
            zh=f"{here.zh}把 {term.zh} 乘以 {factor.zh}{made.zh}，而优化器训练这个因子，使损失变小。损失的其他部分都"
            f"不依赖它，于是不论这一项是多少，它都会{way.zh}（在记录到的轮次中 {first} → {last}）。",
        ),
        T(
            en="A loss that is linear in a factor has no minimum in it: gradient descent makes the factor of a "
            "positive term smaller in every step, and the term no longer counts. A learned weight needs a part of the "
            "loss that grows when it falls (for `exp(-s) * loss` that is `+ s`). A multiplier of a constraint is not "
            "to be minimized but maximized: an optimizer of its own, with `maximize=True`.",
            zh="对某个因子是线性的损失，在这个因子上没有最小值：梯度下降每一步都让正项的因子变小，最后这一项不再起作用。要"
            "学习的权重，需要损失里有一部分在它变小时变大（对 `exp(-s) * loss` 就是 `+ s`）。约束的乘子不应最小化，而应"
            "最大化：给它单独的优化器，并设 `maximize=True`。",
        ),
        related=[
            story.related(
                "backward", found.backward.step, T(en="the factor gets its gradient from here", zh="因子从这里得到梯度")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("first", found.first, story.by(step)), Fact("last", found.last, story.by(step))],
    )


def _fixes(story: Story, found: Driven) -> tuple[Fix, ...]:
    """At most one fix: if the factor is ``exp(-s)``, it adds ``s.sum()`` to the loss; empty for other factors."""
    program = story.program
    node = program.at(story.span(found.product.step))
    made = next((e for e in story.calls("exp") if found.factor in e.results or _leads(story, e, found)), None)
    power = program.at(story.span(made.step)) if made is not None else None
    fixes = []
    if isinstance(node, ast.expr) and isinstance(power, ast.Call):
        source = power.args[0] if power.args else power.func.value if isinstance(power.func, ast.Attribute) else None
        inner = source.operand if isinstance(source, ast.UnaryOp) and isinstance(source.op, ast.USub) else None
        if inner is not None and isinstance(inner, ast.Name | ast.Attribute):
            whole = _sum_around(program, node)
            text = f"{program.segment(inner)}.sum()"
            title = T(en=f"Add what the weights cost: `+ {text}`", zh=f"加上权重的代价：`+ {text}`")
            fixes.append(Fix(title, program.replace((whole, f"{program.segment(whole)} + {text}")), meaning="later"))
    return unique(program.text, fixes)


def _leads(story: Story, event: Event, found: Driven) -> bool:
    """Whether the call that created the factor has a result of ``event`` as an operand."""
    born = story.event((story.tensor(found.factor, found.product.step) or {}).get("born"))
    return born is not None and bool({o.label for o in born.operands} & set(event.results))


def _sum_around(program: Program, node: ast.expr) -> ast.expr:
    """Return the largest sum or difference of which an expression is a term; the expression itself if there is none."""
    around: ast.AST | None = node
    while isinstance(around := program.parents.get(node), ast.BinOp) and isinstance(around.op, ast.Add | ast.Sub):
        node = around
    return node


RULE = Rule(
    code="PL554",
    name="factor-driven-to-zero",
    severity="warning",
    title=T(
        en="A weight in the loss is trained by that loss and nothing keeps it up",
        zh="损失里的权重由该损失本身训练，却没有任何东西撑住它",
    ),
    what=T(
        en="A program multiplies a part of its loss by a number that it trains together with the network. The loss "
        "gets smallest when that number is 0, so it goes there, and the part no longer counts.",
        zh="程序把损失的一部分乘以一个与网络一起训练的数。这个数为 0 时损失最小，于是它就走向 0，那一部分不再起作用。",
    ),
    why=T(
        en="Weights of tasks, temperatures and multipliers of constraints look like parameters like any other. But a "
        "loss that is a sum of `weight * term` always falls when a weight of a positive term falls: the training finds "
        "that way out before it finds a better network. Kendall's weights for several tasks are "
        "`exp(-s) * loss + s`; the second part is what stops the first. For a constraint, the multiplier plays "
        "against the loss and has to rise where the constraint is broken: it is maximized.",
        zh="任务的权重、温度、约束的乘子看上去和其他参数一样。但是，由 `权重 * 项` 相加而成的损失，只要正项的权重变小就"
        "一定变小：训练先找到这条出路，而不是更好的网络。Kendall 的多任务权重是 `exp(-s) * loss + s`；后一部分正是用来"
        "阻止前一部分的。对于约束，乘子与损失对抗，约束被违反时它应当增大：它是要被最大化的。",
    ),
    advice=T(
        en="add the part of the loss that grows when the factor on {line} falls, or keep the factor constant.",
        zh="给损失加上一个在{line}的因子变小时会变大的部分，或者不训练这个因子。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, y = torch.randn(16, 3), torch.randn(16, 1)
net, s = torch.nn.Linear(3, 1), torch.zeros((), requires_grad=True)
opt = torch.optim.SGD([*net.parameters(), s], lr=0.1)
for _ in range(5):
    error = (net(x) - y).square().mean()
    loss = torch.exp(-s) * error  # PL554
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
print(torch.exp(-s).item())
""",
    good="""import torch

torch.manual_seed(0)
x, y = torch.randn(16, 3), torch.randn(16, 1)
net, s = torch.nn.Linear(3, 1), torch.zeros((), requires_grad=True)
opt = torch.optim.SGD([*net.parameters(), s], lr=0.1)
for _ in range(5):
    error = (net(x) - y).square().mean()
    loss = torch.exp(-s) * error + s.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(torch.exp(-s).item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=0.01",
            T(
                en="A smaller rate: the weight goes the same way, slower.",
                zh="更小的学习率：权重走同一条路，只是更慢。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/optim.html",),
)
