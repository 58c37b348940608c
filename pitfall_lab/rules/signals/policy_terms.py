"""The terms of a policy's loss: weighted log-probabilities of sampled actions, and entropies of the distributions they
were sampled from, each with its sign.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import e, isclose, log, pi, prod

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by, same_numbers, unshifted
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.rules.signals.loss_slopes import RISING, Slope
from pitfall_lab.rules.signals.sequences import makers
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

DRAWS = ("multinomial", "bernoulli", "normal")
"""Calls that sample from a distribution given by their operand."""
NOISE = {"randn", "randn_like", "rand", "rand_like"}
"""Calls that draw random numbers from which a program can make a sample itself."""
KEEPING = (
    SAME_NUMBERS | spellings("lt", "gt", "le", "ge")
    | {"argmax", "broadcast_tensors", "index_select", "int", "long", "tanh", "where"}
)  # fmt: skip
"""Calls through which a sampled action is followed from its use back to the call that sampled it."""
ADDING = spellings("add", in_place=True)
TAKING = spellings("sub", in_place=True)
TAKEN = spellings("sub", exchanged=True) - spellings("sub")
PRODUCTS, QUOTIENTS = spellings("mul", in_place=True), spellings("div", in_place=True)
SUMS_OF_PRODUCTS = spellings("matmul", "mm") | {"dot", "einsum", "inner", "mv", "vdot"}
"""Calls that multiply log-probabilities by weights and sum."""
SQUARES = spellings("pow", "square")
CHOOSING = {"max", "maximum", "min", "minimum"}
"""Calls by which a loss contains the smaller or the larger of two products."""
PICKS = {"gather", "take_along_dim", "index_select", "__getitem__"}
"""Calls that select the log-probabilities of actions, given as indices, from those of all actions."""
INNER = {"log", "exp", "log_softmax", "logsumexp", "sigmoid", "softmax", "sum", "logsigmoid", "softplus"}
"""Calls between the output of a network and the probabilities, or the scale, of a distribution."""
SHARES = {"softmax", "exp"}
"""Calls that turn logits or log-probabilities into probabilities."""
HALF_NORMAL = 0.5 * log(2 * pi * e)
"""The entropy of a normal distribution whose scale is 1."""
MOST, FURTHER, NEAR = 600, 60, 12


@dataclass(frozen=True, slots=True)
class Entropy:
    """An entropy in a loss: ``slope`` is the path from the loss to the result of the call ``made`` (an ``Event``),
    whose sum or mean is an entropy (or its negative).

    ``sign`` is 1 if the loss grows with the entropy, -1 if it falls. ``parameters`` are the labels of tensors that
    describe the distribution. ``value`` is the mean entropy; None if the trace does not have all values.
    """

    slope: Slope
    made: Event
    sign: int
    parameters: frozenset[str]
    value: float | None


@dataclass(frozen=True, slots=True)
class WeightedScore:
    """The log-probability of a sampled action in a loss: ``slope`` is the path from the loss to the call that computes
    it, with a multiplication by a weight on the way.

    ``sign`` is 1 if the loss grows with the log-probability (for positive weights), -1 if it falls. ``parameters`` are
    the labels of tensors that describe the distribution (for a normal one only its scale; empty if none is known).
    """

    slope: Slope
    sign: int
    parameters: frozenset[str]


@dataclass(slots=True)
class PolicyTerms:
    """The terms of a policy's loss: its ``entropies``, and its ``scores``, the weighted log-probabilities of sampled
    actions.

    ``weighted`` are the labels of the tensors from which a weighted term of the loss was computed.
    """

    entropies: list[Entropy] = field(default_factory=list)
    scores: list[WeightedScore] = field(default_factory=list)
    weighted: set[str] = field(default_factory=set)

    def of_policy(self) -> list[tuple[Entropy, list[WeightedScore]]]:
        """Return the entropies of the distributions that also occur in weighted terms, each with the scores of the same
        distribution.

        A score belongs to an entropy if they share parameters; if a weighted term was computed from the entropy's
        parameters, all scores belong to it. An entropy without scores is left out.
        """
        pairs = [
            (
                each,
                [
                    score
                    for score in self.scores
                    if each.parameters & score.parameters or each.parameters & self.weighted
                ],
            )
            for each in self.entropies
        ]
        return [(each, scores) for each, scores in pairs if scores]


@dataclass(frozen=True, slots=True)
class _Way:
    """A path from the loss: ``certain`` if its sign is known, ``weighted`` if it contains a multiplication by a
    weight.
    """

    slope: Slope
    certain: bool = True
    weighted: bool = False


def policy_terms(story: Story, backward: Event) -> PolicyTerms:
    """Return the entropies and the weighted log-probabilities of sampled actions that the loss of ``backward``
    contains.

    Both are searched back from the loss through sums, means, products and the smaller of two products, over at most
    about ``MOST`` tensors. Entropies of categorical, Bernoulli and normal distributions are recognised.
    """
    found, seen = PolicyTerms(), set[tuple[str, bool, bool]]()
    root = backward.operands[0].label
    pending = deque([_Way(Slope(root, 1, None, None))] if root is not None else [])
    while pending and len(seen) < MOST:
        way = pending.popleft()
        here, step = way.slope, way.slope.event.step if way.slope.event is not None else backward.step
        if (here.label, way.certain, way.weighted) in seen:
            continue
        seen.add((here.label, way.certain, way.weighted))
        if way.weighted:
            found.weighted.add(here.label)
        for event in makers(story, here.label, step):
            if way.certain and not way.weighted and (entropy := _entropy(story, event, here)) is not None:
                found.entropies.append(entropy)
            elif way.weighted and (scored := _scored(story, event, here)) is not None:
                found.scores.append(scored)
            else:
                pending += [
                    _Way(Slope(label, sign * here.sign, event, here), way.certain and certain, way.weighted or weighted)
                    for label, sign, certain, weighted in _through(story, event, here.label)
                    if label != here.label and (story.tensor(label, event.step) or {}).get("requires_grad")
                ]
    return found


def _through(story: Story, event: Event, label: str) -> Iterator[tuple[str, int, bool, bool]]:
    """The operands of a call, each with a sign, whether the sign is certain, and whether the call multiplies the
    operand by a weight that is no constant.
    """
    given = [o.label for o in event.operands]
    own = [each for each in given if each is not None]
    if event.name == "broadcast_tensors":
        yield (own[event.results.index(label)] if label in event.results else label), 1, True, False
    elif event.name in ADDING | TAKING | TAKEN:
        signs = (-1, 1) if event.name in TAKEN else (1, -1) if event.name in TAKING else (1, 1)
        yield from ((each, sign, True, False) for each, sign in zip(given, signs, strict=False) if each is not None)
    elif event.name in PRODUCTS | QUOTIENTS and len(given) > 1:
        yield from _scaled(story, event)
    elif event.name in SUMS_OF_PRODUCTS | CHOOSING | SQUARES | {"where"}:
        yield from ((each, 1, False, event.name in SUMS_OF_PRODUCTS) for each in own)
    elif event.name in RISING | spellings("neg") and own:
        sign = 1 if event.name in RISING else -1
        yield from ((each, sign, True, False) for each in (own if event.name in ("stack", "cat") else own[:1]))
    elif event.name in INNER | {"gather"} and own:
        yield own[0], 1, False, False


def _scaled(story: Story, event: Event) -> Iterator[tuple[str, int, bool, bool]]:
    """What :func:`_through` returns for a product or a quotient."""
    given = event.operands[:2]
    for place, other in ((0, 1), (1, 0)):
        label = given[place].label
        if label is None:
            continue
        number = constant(story, given[other].label, given[other].text, event.step)
        divides = event.name in QUOTIENTS and place == 1
        if divides:
            yield label, -1, False, False
        elif number is not None:
            varied = given[other].label is not None or len(_factors(story, event)) > 1
            yield label, 1 if number > 0 else -1, number != 0, False
            if varied:  # the return of one action, as a number
                yield label, 1, False, True
        else:
            sign = _common_sign(story, given[other].label, event.step)
            yield label, sign or 1, sign is not None, False
            yield label, 1, False, True


def _factors(story: Story, event: Event) -> set[str]:
    """The numbers (at most two are collected) that were operands of the call on this line in its executions."""
    found = set[str]()
    for step in story.steps_at[event.span, event.op]:
        found |= {o.text for o in story.events[step].operands if o.label is None}
        if len(found) > 1:
            break
    return found


def _common_sign(story: Story, label: str | None, step: int) -> int | None:
    """1 or -1 if no element of the tensor has the other sign; None if it requires grad, not all its values are known,
    both signs occur, or all are 0.
    """
    record = story.tensor(label, step) or {}
    cells = (story.record("storages", record.get("storage"), step) or {}).get("cells")
    if record.get("requires_grad") or cells is None:
        return None
    if isinstance(cells, dict):
        low, high = cells.get("low"), cells.get("high")
    else:
        numbers = [float(each) for each in cells if isinstance(each, int | float)]
        low, high = (min(numbers), max(numbers)) if numbers and len(numbers) == len(cells) else (None, None)
    if low is None or high is None or low == high == 0:
        return None
    return 1 if low >= 0 else -1 if high <= 0 else None


def _entropy(story: Story, event: Event, slope: Slope) -> Entropy | None:
    """The entropy whose summands the call computes; None if it computes anything else."""
    own = [o.label for o in event.operands if o.label is not None]
    if event.name in PRODUCTS | {"xlogy"} and len(own) == 2:
        for share, logarithm in ((own[0], own[1]), (own[1], own[0])):
            found = (
                _share_and_logarithm(story, share, logarithm, event.step)
                if event.name != "xlogy"
                else _parameters(story, share, event.step)
            )
            if found and (event.name != "xlogy" or own[0] == own[1]):
                mean, shape = _mean(story, event), story.shape(share, event.step) or (1,)
                value = -mean * shape[-1] if mean is not None else None
                return Entropy(slope, event, -slope.sign, found, value)
    elif event.name == "entr" and own:
        mean, shape = _mean(story, event), story.shape(own[0], event.step) or (1,)
        value = mean * shape[-1] if mean is not None else None
        return Entropy(slope, event, slope.sign, _parameters(story, own[0], event.step), value)
    elif event.name == "binary_cross_entropy_with_logits" and len(own) > 1:
        target, logits = (made_by(story, same_numbers(story, own[1], event.step), event.step), own[0])
        if target is not None and target.name == "sigmoid" and target.operands[0].label is not None:
            source = same_numbers(story, target.operands[0].label, target.step)
            if source == same_numbers(story, logits, event.step):
                parameters = _parameters(story, logits, event.step)
                return Entropy(slope, event, slope.sign, parameters, _mean(story, event))
    elif event.name in ADDING and len(own) == 1 and len(event.operands) > 1:
        number = next((constant(story, None, o.text, event.step) for o in event.operands if o.label is None), None)
        parameters = _scale(story, own[0], event.step)
        if number is not None and isclose(number, HALF_NORMAL, abs_tol=1e-4) and parameters:
            return Entropy(slope, event, slope.sign, parameters, _mean(story, event))
    return None


def _mean(story: Story, event: Event) -> float | None:
    """The mean of the result's elements; None if not all of them are known."""
    label = event.results[0] if event.results else None
    record = story.tensor(label, event.step) or {}
    cells = (story.record("storages", record.get("storage"), event.step) or {}).get("cells")
    if isinstance(cells, dict):
        mean = cells.get("mean")
        return float(mean) if isinstance(mean, int | float) else None
    numbers = [value for _, value in Elements(story, label, event.step).known()]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == prod(record.get("shape") or ()) else None


