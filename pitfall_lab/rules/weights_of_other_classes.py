"""PL913: the weights of the classes are in another order than the class indices."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from math import sqrt

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.trace import Counted, Event, T

Law = Callable[[float, float], float]
LAWS: tuple[Law, ...] = (
    lambda count, _: 1 / count,
    lambda count, _: 1 / sqrt(count),
    lambda count, of: 1 - count / of,
    lambda count, of: (of - count) / count,
)
"""Ways to compute a weight from the examples of a class and all examples, up to a factor."""
FEWEST, RAREST = 30, 3
"""The examples that must be seen, of all classes and of each."""
NEAR, EXACT = 0.3, 0.02
"""The largest share by which the weights may differ from a law, for a few examples and for very many."""
APART = 1.5
"""In the order of the program, some weight is at least so many times as large, beside another one, as by the law."""
SHOWN = 6


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a loss whose class weights fit the number of examples of each class only when
    they are put in another order.
    """
    reported = set()
    for counted in story.trace.beside.counted:
        event, place = story.event(counted.step), story.span(counted.step)
        if counted.kind != "weights" or event is None or event.error is not None or place in reported:
            continue
        weights, counts = counted.numbers[: counted.count], counted.numbers[counted.count :]
        order = _order(weights, counts, counted.of)
        if order is not None:
            reported.add(place)
            yield _finding(story, event, counted, order)


def _order(weights: tuple[float, ...], counts: tuple[float, ...], of: int) -> list[int] | None:
    """For each class the index of the weight that fits it, if the weights fit the numbers of examples in another order
    only.

    None if they fit in their own order, if they fit in no order, or if too few examples were seen.
    """
    if of < FEWEST or min(counts) < RAREST or min(weights) <= 0 or max(counts) < APART * min(counts):
        return None
    turned = [count / max(of - count, 1) for count in counts]
    if all(abs(ratio - 1) <= _tolerance(counts[c]) for c, ratio in _ratios(weights, turned, counts)):
        return None  # upside down, in this order: another rule
    classes = range(len(weights))
    by_count = sorted(classes, key=lambda c: counts[c])
    by_weight = sorted(classes, key=lambda c: -weights[c])
    order = [0] * len(weights)
    for each, weight in zip(by_count, by_weight, strict=True):
        order[each] = weight
    for law in LAWS:
        meant = [law(count, of) for count in counts]
        if min(meant) <= 0:
            continue
        fits = all(
            abs(ratio - 1) <= _tolerance(counts[c]) for c, ratio in _ratios([weights[k] for k in order], meant, counts)
        )
        own = [ratio for _, ratio in _ratios(weights, meant, counts)]
        if fits and max(own) > APART * min(own):
            return order
    return None


def _ratios(
    weights: tuple[float, ...] | list[float], meant: list[float], counts: tuple[float, ...]
) -> list[tuple[int, float]]:
    """Each class with its weight divided by the weight of a law, as a multiple of that of the most frequent class."""
    most = max(range(len(counts)), key=lambda c: counts[c])
    return [(c, weights[c] / meant[c] * meant[most] / weights[most]) for c in range(len(counts))]


def _tolerance(count: float) -> float:
    """The share by which a weight may differ, where ``count`` examples of the class were seen, perhaps not all."""
    return min(NEAR, EXACT + 2 / sqrt(count))


def _finding(story: Story, event: Event, counted: Counted, order: list[int]) -> Finding:
    weights, counts = counted.numbers[: counted.count], counted.numbers[counted.count :]
    label = next((o.label for o in event.operands if o.name in ("weight", "pos_weight")), None)
    made = (story.tensor(label) or {}).get("born")
    moved = max((c for c in range(len(order)) if weights[order[c]] != weights[c]), key=lambda c: counts[c])
    here, name = at_line(story, story.span(event.step)), expression(story, label, event.step)
    has, fits, whose = number(weights[moved]), number(weights[order[moved]]), order[moved]
    related = [story.related("made", made, T(en="the weights are made here", zh="权重在这里得到"))]
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} gives class {moved} ({counts[moved]:.0f} of {counted.of} examples seen) the weight "
            f"{has}. The weight that fits its number of examples, {fits}, goes to class {whose} "
            f"({counts[whose]:.0f} examples).",
            zh=f"{here.zh}给类别 {moved}（见到的 {counted.of} 个样本中有 {counts[moved]:.0f} 个）的权重是 {has}。与它的"
            f"样本数相符的权重 {fits} 却给了类别 {whose}（{counts[whose]:.0f} 个样本）。",
        ),
        T(
            en=f"Entry `c` of {name.en} is the weight of class `c`, the number that the targets contain. These "
            "weights fall as the classes get more frequent, but only if they are put into another order: they were "
            "computed in the order of the names, say, and the classes were numbered in another one.",
            zh=f"{name.zh} 的第 `c` 项是类别 `c` 的权重，也就是目标里的那个编号。这些权重确实随类别的样本数增多而减小，"
            "但要换一个顺序才对得上：例如权重按名称的顺序算出，而类别的编号用的是另一个顺序。",
        ),
        related=related if made is not None else [],
        fixes=_fixes(story, made, order),
        facts=[Fact("class", moved, story.by(event.step)), Fact("fits", whose, story.by(event.step))],
    )


