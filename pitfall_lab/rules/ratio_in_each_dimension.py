"""PL477: a ratio of probabilities is taken for each number of an action, and all are given one weight."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.densities import square_of
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import SCALING, parts
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul")
DIFFERENCES = spellings("sub")
PAIR, ROUNDS = 2, 3


@dataclass(frozen=True, slots=True)
class RatiosApart:
    """``ratio`` is the call (``Event``) of the exponential of the tensor ``power``, a difference of the log-densities
    of each of the ``of`` numbers of an action.

    ``product`` is the call that multiplies the ratios with the tensor ``weight``, which has one number for all of them;
    ``power`` and ``weight`` are labels. ``density`` is the call that subtracted a mean from each number of an action,
    for its density.
    """

    ratio: Event
    power: str
    product: Event
    weight: str
    density: Event
    of: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes a ratio of probabilities for each number of an action (``exp`` of a
    difference of log-probabilities), where all these ratios are multiplied by one weight and a backward ran through the
    product.

    Of each line, the first ``ROUNDS`` ratios are examined.
    """
    told: dict[Span | None, int] = {}
    for event in story.calls("exp"):
        place = story.span(event.step)
        shape = story.shape(event.results[0], event.step) if event.results and event.error is None else None
        if not shape or len(shape) < PAIR or shape[-1] < PAIR or told.get(place, 0) >= ROUNDS:
            continue
        told[place] = told.get(place, 0) + 1
        found = _apart(story, event, shape)
        if found is not None:
            told[place] = ROUNDS
            yield _finding(story, found)


def _apart(story: Story, event: Event, shape: tuple[int, ...]) -> RatiosApart | None:
    power = event.operands[0].label
    made = made_by(story, power, event.step)
    given = [o.label for o in made.operands if o.label is not None] if made is not None else []
    if made is None or power is None or made.name not in DIFFERENCES or len(given) != PAIR:
        return None
    trained = [bool((story.tensor(each, made.step) or {}).get("requires_grad")) for each in given]
    if trained != [True, False] or any(story.shape(each, made.step) != shape for each in given):
        return None
    weighed = _weighed(story, event, shape)
    density = _density(story, given[0], made.step, shape) if weighed is not None else None
    return (
        RatiosApart(event, power, *weighed, density, shape[-1]) if weighed is not None and density is not None else None
    )


def _weighed(story: Story, event: Event, shape: tuple[int, ...]) -> tuple[Event, str] | None:
    """The product with a weight that is the same for all numbers of a row, and the weight; None if no backward ran
    through one.

    A mask of zeros and ones is no weight.
    """
    for use in story.uses(event.results[0]):
        others = [o.label for o in use.operands if o.label is not None and o.label != event.results[0]]
        if use.name not in PRODUCTS or use.error is not None or len(others) != 1 or not use.results:
            continue
        record = story.tensor(others[0], use.step) or {}
        own, strides = tuple(record.get("shape") or ()), tuple(record.get("stride") or ())
        is_of_rows = own == (*shape[:-1], 1) or (own == shape and strides[-1:] == (0,))
        node = story.record("nodes", (story.tensor(use.results[0], use.step) or {}).get("grad_fn")) or {}
        if not is_of_rows or prod(shape[:-1]) < PAIR or record.get("requires_grad") or node.get("ran") is None:
            continue
        known = {value for _, value in Elements(story, others[0], use.step).known()}
        if len(known) > 1 and not known <= {0, 1}:
            return use, others[0]
    return None


def _density(story: Story, label: str, step: int, shape: tuple[int, ...]) -> Event | None:
    """The call that subtracted a mean from each number of a row, whose square, perhaps over a scale, is in ``label``.

    None if ``label`` is no sum of such a square, taken with a minus, with other terms.
    """
    for part in parts(story, label, step):
        square = square_of(story, part, step)
        if square is None or square.times >= 0 or story.shape(part.label, step) != shape:
            continue
        made = made_by(story, square.root, square.step)
        if made is not None and made.name in SCALING:
            made = made_by(story, made.operands[0].label, made.step)
        if made is None:
            continue
        given = [o.label for o in made.operands if o.label is not None]
        fixed = [each for each in given if not (story.tensor(each, made.step) or {}).get("requires_grad")]
        if made.name in DIFFERENCES and len(given) == PAIR and fixed and story.shape(fixed[0], made.step) == shape:
            return made
    return None