def _share_and_logarithm(story: Story, share: str, logarithm: str, step: int) -> frozenset[str]:
    """The parameters of a distribution whose probabilities are ``share``, and their logarithms ``logarithm``; empty if
    the second is not the logarithm of the first.
    """
    share, logarithm = same_numbers(story, share, step), same_numbers(story, logarithm, step)
    first, second = made_by(story, share, step), made_by(story, logarithm, step)
    fits = False
    if first is not None and first.name in SHARES and first.operands[0].label is not None:
        source = same_numbers(story, first.operands[0].label, first.step)
        fits = source == logarithm
        if not fits and first.name == "softmax" and second is not None and second.name == "log_softmax":
            fits = source == same_numbers(story, str(second.operands[0].label), second.step)
    if not fits and second is not None and second.name == "log" and second.operands[0].label is not None:
        fits = unshifted(story, second.operands[0].label, second.step) in (share, unshifted(story, share, step))
    return _parameters(story, logarithm, step) | _parameters(story, share, step) if fits else frozenset()


def _scale(story: Story, label: str, step: int) -> frozenset[str]:
    """The labels of the logarithm of a scale and of the scale, if ``label`` is a logarithm, or the program computes its
    exponential; empty otherwise.
    """
    label = same_numbers(story, label, step)
    made = made_by(story, label, step)
    if made is not None and made.name == "log" and made.operands[0].label is not None:
        return frozenset({label}) | _parameters(story, made.operands[0].label, made.step)
    exponentials = [use.results[0] for use in story.uses(label) if use.name == "exp" and use.results]
    return frozenset({label, *exponentials}) if exponentials else frozenset()


