"""PL943: scores are divided by a temperature and then by their own sum, in which the temperature cancels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.logarithms_normalized import QUOTIENTS, as_logits, is_sum
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.value_origins import decimal
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

SCALES = QUOTIENTS | spellings("mul", in_place=True)
"""Calls that change all numbers by one factor."""
PAIR = 2
FEWEST = 2
"""So many different factors show that the factor is meant to change something."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The call ``event`` (``Event``) divides numbers by their own sum, after the call ``scaled`` had multiplied or
    divided these numbers by one number; ``factors`` are the different numbers of all such calls at this line.
    """

    event: Event
    scaled: Event
    factors: tuple[float, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that divides numbers by their sum, if another line had multiplied or divided them
    all by one number just before, and by at least ``FEWEST`` different ones in the course of the program.
    """
    places: dict[Span | None, list[tuple[Event, Event, float]]] = defaultdict(list)
    for event in story.calls(*QUOTIENTS):
        given = [o.label for o in event.operands if o.label is not None]
        if len(given) != PAIR or event.error is not None or not is_sum(story, given[0], given[1], event.step):
            continue
        scaled = made_by(story, given[0], event.step)
        plain = [o.text for o in scaled.operands if o.label is None and not o.name] if scaled is not None else []
        factor = decimal(plain[0]) if len(plain) == 1 else None
        if scaled is not None and scaled.name in SCALES and factor:
            places[story.span(event.step)].append((event, scaled, factor))
    for found in places.values():
        factors = tuple(dict.fromkeys(factor for *_, factor in found))
        if len(factors) >= FEWEST:
            yield _finding(story, Cancelled(found[0][0], found[0][1], factors))


def _finding(story: Story, found: Cancelled) -> Finding:
    step, scaled = found.event.step, found.scaled.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(scaled))
    some = ", ".join(number(each) for each in found.factors[:3])
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} divides scores by their own sum, after {there.en} has scaled all of them by one "
            f"number ({some}, …): this number cancels and has no effect.",
            zh=f"{here.zh}把分数除以它们自己的和，而{there.zh}先用同一个数（{some}……）缩放了全部分数：这个数被约掉，"
            "不起作用。",
        ),
        T(
            en="A temperature changes a distribution only in front of an exponential, as in `softmax(scores / t)`. A "
            "distribution takes its first argument for probabilities and divides it by its sum. Hand scores over as "
            "`logits=`.",
            zh="温度只有在指数之前才会改变分布，例如 `softmax(scores / t)`。分布把第一个参数当作概率，并除以它的和。"
            "请把分数作为 `logits=` 传入。",
        ),
        related=[story.related("made", scaled, T(en="scaled here", zh="在这里缩放"))],
        fixes=as_logits(story, found.event),
        facts=[Fact("factors", list(found.factors[:3]), story.by(step))],
    )


RULE = Rule(
    code="PL943",
    name="temperature-cancelled",
    severity="warning",
    title=T(
        en="A temperature cancels, as the scores are divided by their sum",
        zh="温度被约掉了，因为分数除以了它们的和",
    ),
    what=T(
        en="A program divides scores by a temperature, to choose more or less at random, and makes a distribution of "
        "them. `Categorical(x)` takes `x` for probabilities and divides them by their sum: the temperature cancels. "
        "Write `Categorical(logits=x)`.",
        zh="程序把分数除以温度，好让选择更随机或更不随机，然后用它们构造分布。`Categorical(x)` 把 `x` 当作概率，除以"
        "它们的和：温度被约掉了。请写 `Categorical(logits=x)`。",
    ),
    why=T(
        en="`(s / t) / (s / t).sum()` is `s / s.sum()` for every t. With logits the distribution takes "
        "`softmax(s / t)`: a small temperature makes the largest score nearly certain. As long as the scores are "
        "positive, no check complains.",
        zh="对任何 t，`(s / t) / (s / t).sum()` 都等于 `s / s.sum()`。作为 logits 时，分布取 `softmax(s / t)`：温度"
        "低时，最大的分数几乎必然被选中。只要分数是正的，任何检查都不会报错。",
    ),
    bad="""import torch
from torch.distributions import Categorical

torch.manual_seed(0)
value = torch.tensor([1.0, 2.0, 3.0])
for temperature in (1.0, 0.1):
    preferences = value / temperature  # made
    policy = Categorical(preferences)  # PL943
    print(temperature, policy.sample((100,)).bincount(minlength=3))
""",
    good="""import torch
from torch.distributions import Categorical

torch.manual_seed(0)
value = torch.tensor([1.0, 2.0, 3.0])
for temperature in (1.0, 0.1):
    preferences = value / temperature
    policy = Categorical(logits=preferences)
    print(temperature, policy.sample((100,)).bincount(minlength=3))
""",
    find=find,
    traps=(
        Trap(
            "(1.0, 0.1)",
            "(1.0, 0.01)",
            T(en="A smaller temperature cancels as well.", zh="更低的温度同样被约掉。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#categorical",),
)
