"""PL678: a loss that needs a variance is given a number that the program uses as the standard deviation everywhere
else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.forms import drawn, exponential, made_by, power, recipe, same_numbers
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul")
SQUARES = spellings("pow", "square")
ROOTS = spellings("rsqrt") | spellings("sqrt", in_place=True)
LIMITS = spellings("ge", "gt", "le", "lt")
QUOTIENTS = spellings("div")
DISTANCES = spellings("sub", exchanged=True)
SUMS = spellings("add", "sub")


@dataclass(frozen=True, slots=True)
class DeviationGivenAsVariance:
    """``loss`` is the call (``Event``) that was given the tensor ``label`` (a label such as ``"t3"``) as a variance;
    ``other`` is the call that used that tensor, or one computed in the same way, as the standard deviation.
    """

    loss: Event
    label: str
    other: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose ``gaussian_nll_loss`` is given as its variance a tensor that another call
    uses as the standard deviation.

    Only the first call of each line is looked at.
    """
    reported = set()
    for loss in story.calls("gaussian_nll_loss"):
        labels = [o.label for o in loss.operands]
        label = next((o.label for o in loss.operands if o.name == "var"), labels[2] if len(labels) > 2 else None)
        if loss.error is not None or label is None or story.span(loss.step) in reported:
            continue
        reported.add(story.span(loss.step))
        other = _as_deviation(story, label, labels[0], loss)
        if other is not None:
            yield _finding(story, DeviationGivenAsVariance(loss, label, other))


def _as_deviation(story: Story, label: str, mean: str | None, loss: Event) -> Event | None:
    """Return the call that shows that ``label`` is a standard deviation; None if there is none, or if a call takes the
    root of the same number, as of a variance.

    Such a call squares the same number (or one that is computed in the same way), multiplies noise by it, adds it to
    the mean, or compares the distance of a value from the mean with it or divides the distance by it. A root that is
    given to the loss itself is reported by PL932.
    """
    form = exponential(story, label, loss.step)
    _, exponent = power(story, label, loss.step)
    if (form is not None and isclose(form[1], 0.5)) or (form is None and isclose(exponent, 0.5)):
        return None
    own = recipe(story, label, loss.step) if form is not None or exponent == 1.0 else None
    center = recipe(story, mean, loss.step) if mean is not None else None
    found = None
    for event in story.calls(*PRODUCTS, *SQUARES, *ROOTS, *LIMITS, *QUOTIENTS, "normal") if own is not None else ():
        given = [o.label for o in event.operands if o.label is not None]
        if event.error is not None or not any(recipe(story, each, event.step) == own for each in given):
            continue
        number = constant(story, None, event.operands[-1].text, event.step)
        if event.name in ROOTS or (event.name in SQUARES and number == 0.5):
            return None
        squared = (
            event.name == "square"
            or (event.name in SQUARES and number == 2.0)
            or (event.name in PRODUCTS and given[:1] * 2 == given)
        )
        measures = event.name in PRODUCTS | LIMITS | QUOTIENTS and _measures(story, event, own, center)
        if found is None and (squared or event.name == "normal" or measures or _spreads(story, event, own, center)):
            found = event
    return found


def _measures(story: Story, event: Event, own: object, center: object) -> bool:
    """Whether a call compares a distance from the mean ``center`` with the number ``own`` or a multiple of it, or
    divides the distance by that.
    """
    if event.name in PRODUCTS:
        uses = [(use, event.results[0]) for use in story.uses(event.results[0]) if use.name in LIMITS | QUOTIENTS]
        return _is_multiple(story, event, own) and any(_is_distance(story, use, label, center) for use, label in uses)
    mine = [o.label for o in event.operands if o.label is not None and recipe(story, o.label, event.step) == own]
    return bool(mine) and _is_distance(story, event, mine[0], center)


def _is_multiple(story: Story, event: Event, own: object) -> bool:
    """Whether a product has the number ``own`` as a factor, and otherwise only single numbers, such as a quantile."""
    labels = [o.label for o in event.operands if o.label is not None]
    others = [each for each in labels if recipe(story, each, event.step) != own]
    return len(others) < len(labels) < len(others) + 2 and all(
        max(story.shape(each, event.step) or (1,)) == 1 for each in others
    )


def _is_distance(story: Story, event: Event, limit: str, center: object) -> bool:
    """Whether the other operand of ``event`` is a difference from the mean, or its absolute value; for a division,
    whether that operand is the dividend.
    """
    labels = [o.label for o in event.operands]
    others = [label for label in labels if label is not None and label != limit]
    if center is None or len(others) != 1 or (event.name in QUOTIENTS and labels[0] != others[0]):
        return False
    made = made_by(story, same_numbers(story, others[0], event.step), event.step)
    if made is not None and made.name in spellings("abs") and made.operands[0].label is not None:
        made = made_by(story, same_numbers(story, made.operands[0].label, made.step), made.step)
    if made is None or made.name not in DISTANCES:
        return False
    return any(o.label is not None and recipe(story, o.label, made.step) == center for o in made.operands)