def _parameters(story: Story, label: str, step: int) -> frozenset[str]:
    """The label itself, and the tensors from which it was computed by at most about ``NEAR`` calls of network outputs
    to probabilities or a scale.
    """
    found, pending = set[str](), [(label, step)]
    while pending and len(found) < NEAR:
        here, at = pending.pop(0)
        if here in found:
            continue
        found.add(here)
        made = made_by(story, here, at)
        own = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is not None and (source := same_numbers(story, here, at)) != here:
            pending.append((source, at))
        elif made is not None and made.name in INNER | TAKING | QUOTIENTS | ADDING:
            pending += [(each, made.step) for each in own]
    return frozenset(found)


def _scored(story: Story, event: Event, slope: Slope) -> WeightedScore | None:
    """The log-probability of a sampled action that the call computes; None if it computes anything else."""
    own = [o.label for o in event.operands if o.label is not None]
    if event.name in PICKS and len(own) > 1 and any(_drawn(story, each, event.step) for each in own[1:]):
        return WeightedScore(slope, slope.sign, _parameters(story, own[0], event.step))
    if event.name in ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits") and len(own) > 1:
        if _drawn(story, own[1], event.step):
            return WeightedScore(slope, -slope.sign, _parameters(story, own[0], event.step))
    elif event.name in PRODUCTS and len(own) == 2:
        for log_prob, chosen in ((own[0], own[1]), (own[1], own[0])):
            made = made_by(story, same_numbers(story, chosen, event.step), event.step)
            if made is not None and made.name == "one_hot" and _drawn(story, made.operands[0].label, made.step):
                return WeightedScore(slope, slope.sign, _parameters(story, log_prob, event.step))
    elif event.name in SQUARES and own:
        return _scored_by_square(story, event, slope)
    return None


