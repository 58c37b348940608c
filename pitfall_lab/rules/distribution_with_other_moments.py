"""PL847: a distribution is computed from the mean and the variance or deviation of some numbers, and has other ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, sqrt
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.forms import before, key, made_by, same_numbers
from pitfall_lab.rules.signals.operand_names import all_written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

DIVIDES = spellings("div")
PRODUCTS = spellings("mul")
SUMS = spellings("add")
SPREADS = ("var", "std", "var_mean", "std_mean")
"""Calls that compute a variance or a standard deviation."""
NOISE = ("randn", "randn_like", "normal_")
"""Calls that draw numbers of mean 0 and deviation 1."""
NEAR, APART, FURTHER, PAIR = 1e-3, 0.02, 60, 2

Kind = Literal["gamma", "exponential", "normal"]
NAMES: dict[Kind, T] = {
    "gamma": T(en="a gamma distribution", zh="伽马分布"),
    "exponential": T(en="an exponential distribution", zh="指数分布"),
    "normal": T(en="a normal distribution", zh="正态分布"),
}


@dataclass(frozen=True, slots=True)
class DistributionMade:
    """``event`` is the call (``Event``) that draws from a distribution, or takes its density; ``kind`` is ``"normal"``,
    ``"gamma"`` or ``"exponential"``.

    ``first`` and ``second`` are the labels of its parameters: mean and deviation, or shape and rate. An exponential one
    has only a ``second``, its rate, and ``first`` is None.
    """

    event: Event
    kind: Kind
    first: str | None
    second: str


@dataclass(frozen=True, slots=True)
class Other:
    """A distribution does not have the mean or deviation of the numbers from which its parameters were computed.

    ``made`` is the distribution, ``data`` the label of the numbers. ``moment`` is the moment that differs (``"mean"``
    or ``"std"``): it is ``came`` for the distribution and ``meant`` for the numbers.
    """

    made: DistributionMade
    data: str
    moment: Literal["mean", "std"]
    came: float
    meant: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that uses a distribution whose parameters were computed from the mean and the
    variance or deviation of one set of numbers, but which has other moments than these numbers.

    Only if the parameters would give these moments if they were read in another way (as a scale instead of a rate, as a
    variance instead of a deviation).
    """
    told = set[object]()
    for made in _distributions(story):
        place, parameter = story.span(made.event.step), same_numbers(story, made.second, made.event.step)
        found = _other(story, made) if not {place, parameter} & told else None
        if found is not None:
            told |= {place, parameter}
            yield _finding(story, found)


def _distributions(story: Story) -> Iterator[DistributionMade]:
    for event in story.calls(*DIVIDES, "xlogy", "normal", *SUMS):
        labels = [o.label for o in event.operands[:PAIR]]
        if event.error is not None or len(labels) < PAIR or labels[0] is None or labels[1] is None:
            continue
        one, two = labels[0], labels[1]
        drew = made_by(story, one, event.step)
        if event.name in DIVIDES:
            if drew is not None and drew.name == "_standard_gamma" and drew.operands[0].label is not None:
                yield DistributionMade(event, "gamma", drew.operands[0].label, two)
            elif _filled(story, one, event, "exponential_"):
                yield DistributionMade(event, "exponential", None, two)
        elif event.name == "xlogy":
            if any(use.name == "lgamma" and event.step < use.step < event.step + 9 for use in story.uses(one)):
                yield DistributionMade(event, "gamma", one, two)
        elif event.name == "normal":
            yield DistributionMade(event, "normal", one, two)
        else:
            yield from _sampled(story, event, (one, two))


def _filled(story: Story, label: str, event: Event, name: str) -> bool:
    """Whether the last write to a tensor before ``event`` is the in-place call ``name``, without arguments."""
    fills = [use for use in story.uses(label) if use.step < event.step and use.writes]
    return bool(fills) and fills[-1].name == name and len(fills[-1].operands) == 1


def _sampled(story: Story, event: Event, labels: tuple[str, str]) -> Iterator[DistributionMade]:
    """Yield the normal distribution from which ``event``, if it is ``mean + deviation * noise``, draws."""
    for mean, other in (labels, labels[::-1]):
        product = made_by(story, other, event.step)
        given = [o.label for o in product.operands if o.label is not None] if product is not None else []
        if product is None or product.name not in PRODUCTS or len(given) != PAIR:
            continue
        for noise, spread in (given, given[::-1]):
            made = made_by(story, noise, product.step)
            if made is not None and (made.name in NOISE or _filled(story, noise, product, "normal_")):
                yield DistributionMade(event, "normal", mean, spread)


@dataclass(slots=True)
class Moments:
    """The moments of the numbers ``data`` (a label) from which a parameter was computed.

    ``mean`` is the label of their mean and the step that computed it. ``spread`` is the label of their variance or
    deviation, the step, and the power to which it has to be raised to be a variance: 1 for a variance, 2 for a
    deviation. Each is None if the parameter was computed without it.
    """

    data: str
    mean: tuple[str, int] | None = None
    spread: tuple[str, int, int] | None = None


