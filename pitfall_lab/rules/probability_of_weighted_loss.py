"""PL938: a focal loss takes the probability from a cross entropy that is already multiplied by weights."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, isclose

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, before, made_by
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

LOSSES = {"cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"}
"""Losses of one example that are minus the logarithm of the probability of its class, if they have no weights."""
OF_CLASSES = {"cross_entropy", "nll_loss"}
"""Of these the weights are those of classes, looked up by the target."""
LOGARITHMS = {"log_softmax", "logsigmoid"}
PRODUCTS = spellings("mul")
NEGATED = spellings("neg")
REMAINDERS = spellings("sub", exchanged=True)
"""Calls that take their first operand from the second one: ``1 - p``."""
POWERS = spellings("pow") | {"square"}
WEIGHTS = ("weight", "pos_weight")
FURTHER = 12
SHOWN = 64
"""How many known examples are looked at for the one that is shown."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """The tensor ``label`` is a cross entropy (minus the logarithm of a probability), up to its sign, times weights.

    ``event`` is the call (``Event``) that weighted it: the loss itself, which was given the weights as its argument
    ``role`` (``weight``, ``pos_weight``), or a product, one operand of which has the label ``plain`` (None for the loss
    itself). ``weight`` is the label of the tensor of weights; None where it is one number, ``factor``. ``user`` is the
    call nearer to the exponential that used the weighted loss.
    """

    event: Event
    label: str
    user: Event
    weight: str | None
    plain: str | None
    factor: float | None
    role: str = "weight"


@dataclass(frozen=True, slots=True)
class ProbabilityOfWeighted:
    """``event`` is the exponential (``Event``) that takes the weighted loss ``weighted`` for minus the logarithm of a
    probability; ``used`` is the call that multiplies the loss by 1 minus this probability, to the power ``gamma`` (None
    where the exponent is not known).

    ``came`` is the computed probability of one example, and ``meant`` the probability without the weight ``by``; all
    three are None where no example is known.
    """

    event: Event
    weighted: Weighted
    used: Event
    gamma: float | None
    came: float | None = None
    meant: float | None = None
    by: float | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes the exponential of a weighted loss for the probability of the class,
    where 1 minus this probability, or a power of that, is then a factor of the loss (a focal loss).

    Only if the weight is one number, or the numbers of an example are known.
    """
    reported = set()
    for event in story.calls("exp", "exp_", "expm1"):
        place = story.span(event.step)
        if place in reported or event.error is not None or not event.results or event.operands[0].label is None:
            continue
        focal = _rest(story, event)
        weighted = _weighted(story, event.operands[0].label, event, 1.0) if focal is not None else None
        if focal is not None and weighted is not None:
            example = _example(story, weighted)
            if example is not None or weighted.factor is not None:
                reported.add(place)
                yield _finding(story, ProbabilityOfWeighted(event, weighted, *focal, *(example or ())))


def _weighted(story: Story, label: str, user: Event, sign: float) -> Weighted | None:
    """The :class:`Weighted` in a tensor, if it is the logarithm of a probability times weights; None if it has no
    weights, or is something else.

    ``sign`` is 1 where the tensor itself should be that logarithm, -1 where minus the tensor should be.
    """
    first: Weighted | None = None
    for _ in range(FURTHER):
        made = made_by(story, label, user.step)
        if made is None or story.writes(str((story.tensor(label) or {}).get("storage")), made.step, user.step):
            return None
        if made.name in LOSSES:
            return (first or _by_itself(made, label, user)) if sign < 0 and _is_one_each(made) else None
        if made.name in LOGARITHMS or made.name == "gather":
            return first if sign > 0 and _is_logarithm(story, made) else None
        source, weight, by = _factors(story, made, label)
        if source is None:
            return None
        if weight is not None or abs(by) != 1:
            first = first or Weighted(made, label, user, weight, source, abs(by) if weight is None else None)
        label, user, sign = source, made, sign * by
    return None


def _is_one_each(loss: Event) -> bool:
    return "none" in (argument(loss, "reduction") or "")


