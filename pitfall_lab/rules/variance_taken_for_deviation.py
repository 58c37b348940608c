"""PL676: noise was multiplied by a variance, not by its square root, the standard deviation: a divergence in the same
loss takes that number for the variance.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import isclose

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.forms import NORMAL, drawn, exponential, key, made_by, power, same_numbers, unshifted
from pitfall_lab.rules.signals.linear_parts import LinearPart, losses, parts
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul")


@dataclass(frozen=True, slots=True)
class Mistaken:
    """A number that the program uses as a standard deviation and, in a divergence of its loss, as a variance.

    ``product`` is the call (``Event``) that multiplied noise by it, the tensor labelled ``spread``; ``part`` is the
    term of the loss in which it is the variance (:class:`LinearPart`). The number is ``x ** exponent`` or
    ``exp(x) ** exponent`` for a tensor ``x`` of the program.
    """

    product: Event
    spread: str
    part: LinearPart
    exponent: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that multiplies drawn noise by a number which a divergence in the same loss takes
    for the variance.
    """
    products = (
        [event for event in story.calls(*PRODUCTS) if event.error is None and event.results]
        if any(story.calls(*NORMAL))
        else []
    )
    reported, before = set(), -1
    for backward in losses(story) if products else ():
        variances = dict(_variances(story, backward))
        for event in (each for each in products if variances and before < each.step < backward.step):
            found = _mistaken(story, event, variances)
            if found is not None and story.span(event.step) not in reported:
                reported.add(story.span(event.step))
                yield _finding(story, found)
        before = backward.step


def _variances(story: Story, backward: Event) -> Iterator[tuple[Hashable, tuple[LinearPart, float]]]:
    """Yield the numbers that the loss takes for variances, each with its part and its exponent.

    ``v`` is one if the loss grows by ``v`` and falls by its logarithm, in equal shares: the divergence from a deviation
    of 1 has ``(v - log(v)) / 2``.
    """
    logarithms: dict[Hashable, float] = defaultdict(float)
    grown: list[tuple[Hashable, LinearPart, float]] = []
    for part in parts(story, backward.operands[0].label, backward.step):
        maker = made_by(story, part.label, backward.step)
        own = same_numbers(story, part.label, backward.step)
        if maker is not None and maker.name == "log" and maker.operands[0].label is not None:
            source, exponent = power(story, maker.operands[0].label, maker.step)
            logarithms["plain", key(story, unshifted(story, source, maker.step), maker.step)] += part.factor * exponent
            continue
        logarithms["exp", key(story, own, backward.step)] += part.factor
        name, exponent = _form(story, part.label, backward.step)
        grown.append((name, part, exponent))
    for name, part, exponent in grown:
        if (
            part.factor > 0
            and exponent > 0
            and isclose(logarithms.get(name, 0.0), -part.factor * exponent, rel_tol=1e-4)
        ):
            yield name, (part, exponent)


def _form(story: Story, label: str, step: int) -> tuple[Hashable, float]:
    """The base of which a positive tensor is a power, as a key for ``exp(x)`` or for ``x``, and the exponent."""
    form = exponential(story, label, step)
    if form is not None:
        return ("exp", key(story, form[0], step)), form[1]
    source, exponent = power(story, label, step)
    return ("plain", key(story, unshifted(story, source, step), step)), exponent