def _moments(story: Story, label: str, step: int) -> Moments | None:
    """Return the moments that a parameter was computed from; None if it was computed from anything else, or from
    moments of different numbers.
    """
    found: Moments | None = None
    pending, seen = deque([(label, step)]), {label}
    while pending:
        here, at = pending.popleft()
        made = made_by(story, here, at)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given or len(seen) > FURTHER:
            return None
        if made.name in ("mean", *SPREADS):
            data = given[0]
            found = found or Moments(data)
            if key(story, found.data, step) != key(story, data, step):
                return None
            if made.name == "mean" or (made.name.endswith("_mean") and made.results.index(here) == 1):
                found.mean = here, made.step
            else:
                found.spread = here, made.step, 1 if made.name.startswith("var") else PAIR
            continue
        for each in [before(made, here)] if made.name == "broadcast_tensors" else given:
            if each is not None and each not in seen:
                seen.add(each)
                pending.append((each, made.step))
    return found


def _other(story: Story, made: DistributionMade) -> Other | None:
    """Return the moment in which a distribution differs from the numbers; None if it does not differ, or the values are
    not known.
    """
    step = made.event.step
    found = [_moments(story, each, step) for each in (made.first, made.second) if each is not None]
    own = [each for each in found if each is not None]
    if len(own) < len(found) or not own or len({key(story, each.data, step) for each in own}) > 1:
        return None
    mean = next((each.mean for each in own if each.mean is not None), None)
    spread = next((each.spread for each in own if each.spread is not None), None)
    if mean is None or (made.kind != "exponential" and spread is None):
        return None
    rows = list(_rows(story, made, mean, spread))
    others = [_compared(made.kind, *row) for row in rows]
    moment: Literal["mean", "std"] = "std" if made.kind == "normal" else "mean"
    if not others or None in others:
        return None
    apart = [each for each in others if each is not None and abs(each[0] - each[1]) > APART * abs(each[1])]
    return Other(made, own[0].data, moment, *apart[0]) if apart else None


Row = tuple[float, float, float, float]


def _rows(
    story: Story, made: DistributionMade, mean: tuple[str, int], spread: tuple[str, int, int] | None
) -> Iterator[Row]:
    """Yield, for each known element, both parameters (1.0 for a missing first one), and the mean and the variance of
    the numbers (0.0 for a missing variance).
    """
    step = made.event.step
    first, second = (
        Elements(story, same_numbers(story, each, step), step) if each is not None else None
        for each in (made.first, made.second)
    )
    means = Elements(story, *mean)
    spreads = Elements(story, *spread[:2]) if spread is not None else None
    for index, two in second.known() if second is not None else ():
        one, m = _at(first, index, 1.0), _at(means, index, None)
        v = _at(spreads, index, 0.0)
        if one is not None and m is not None and v is not None:
            yield one, two, m, v ** spread[2] if spread is not None else 0.0


def _at(elements: Elements | None, index: Index, otherwise: float | None) -> float | None:
    return elements.at(index) if elements is not None and len(elements.shape) <= len(index) else otherwise


def _compared(kind: Kind, one: float, two: float, mean: float, variance: float) -> tuple[float, float] | None:
    """Return a moment of the distribution and that of the numbers, if the parameters give the numbers' moments when
    read in another way; None if they do not.

    The moment is the deviation of a normal distribution, and the mean of the others.
    """
    if kind == "normal":
        taken = isclose(one, mean, rel_tol=NEAR, abs_tol=NEAR) and variance > 0 and isclose(two, variance, rel_tol=NEAR)
        return (two, sqrt(variance)) if taken else None
    if not two or not mean:
        return None
    fits = isclose(one * two, mean, rel_tol=NEAR)
    if kind == "gamma":
        fits = fits and isclose(one * two * two, variance, rel_tol=NEAR)
    return (one / two, mean) if fits else None


def _finding(story: Story, found: Other) -> Finding:
    made, step = found.made, found.made.event.step
    here = at_line(story, story.span(step))
    data, name = expression(story, found.data, step), NAMES[made.kind]
    came, meant = number(found.came), number(found.meant)
    what = T(en="mean", zh="均值") if found.moment == "mean" else T(en="standard deviation", zh="标准差")
    given = T(en="the second parameter is a rate, and it was given a scale", zh="第二个参数是速率，得到的却是尺度")
    if made.kind == "exponential":
        given = T(
            en="its parameter is a rate, 1 / mean, and it was given the mean",
            zh="它的参数是速率，即 1 / 均值，得到的却是均值",
        )
    if made.kind == "normal":
        given = T(
            en="the second parameter is the standard deviation, and it was given the variance",
            zh="第二个参数是标准差，得到的却是方差",
        )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} uses {name.en} whose {what.en} is {came}, made from the moments of {data.en}, "
            f"whose {what.en} is {meant}: {given.en}.",
            zh=f"{here.zh}使用的{name.zh}{what.zh}为 {came}，而它是由 {data.zh} 的矩得到的，后者的{what.zh}为 {meant}："
            f"{given.zh}。",
        ),
        T(
            en=f"Both parameters were computed from the mean and the spread of {data.en}. Read the other way, they "
            f"give exactly these, {meant}; as torch reads them, {came}. Everything that is drawn or computed from the "
            "distribution is off by that.",
            zh=f"参数都是由 {data.zh} 的均值和离散程度算出的。按另一种读法，它们恰好给出 {meant}；按 torch 的读法，给"
            f"出的是 {came}。由这个分布抽取或算出的一切都差这么多。",
        ),
        related=_lines(story, found),
        fixes=_fixes(story, made),
        facts=[Fact("came", found.came, story.by(step)), Fact("meant", found.meant, story.by(step))],
    )