def _by_itself(loss: Event, label: str, user: Event) -> Weighted | None:
    given = next((o for o in loss.operands if o.name in WEIGHTS and o.label is not None), None)
    return Weighted(loss, label, user, given.label, None, None, given.name) if given is not None else None


def _factors(story: Story, made: Event, label: str) -> tuple[str | None, str | None, float]:
    """For a result that is a multiple of a tensor: the label of that tensor, the label of a tensor of weights that it
    was multiplied by (None if there is none), and a number as the factor.

    The first is None if the result is no such multiple.
    """
    if made.name in SAME_NUMBERS:
        return before(made, label), None, 1.0
    if made.name in NEGATED:
        return made.operands[0].label, None, -1.0
    one, other = made.operands if made.name in PRODUCTS and len(made.operands) == 2 else (None, None)
    for loss, weight in ((one, other), (other, one)):
        if loss is None or weight is None or loss.label is None:
            continue
        by = constant(story, weight.label, weight.text, made.step)
        is_learned = (story.tensor(weight.label, made.step) or {}).get("requires_grad")
        known = by if by is not None else 1.0 if weight.label is not None else 0.0
        if known and not is_learned and _leads_to_loss(story, loss.label, made.step):
            return loss.label, weight.label if by is None else None, known
    return None, None, 1.0


def _leads_to_loss(story: Story, label: str, step: int) -> bool:
    pending, seen = [(label, step)], {label}
    while pending and len(seen) < FURTHER:
        label, step = pending.pop()
        made = made_by(story, label, step)
        if made is None:
            continue
        if made.name in LOSSES | LOGARITHMS:
            return True
        if made.name in SAME_NUMBERS | NEGATED | PRODUCTS | {"gather"}:
            fresh = [o.label for o in made.operands if o.label is not None and o.label not in seen]
            seen.update(fresh)
            pending += [(each, made.step) for each in fresh]
    return False


def _is_logarithm(story: Story, made: Event) -> bool:
    if made.name in LOGARITHMS:
        return True
    source = made_by(story, made.operands[0].label, made.step)
    return source is not None and source.name in LOGARITHMS


def _rest(story: Story, event: Event) -> tuple[Event, float | None] | None:
    """The call that multiplies by 1 minus a probability, or by a power of that, and the exponent (None if it is not
    known); None if the program makes no such product.
    """
    pending: list[tuple[str, bool, float | None]] = [(each, event.name == "expm1", 1.0) for each in event.results]
    seen = set(event.results)
    while pending and len(seen) < FURTHER:
        label, is_rest, gamma = pending.pop()
        for use in story.uses(label):
            if use.step <= event.step or use.error is not None or not use.results:
                continue
            rest, exponent = is_rest, gamma
            if use.name in PRODUCTS and is_rest:
                if constant(story, *_other(use, label), use.step) is None:
                    return use, gamma
            elif not is_rest and _is_remainder(story, use, label):
                rest = True
            elif is_rest and use.name in POWERS and use.operands[0].label == label:
                exponent = 2.0 if use.name == "square" else constant(story, *_other(use, label), use.step)
            elif use.name not in SAME_NUMBERS | NEGATED:
                continue
            fresh = [each for each in use.results if each not in seen]
            seen.update(fresh)
            pending += [(each, rest, exponent) for each in fresh]
    return None


def _other(use: Event, label: str) -> tuple[str | None, str]:
    other = next((o for o in use.operands if o.label != label), None)
    return (other.label, other.text) if other is not None else (label, "")


def _is_remainder(story: Story, use: Event, label: str) -> bool:
    """Whether a call computes 1 minus the tensor."""
    if len(use.operands) < 2 or constant(story, *_other(use, label), use.step) != 1:
        return False
    turned = use.name in REMAINDERS and use.operands[0].label == label
    return turned or (use.name in spellings("sub") and use.operands[1].label == label)