def _finding(story: Story, found: RatiosApart) -> Finding:
    ratio, product, of = found.ratio, found.product, found.of
    here, there = at_line(story, story.span(ratio.step)), at_line(story, story.span(product.step))
    weight = shown(story, product, found.weight)
    return RULE.finding(
        story.span(ratio.step),
        ratio.step,
        T(
            en=f"{capital(here.en)} takes a ratio of probabilities for each of the {of} numbers of a row, and "
            f"{there.en} multiplies all {of} with the one weight that {weight.en} has for the row.",
            zh=f"{here.zh}对每一行的 {of} 个数各取一个概率之比，而{there.zh}把这 {of} 个比值都乘以 {weight.zh} 中该行唯"
            "一的权重。",
        ),
        T(
            en=f"A weight for the row, such as an advantage, belongs to the {of} numbers together. The probability of "
            "all of them is the product of their densities, so the logarithms are summed before the exponential. Taken "
            f"one by one, the {of} ratios are no ratio of the two policies: a limit on how far they move acts on each "
            "alone, and the policy as a whole can move much further in one update.",
            zh=f"一行的权重（如优势）属于这 {of} 个数的整体。它们全体的概率是各个密度的乘积，所以要先对对数求和，再取指"
            f"数。逐个计算的 {of} 个比值不是两个策略之比：限制变动的范围只对每一个单独起作用，策略整体在一次更新中的变"
            "动可以大得多。",
        ),
        related=[
            story.related("made", found.density.step, T(en="one logarithm for each number", zh="每个数一个对数")),
            story.related("used", product.step, T(en="one weight for each row", zh="每行一个权重")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("numbers", of, story.by(ratio.step))],
    )


def _fixes(story: Story, found: RatiosApart) -> tuple[Fix, ...]:
    """At most one fix: the differences of a row are summed before the exponential.

    Empty if the program's source shows no call of ``exp``.
    """
    program = story.program
    text = written_as(story, found.ratio, found.power)
    if text is None or not isinstance(program.at(story.span(found.ratio.step)), ast.Call):
        return ()
    summed = f"{operand(program, text)}.sum(dim=-1, keepdim=True)"
    title = T(en="Sum the logarithms of a row before the exponential", zh="取指数之前先对一行的对数求和")
    return unique(program.text, [Fix(title, program.replace((text, summed)), meaning="later")])


RULE = Rule(
    code="PL477",
    name="ratio-in-each-dimension",
    severity="warning",
    title=T(en="A ratio of probabilities is taken for each number of an action", zh="对动作的每个数各取一个概率之比"),
    what=T(
        en="An action that consists of several numbers has one probability, the product of those of its numbers, and "
        "one weight for how good it was. A program compares new and old probabilities of each number alone. Sum the "
        "logarithms over the numbers first: `(new - old).sum(dim=-1, keepdim=True).exp()`.",
        zh="由几个数组成的动作只有一个概率，即各个数的概率之积，也只有一个表示它有多好的权重。程序却对每个数单独比较新"
        "旧概率。请先对各个数的对数求和：`(new - old).sum(dim=-1, keepdim=True).exp()`。",
    ),
    why=T(
        en="`Normal(mean, std)` with a mean of shape (n, D) is one distribution for each number: `log_prob(action)` "
        "has shape (n, D). An advantage of shape (n, 1) is broadcast over the D columns without an error. Without the "
        "exponential this would only divide the step by D, since a mean of sums is a sum of means; `exp` of a sum is a "
        "product. `Independent(Normal(mean, std), 1)` sums the logarithms itself.",
        zh="`Normal(mean, std)` 的均值形状为 (n, D) 时，它对每个数是一个分布：`log_prob(action)` 的形状是 (n, D)。形状"
        "为 (n, 1) 的优势会广播到 D 列，不会报错。没有指数时，这只相当于把步长除以 D，因为和的平均等于平均的和；而和的"
        "指数是乘积。`Independent(Normal(mean, std), 1)` 自己对对数求和。",
    ),
    bad="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
net = torch.nn.Linear(2, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
states, gains = torch.randn(8, 2), torch.randn(8)
with torch.no_grad():
    policy = Normal(net(states), 1.0)
    actions = policy.sample()
    old = policy.log_prob(actions)
for _ in range(3):
    new = Normal(net(states), 1.0).log_prob(actions)  # made
    ratio = torch.exp(new - old)  # PL477
    loss = -torch.min(ratio * gains[:, None], ratio.clamp(0.8, 1.2) * gains[:, None]).mean()  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
net = torch.nn.Linear(2, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
states, gains = torch.randn(8, 2), torch.randn(8)
with torch.no_grad():
    policy = Normal(net(states), 1.0)
    actions = policy.sample()
    old = policy.log_prob(actions)
for _ in range(3):
    new = Normal(net(states), 1.0).log_prob(actions)
    ratio = torch.exp((new - old).sum(dim=-1, keepdim=True))
    loss = -torch.min(ratio * gains[:, None], ratio.clamp(0.8, 1.2) * gains[:, None]).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "ratio.clamp(0.8, 1.2)",
            "ratio.clamp(0.93, 1.07)",
            T(
                en="A tighter limit for each number still does not limit their product.",
                zh="对每个数用更紧的范围，仍然没有限制它们的乘积。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#independent",),
)