def _spreads(story: Story, event: Event, own: object, center: object) -> bool:
    """Whether a product has a factor drawn from a normal distribution, or is ``own`` times single numbers and is added
    to the mean ``center`` or subtracted from it.
    """
    if event.name not in PRODUCTS:
        return False
    if any(drawn(story, o.label, event.step) is not None for o in event.operands if o.label is not None):
        return True
    sums = (use for use in story.uses(event.results[0]) if use.name in SUMS)
    others = (
        (o.label, use.step) for use in sums for o in use.operands if o.label is not None and o.label != event.results[0]
    )
    return (
        _is_multiple(story, event, own)
        and center is not None
        and any(recipe(story, label, step) == center for label, step in others)
    )


def _finding(story: Story, found: DeviationGivenAsVariance) -> Finding:
    step = found.loss.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.other.step))
    name = shown(story, found.loss, found.label)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} gives {name.en} to a Gaussian loss for the variance, and {there.en} takes it for "
            "the standard deviation.",
            zh=f"{here.zh}把 {name.zh} 作为方差交给高斯损失，而{there.zh}把它当作标准差。",
        ),
        T(
            en="The loss divides the squared error by its third argument and adds the logarithm of it. The network "
            "therefore learns the variance, and everything that reads the number as a deviation is off by a square: "
            "intervals become too narrow where it is below 1, and too wide above.",
            zh="这个损失用第三个参数去除平方误差，再加上它的对数。于是网络学到的是方差，而凡是把这个数当作标准差来读的"
            "地方都差了一个平方：小于 1 时区间太窄，大于 1 时太宽。",
        ),
        related=[
            story.related(
                "used", found.other.step, T(en="taken for the standard deviation here", zh="在这里被当作标准差")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("variance", found.label, story.by(step))],
    )


def _fixes(story: Story, found: DeviationGivenAsVariance) -> tuple[Fix, ...]:
    """At most one fix: it gives the loss the square; empty if the program does not show the argument."""
    program, node = story.program, written_as(story, found.loss, found.label)
    if node is None:
        return ()
    new = f"{in_parentheses(program, node)} ** 2"
    title = T(en=f"Give it the variance: `{new}`", zh=f"交给它方差：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL678",
    name="deviation-given-as-variance",
    severity="warning",
    title=T(en="A loss that wants a variance is given a standard deviation", zh="需要方差的损失得到的是标准差"),
    what=T(
        en="A network predicts a mean and how far off it may be. The loss wants the variance, and the program gives "
        "it the number that it uses as the standard deviation in other places. The network learns the square of what "
        "those places expect. Give the loss `std ** 2`.",
        zh="网络预测一个均值，以及它可能偏离多少。损失需要的是方差，而程序交给它的数在别处被当作标准差使用。网络学到的"
        "就是那些地方所期望的数的平方。请把 `std ** 2` 交给损失。",
    ),
    why=T(
        en="`F.gaussian_nll_loss(input, target, var)` and `nn.GaussianNLLLoss` take the variance; "
        "`torch.distributions.Normal(loc, scale)` takes the standard deviation, its root. Both are positive tensors "
        "of the same shape, so nothing fails. The mean is learned as before; only the predicted spread is another "
        "number than the one that is read.",
        zh="`F.gaussian_nll_loss(input, target, var)` 和 `nn.GaussianNLLLoss` 需要方差；"
        "`torch.distributions.Normal(loc, scale)` 需要标准差，即它的平方根。两者都是形状相同的正数张量，所以不会报错。"
        "均值照样学得好，只是预测的离散程度与读取时的含义不同。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn(8, 2), torch.randn(8, 1)
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    mean, raw = net(x).chunk(2, dim=1)
    std = F.softplus(raw)
    loss = F.gaussian_nll_loss(mean, y, std)  # PL678
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
mean, raw = net(x).chunk(2, dim=1)
std = F.softplus(raw)
print(((y - mean).abs() < std).sum(), (mean + std * torch.randn(8, 1)).mean())  # used
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn(8, 2), torch.randn(8, 1)
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    mean, raw = net(x).chunk(2, dim=1)
    std = F.softplus(raw)
    loss = F.gaussian_nll_loss(mean, y, std ** 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
mean, raw = net(x).chunk(2, dim=1)
std = F.softplus(raw)
print(((y - mean).abs() < std).sum(), (mean + std * torch.randn(8, 1)).mean())
""",
    find=find,
    traps=(
        Trap(
            "F.softplus(raw)\n    loss",
            "F.softplus(raw) + 1e-3\n    loss",
            T(
                en="A lower limit keeps the loss finite; the number still is taken for two things.",
                zh="下限使损失保持有限，但这个数仍被当作两种东西。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.GaussianNLLLoss.html",),
)