def _example(story: Story, weighted: Weighted) -> tuple[float, float, float] | None:
    """The probability of one example as it was computed, the probability without the weight, and the weight; of the
    known examples, the one in which the two probabilities differ most.

    None if no weight is known other than 0 and 1: these only leave out.
    """
    event, found = weighted.event, []
    losses = Elements(story, weighted.label, event.step)
    for index, loss in list(losses.known())[:SHOWN]:
        by = abs(weighted.factor) if weighted.factor is not None else _weight(story, weighted, index)
        if by is not None and by > 0 and not isclose(by, 1, rel_tol=1e-3):
            came = exp(-abs(loss))
            found.append((abs(came ** (1 / by) - came), (came, came ** (1 / by), by)))
    return max(found)[1] if found else None


def _weight(story: Story, weighted: Weighted, index: Index) -> float | None:
    event = weighted.event
    weights = Elements(story, weighted.weight, event.step - 1)
    if weighted.plain is not None:
        return weights.at(index)
    target = Elements(story, event.operands[1].label, event.step - 1).at(index)
    if event.name in OF_CLASSES:
        is_class = target is not None and 0 <= target < (weights.shape or (0,))[0]
        return weights.at((int(target),)) if is_class and target is not None else None
    if weighted.role == "pos_weight" and target != 1:
        return None
    return weights.at(index)


def _finding(story: Story, found: ProbabilityOfWeighted) -> Finding:
    weighted, event = found.weighted, found.event
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(weighted.event.step))
    loss = expression(story, weighted.label, weighted.user.step)
    shown, more = T(en="", zh=""), T(en="", zh="")
    if found.came is not None and found.meant is not None and found.by is not None:
        came, meant, by = number(found.came, 3), number(found.meant, 3), number(found.by, 3)
        shown = T(
            en=f": for an example with weight {by} it gets {came}, and its probability is {meant}",
            zh=f"：一个权重为 {by} 的样本得到 {came}，而它的概率是 {meant}",
        )
        if found.gamma is not None:
            factors = [number((1 - p) ** found.gamma, 3) for p in (found.came, found.meant)]
            more = T(
                en=f" Its loss is multiplied by {factors[0]}, and {factors[1]} was meant.",
                zh=f"它的损失被乘以 {factors[0]}，本来应乘以 {factors[1]}。",
            )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} computes the probability of the true class from {loss.en}, which {there.en} has "
            f"multiplied by a weight{shown.en}.",
            zh=f"{here.zh}由 {loss.zh} 计算真实类别的概率，而{there.zh}已经给它乘了权重{shown.zh}。",
        ),
        T(
            en="A cross entropy is minus the logarithm of the probability, so `exp(-ce)` gives that back. Of a "
            "weighted one, it gives the probability to the power of the weight: too small for weights above 1, too "
            f"large for weights below 1.{more.en} So the weight of a class also changes which of its examples count as "
            "easy. Compute the probability without weights, and multiply by the weight at the end.",
            zh="交叉熵是概率的对数的相反数，所以 `exp(-ce)` 得回概率。对加了权的交叉熵，得到的是概率的“权重”次幂：权重"
            f"大于 1 时太小，小于 1 时太大。{more.zh}于是类别的权重还改变了哪些样本算容易的。请不加权地计算概率，最后"
            "再乘以权重。",
        ),
        related=[
            story.related("made", weighted.event.step, T(en="the weights come in here", zh="权重在这里乘进来")),
            story.related("used", found.used.step, T(en="the loss is multiplied here", zh="损失在这里被相乘")),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("came", found.came, story.by(event.step)),
            Fact("meant", found.meant, "modelled"),
            Fact("weight", found.by, story.by(weighted.event.step)),
        ],
    )


def _fixes(story: Story, found: ProbabilityOfWeighted) -> tuple[Fix, ...]:
    """At most one fix: the exponential of the same loss without weights."""
    program, weighted = story.program, found.weighted
    given = written_as(story, weighted.user, weighted.label)
    made = program.at(story.span(weighted.event.step))
    if given is None or made is None or program.function(given) is not program.function(made):
        return ()
    text = None
    if weighted.plain is not None:
        plain = written_as(story, weighted.event, weighted.plain)
        text = operand(program, plain) if plain is not None else None
    elif isinstance(made, ast.Call):
        text = _unweighted(story, weighted.event, made)
    if text is None:
        return ()
    title = T(en="Compute the probability without the weights", zh="不加权地计算概率")
    return unique(program.text, [Fix(title, program.replace((given, text)), meaning="later")])