def _scored_by_square(story: Story, event: Event, slope: Slope) -> WeightedScore | None:
    """The log-probability of a normal distribution to which the square belongs; None unless it is the square of a
    sampled action minus another tensor, possibly divided by a scale.
    """
    label, step, scales = event.operands[0].label, event.step, frozenset[str]()
    root = made_by(story, same_numbers(story, label, step), step) if label is not None else None
    if root is not None and root.name in QUOTIENTS and root.operands[0].label is not None:
        given = [o.label for o in root.operands[1:] if o.label is not None]
        scales = frozenset(near for each in given for near in _parameters(story, each, root.step))
        root = made_by(story, same_numbers(story, root.operands[0].label, root.step), root.step)
    if root is None or root.name not in TAKING | TAKEN:
        return None
    sides = [o.label for o in root.operands if o.label is not None]
    plain = [each for each in sides if not (story.tensor(each, root.step) or {}).get("requires_grad")]
    is_drawn = any(_drawn(story, each, root.step) for each in plain)
    return WeightedScore(slope, -slope.sign, scales) if is_drawn else None


def _drawn(story: Story, label: str | None, step: int) -> bool:
    """Whether the values were sampled from a distribution that a network computed, as far as ``FURTHER`` tensors back
    show it.
    """
    pending, seen = deque([(label, step)]), set[str | None]()
    while pending and len(seen) < FURTHER:
        here, at = pending.popleft()
        if here is None or here in seen:
            continue
        seen.add(here)
        written = [use for use in story.uses(here) if use.step < at and use.name in ("__setitem__", "copy_")]
        for event in (*makers(story, here, at), *written[-1:]):
            own = [o.label for o in event.operands if o.label is not None]
            if event.name in DRAWS and own:
                if any(_learned(story, each, event.step) for each in own):
                    return True
            elif event.name in ADDING | spellings("lt", "gt") and len(own) == 2 and _adds_noise(story, event, own):
                return True
            elif event in written:
                pending += [(each, event.step) for each in own[1:]]
            elif event.name == "broadcast_tensors" and here in event.results:
                pending.append((own[event.results.index(here)], event.step))
            elif event.name in KEEPING:
                several = event.name in ("stack", "cat", "where")
                pending += [(each, event.step) for each in (own if several else own[:1])]
    return False


def _adds_noise(story: Story, event: Event, own: list[str]) -> bool:
    """Whether one of the two operands is random noise, possibly scaled, and the other was computed by a network."""
    for noise, other in ((own[0], own[1]), (own[1], own[0])):
        made = made_by(story, same_numbers(story, noise, event.step), event.step)
        if made is not None and made.name in PRODUCTS:
            inner = [made_by(story, o.label, made.step) for o in made.operands if o.label is not None]
            made = next((each for each in inner if each is not None and each.name in NOISE), None)
        if made is not None and made.name in NOISE | {"normal"} and _learned(story, other, event.step):
            return True
    return False


def _learned(story: Story, label: str, step: int) -> bool:
    """Whether the tensor, or one from which it was computed, is a parameter or requires grad."""
    pending, seen = deque([(label, step)]), set[str]()
    while pending and len(seen) < FURTHER:
        here, at = pending.popleft()
        if here in seen:
            continue
        seen.add(here)
        record = story.tensor(here, at) or {}
        if record.get("kind") == "parameter" or record.get("requires_grad"):
            return True
        made = made_by(story, here, at)
        pending += [(o.label, made.step) for o in made.operands if o.label is not None] if made is not None else []
    return False