def _lines(story: Story, found: Other) -> list[Related]:
    maker = made_by(story, same_numbers(story, found.made.second, found.made.event.step), found.made.event.step)
    if maker is None or story.span(maker.step) == story.span(found.made.event.step):
        return []
    return [story.related("made", maker.step, T(en="the parameter is computed here", zh="参数在这里算出"))]


def _fixes(story: Story, made: DistributionMade) -> tuple[Fix, ...]:
    """At most one fix: it gives every distribution with this parameter the rate, or the deviation; empty if the program
    does not show where it is given.
    """
    program, step = story.program, made.event.step
    label = same_numbers(story, made.second, step)
    changes = {}
    for use in story.calls("broadcast_tensors", "normal", *PRODUCTS):
        own = [o.label for o in use.operands if o.label is not None and same_numbers(story, o.label, use.step) == label]
        is_normal = use.name == "normal" or (use.name in PRODUCTS and use.step < step and use.results[0] in _used(made))
        for node in all_written_as(story, use, *own) if own and (use.name == "broadcast_tensors" or is_normal) else ():
            text = f"{operand(program, node)}.sqrt()" if made.kind == "normal" else f"1 / {operand(program, node)}"
            changes[program.place(node)] = node, text
    if not changes:
        return ()
    new = next(iter(changes.values()))[1]
    title = T(en=f"Give it `{new}`", zh=f"交给它 `{new}`")
    return unique(program.text, [Fix(title, program.replace(*changes.values()), meaning="later")])


def _used(made: DistributionMade) -> tuple[str, ...]:
    """The labels of the operands of the call that draws from the distribution or takes its density."""
    return tuple(o.label for o in made.event.operands if o.label is not None)


RULE = Rule(
    code="PL847",
    name="distribution-with-other-moments",
    severity="warning",
    title=T(
        en="A distribution made from the moments of some numbers does not have them",
        zh="由一组数的矩得到的分布并没有这些矩",
    ),
    what=T(
        en="A program takes the mean and the spread of some numbers and makes a distribution of them. Its last number "
        "is read in another way than it was computed: a scale as a rate, a mean as a rate, or a variance as a standard "
        "deviation. What is drawn then has another mean or spread than the numbers. Give it what it reads: `1 / scale` "
        "or `variance.sqrt()`.",
        zh="程序取一组数的均值和离散程度，由此得到一个分布。但分布读取最后一个数的方式与它的算法不同：尺度被当作速率"
        "，均值被当作速率，或者方差被当作标准差。抽出的数于是有另外的均值或离散程度。请把它要读的量交给它：`1 / "
        "scale` 或 `variance.sqrt()`。",
    ),
    why=T(
        en="`torch.distributions.Gamma(concentration, rate)` has the mean concentration / rate; textbooks and SciPy "
        "often use a scale, 1 / rate. `Exponential(rate)` has the mean 1 / rate, and `Normal(loc, scale)` takes the "
        "standard deviation. All of these are positive numbers, so nothing is refused.",
        zh="`torch.distributions.Gamma(concentration, rate)` 的均值是 concentration / rate；教科书和 SciPy 常用尺度，"
        "即 1 / rate。`Exponential(rate)` 的均值是 1 / rate，`Normal(loc, scale)` 需要的是标准差。这些都是正数，所以"
        "什么也不会被拒绝。",
    ),
    bad="""import torch
from torch.distributions import Gamma

torch.manual_seed(0)
waits = torch.rand(500).log().neg() * 3 + 2
mean, var = waits.mean(), waits.var()
shape, scale = mean**2 / var, var / mean
drawn = Gamma(shape, scale).sample((500,))  # PL847
print(waits.mean(), drawn.mean())
""",
    good="""import torch
from torch.distributions import Gamma

torch.manual_seed(0)
waits = torch.rand(500).log().neg() * 3 + 2
mean, var = waits.mean(), waits.var()
shape, scale = mean**2 / var, var / mean
drawn = Gamma(shape, 1 / scale).sample((500,))
print(waits.mean(), drawn.mean())
""",
    find=find,
    traps=(
        Trap(
            "Gamma(shape, scale)",
            "Gamma(shape, scale.clamp(min=0.1))",
            T(
                en="A limit keeps it positive, which it is; it still is no rate.",
                zh="设下限只是使它为正，而它本来就为正；它仍不是速率。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#gamma",),
)