def _unweighted(story: Story, loss: Event, call: ast.Call) -> str | None:
    """The source of a call of the same loss without weights; None if the call has arguments that are not understood."""
    program = story.program
    plain = [*map(program.segment, call.args[:2])]
    if call_name(call) != loss.name:  # a layer, which has the weights
        if len(call.args) != 2 or call.keywords:
            return None
        ignored = argument(loss, "ignore_index")
        more = [f"ignore_index={ignored}"] if ignored not in (None, "-100") else []
        return f"torch.nn.functional.{loss.name}({', '.join([*plain, *more])}, reduction='none')"
    if len(call.args) > len((*plain, WEIGHTS)):
        return None
    kept = [program.segment(k) for k in call.keywords if k.arg not in WEIGHTS]
    return f"{program.segment(call.func)}({', '.join([*plain, *kept])})"


RULE = Rule(
    code="PL938",
    name="probability-of-weighted-loss",
    severity="warning",
    title=T(
        en="A focal loss takes the probability from a loss that has weights in it",
        zh="焦点损失由已经加权的损失计算概率",
    ),
    what=T(
        en="A program lets examples that are already recognised well count less, by a factor that it computes from the "
        "probability of the right class. It gets this probability back from the loss, but the loss was multiplied by "
        "the weight of the class before, so what it gets is no probability of the class. Compute the loss without "
        "weights, take the probability from that, and multiply by the weight at the end.",
        zh="程序用一个由正确类别的概率算出的因子，让已经识别得很好的样本分量变小。它从损失中取回这个概率，但损失之前已经"
        "乘了类别的权重，所以得到的并不是该类别的概率。请先不加权地计算损失，由它取得概率，最后再乘以权重。",
    ),
    why=T(
        en='`F.cross_entropy(x, y, weight=w, reduction="none")` is `-w[y] * log(p)`. Its negative exponential is '
        "`p ** w[y]`. With a weight of 4 and a probability of 0.9 that is 0.656, and the factor `(1 - p) ** 2` becomes "
        "0.118 instead of 0.01; with a weight of 0.25 and 0.1 it is 0.562, and 0.192 instead of 0.81. Nothing fails, "
        "and the loss still falls. The same holds for `pos_weight`, and for a product with the weights of the "
        "examples.",
        zh='`F.cross_entropy(x, y, weight=w, reduction="none")` 是 `-w[y] * log(p)`，取负再取指数得到 `p ** w[y]`。权重'
        "为 4、概率为 0.9 时它是 0.656，因子 `(1 - p) ** 2` 变成 0.118，而不是 0.01；权重为 0.25、概率为 0.1 时它是"
        " 0.562，因子是 0.192，而不是 0.81。不会报错，损失也照样下降。`pos_weight` 以及与样本权重的乘积也是如此。",
    ),
    bad="""import torch
import torch.nn.functional as F

logits = torch.log(torch.tensor([[0.1, 0.9], [0.6, 0.4]])).requires_grad_()
target = torch.tensor([1, 0])
alpha = torch.tensor([0.25, 4.0])
ce = F.cross_entropy(logits, target, weight=alpha, reduction="none")  # made
p = torch.exp(-ce)  # PL938
loss = ((1 - p) ** 2 * ce).mean()  # used
loss.backward()
print(p, loss.item())
""",
    good="""import torch
import torch.nn.functional as F

logits = torch.log(torch.tensor([[0.1, 0.9], [0.6, 0.4]])).requires_grad_()
target = torch.tensor([1, 0])
alpha = torch.tensor([0.25, 4.0])
ce = F.cross_entropy(logits, target, weight=alpha, reduction="none")
p = torch.exp(-F.cross_entropy(logits, target, reduction="none"))
loss = ((1 - p) ** 2 * ce).mean()
loss.backward()
print(p, loss.item())
""",
    find=find,
    traps=(
        Trap(
            "torch.exp(-ce)",
            "torch.exp(-ce / alpha.mean())",
            T(
                en="Each example has a weight of its own: the mean takes out another one.",
                zh="每个样本有自己的权重：除以平均值去掉的是另一个权重。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",
    ),
)