def _mistaken(story: Story, event: Event, variances: dict[Hashable, tuple[LinearPart, float]]) -> Mistaken | None:
    """The data of the finding if the call multiplied drawn numbers by a number of ``variances`` itself
    and not by its root; else None.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) != 2:
        return None
    for noise, spread in (labels, labels[::-1]):
        if drawn(story, noise, event.step) is None or drawn(story, spread, event.step) is not None:
            continue
        name, exponent = _form(story, spread, event.step)
        part, variance = variances.get(name, (None, 0.0))
        if part is not None and isclose(variance, exponent):
            return Mistaken(event, spread, part, exponent)
    return None


def _finding(story: Story, found: Mistaken) -> Finding:
    step, user = found.product.step, found.part.user
    here, there = at_line(story, story.span(step)), at_line(story, story.span(user.step if user else None))
    spread = shown(story, found.product, found.spread)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} multiplies noise by {spread.en}, and the loss on {there.en} takes that same "
            "number for the variance: the factor of noise is the standard deviation, the root of the variance.",
            zh=f"{here.zh}把噪声乘以 {spread.zh}，而{there.zh}的损失把同一个数当作方差：噪声的系数应是标准"
            "差，即方差的平方根。",
        ),
        T(
            en="The divergence of a normal distribution from one with mean 0 and deviation 1 is half of variance "
            "+ mean² - 1 - log(variance). Here the sample is drawn with one distribution, and the divergence is "
            "that of another one.",
            zh="正态分布相对于均值 0、标准差 1 的分布，其散度是（方差 + 均值² - 1 - log(方差)）的一半。这里抽样用的是"
            "一个分布，而散度却是另一个分布的。",
        ),
        related=[
            story.related(
                "used", user.step if user else None, T(en="taken for the variance here", zh="在这里被当作方差")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("spread", found.spread, story.by(step)), Fact("exponent", found.exponent, "modelled")],
    )


def _fixes(story: Story, found: Mistaken) -> tuple[Fix, ...]:
    """Fixes that take the root where the noise is multiplied; or the square in the divergence, which
    took a root for the variance.
    """
    program, candidates = story.program, list[Fix]()
    exp = made_by(story, same_numbers(story, found.spread, found.product.step), found.product.step)
    node = program.at(story.span(exp.step)) if exp is not None and exp.name == "exp" else None
    if found.exponent < 1 and found.part.user is not None:
        given = written_as(story, found.part.user, found.part.label)
        if given is not None:
            new = f"{in_parentheses(program, given)} ** 2"
            candidates.append(
                Fix(
                    T(en=f"Take the variance: `{new}`", zh=f"取方差：`{new}`"),
                    program.replace((given, new)),
                    meaning="later",
                )
            )
    elif isinstance(node, ast.Call) and call_name(node) == "exp" and isinstance(node.func, ast.Attribute):
        inner = node.args[0] if node.args else node.func.value
        half = f"0.5 * {in_parentheses(program, inner)}"
        new = f"{program.segment(node.func)}({half})" if node.args else f"({half}).exp()"
        candidates.append(
            Fix(T(en=f"Take the root: `{new}`", zh=f"取平方根：`{new}`"), program.replace((node, new)), meaning="later")
        )
    given = written_as(story, found.product, found.spread)
    if given is not None and isinstance(program.at(story.span(found.product.step)), ast.BinOp) and found.exponent >= 1:
        new = f"{in_parentheses(program, given)}.sqrt()"
        candidates.append(
            Fix(
                T(en=f"Take the root: `{new}`", zh=f"取平方根：`{new}`"), program.replace((given, new)), meaning="later"
            )
        )
    return unique(program.text, candidates)


RULE = Rule(
    code="PL676",
    name="variance-taken-for-deviation",
    severity="warning",
    title=T(en="Noise is multiplied by a variance in place of its root", zh="噪声乘的是方差，而不是它的平方根"),
    what=T(
        en="A program draws a sample as mean + number × noise, and its loss compares that distribution with a "
        "standard one by a formula in which the same number is the variance. The sample needs the root of it: the two "
        "describe different distributions. Multiply the noise by the standard deviation, `torch.exp(0.5 * logvar)`.",
        zh="程序按“均值 + 数 × 噪声”抽样，而损失用一个公式把这个分布与标准分布相比，公式里同一个数却是方差。抽样需要的"
        "是它的平方根：两处说的是不同的分布。请把噪声乘以标准差 `torch.exp(0.5 * logvar)`。",
    ),
    why=T(
        en="A layer's output may be taken for anything: the logarithm of a variance, or of a deviation. Both "
        "trainings run and both losses fall, so nothing shows that the two lines of a program take it for "
        "different things. With `exp(logvar)` as the deviation, samples are drawn with the square of the spread "
        "that the divergence has: too narrow where it is below 1, too wide above. `torch.distributions.Normal` "
        "takes the deviation as well.",
        zh="一层的输出可以被当作任何东西：方差的对数，或者标准差的对数。两种训练都能运行，损失也都在下降，所以看不出程"
        "序的两行把它当成了不同的东西。若把 `exp(logvar)` 当作标准差，抽样的离散程度就是散度中的平方：小于 1 时太窄，"
        "大于 1 时太宽。`torch.distributions.Normal` 需要的也是标准差。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(6, 3)
encoder, decoder = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
for _ in range(3):
    mean, logvar = encoder(x).chunk(2, dim=1)
    std = torch.exp(logvar)
    z = mean + std * torch.randn(6, 2)  # PL676
    divergence = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1)  # used
    loss = ((decoder(z) - x) ** 2).sum(1).mean() + divergence.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(6, 3)
encoder, decoder = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
for _ in range(3):
    mean, logvar = encoder(x).chunk(2, dim=1)
    std = torch.exp(0.5 * logvar)
    z = mean + std * torch.randn(6, 2)
    divergence = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1)
    loss = ((decoder(z) - x) ** 2).sum(1).mean() + divergence.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "std * torch.randn(6, 2)",
            "std.clamp(max=1.0) * torch.randn(6, 2)",
            T(en="A limit does not turn a variance into its root.", zh="设上限不会把方差变成它的平方根。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#normal",),
)