def _fixes(story: Story, made: int | None, order: list[int]) -> tuple[Fix, ...]:
    """At most one fix: it puts the weights into the order of the classes where they are made. Empty for more than
    ``SHOWN`` classes, or if the source does not show that place.
    """
    program = story.program
    node = program.at(story.span(made)) if made is not None else None
    if not isinstance(node, ast.expr) or len(order) > SHOWN:
        return ()
    new = f"{operand(program, node)}[{order}]"
    title = T(en=f"Put the weights into the order of the classes: `{order}`", zh=f"把权重按类别的编号排列：`{order}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL913",
    name="weights-of-other-classes",
    severity="warning",
    title=T(en="Each class has the weight that fits another class", zh="每个类别用的是适合别的类别的权重"),
    what=T(
        en="A program weights rare classes more, but its weights are in another order than the numbers of the classes. "
        "A frequent class then gets the weight of a rare one, and the rare class is hardly learned at all. Count the "
        "targets themselves: `torch.bincount(targets)` is in the order of the classes.",
        zh="程序给少见的类别更大的权重，但权重的顺序与类别的编号不同。于是常见的类别得到了少见类别的权重，而少见的类别"
        "几乎学不到。请直接数目标：`torch.bincount(targets)` 就是按类别的编号排列的。",
    ),
    why=T(
        en="`weight` of `cross_entropy` is a plain list: entry 0 is for target 0. `np.unique` and `sorted` go by the "
        "alphabet, `value_counts` and `Counter.most_common` by frequency, a dictionary by what it met first. Lengths "
        "are equal in any order, so nothing is raised, and the loss falls.",
        zh="`cross_entropy` 的 `weight` 只是一列数：第 0 项用于目标 0。`np.unique` 和 `sorted` 按字母顺序，"
        "`value_counts` 和 `Counter.most_common` 按频率，字典则按先遇到的顺序。任何顺序的长度都相同，所以不会报错，损失"
        "也会下降。",
    ),
    advice=T(
        en="compute the weights on {line} from `torch.bincount(targets)`, which is in the order of the classes.",
        zh="在{line}用 `torch.bincount(targets)` 计算权重，它按类别的编号排列。",
    ),
    bad="""import torch

torch.manual_seed(0)
names = ["sun", "rain", "fog"]
words = ["sun"] * 30 + ["rain"] * 9 + ["fog"] * 3
target = torch.tensor([names.index(word) for word in words])
counts = torch.tensor([words.count(name) for name in sorted(names)])
weight = len(words) / (3.0 * counts)  # made
net = torch.nn.Linear(2, 3)
x = torch.randn(42, 2)
loss = torch.nn.functional.cross_entropy(net(x), target, weight=weight)  # PL913
print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
names = ["sun", "rain", "fog"]
words = ["sun"] * 30 + ["rain"] * 9 + ["fog"] * 3
target = torch.tensor([names.index(word) for word in words])
counts = torch.tensor([words.count(name) for name in names])
weight = len(words) / (3.0 * counts)
net = torch.nn.Linear(2, 3)
x = torch.randn(42, 2)
loss = torch.nn.functional.cross_entropy(net(x), target, weight=weight)
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "len(words) / (3.0 * counts)",
            "len(words) / (3.0 * counts.float())",
            T(en="Another type, the same order.", zh="换了类型，顺序还是一样。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",),
)
