"""Sequences of tokens: from which tokens the positions of a tensor were computed, through which attentions, and which
target belongs to each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan

from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.signals.axes import ELEMENTWISE, LAYERS, PRODUCTS, VIEWS, dimension
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, values, whole
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import operations_that, spellings

CLASSIFIERS = ("cross_entropy", "nll_loss")
PRODUCTS_OF_MATRICES = spellings("matmul", "mm") | {"baddbmm", "bmm", "einsum"}
"""Products that combine the positions of one operand with those of the other."""
KEEPING = (
    ELEMENTWISE | PRODUCTS | LAYERS | VIEWS | spellings("cat", "pow")
    | spellings("add", "div", "mul", "sub", in_place=True)
    | {"_softmax", "batch_norm", "chunk", "detach_", "feature_dropout", "glu", "log_softmax", "masked_fill_", "mish",
       "nan_to_num", "narrow", "relu_", "rms_norm", "select", "selu", "softmax", "softplus", "split", "sqrt", "square",
       "type", "unbind", "view_as"}
)  # fmt: skip
"""Calls that compute each row of the result from the same row of the operands (of a matrix product, of its first
operand).
"""
SAME_TOKENS = {
    "contiguous", "clone", "to", "long", "int", "detach", "view", "reshape", "flatten", "t", "T", "mT", "transpose",
    "permute", "squeeze", "unsqueeze", "cpu", "type", "ravel", "data", "view_as", "type_as",
}  # fmt: skip
"""Calls through which tokens are followed."""
RECURRENT = operations_that("recurrent")
PLAIN = spellings("div", "mul") | {"contiguous", "dropout", "float", "to", "type"}
"""Calls between the product of queries and keys and the softmax."""
COMPARED = spellings("eq", "ne")
SUMS = spellings("add", "sub")
LOWEST = -1e3
"""A score that a mask made smaller than this is excluded."""
FURTHER = 400
FEWEST, FEWEST_KINDS = 6, 3
"""``FEWEST``: how many tokens, and ``FEWEST_KINDS``: how many different ones, have to agree before a target counts as
the next token.
"""


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention: ``event`` is its softmax, or the whole call (``scaled_dot_product_attention``).

    ``product`` is the call that multiplied the values by the weights, or again the whole call. ``keys``, ``weights``
    and ``mask`` are labels. For a whole call, ``keys`` are its keys, ``weights`` is None, and ``mask`` is its mask
    (None if it has none). For a softmax, ``keys`` are the values, ``weights`` is the tensor by which they were
    multiplied, and ``mask`` is None.
    """

    event: Event
    product: Event
    keys: str
    weights: str | None
    mask: str | None


@dataclass(frozen=True, slots=True)
class RowOrigins:
    """The calls by which the rows of a tensor were computed: ``lookups``, the calls (``Event``) of ``embedding`` or
    ``one_hot`` on their tokens, the ``attentions``, and the calls of ``recurrent`` layers. Through the last two, a row
    depends on other rows.
    """

    lookups: tuple[Event, ...]
    attentions: tuple[Attention, ...]
    recurrent: tuple[Event, ...] = ()


def makers(story: Story, label: str | None, step: int) -> Iterator[Event]:
    """Yield the call that created the tensor ``label``, then the calls up to ``step`` that wrote to it and returned it;
    nothing if no recorded call created it.
    """
    born = story.event((story.tensor(label, step) or {}).get("born"))
    if born is not None and born.kind == "call" and label in born.results:
        yield born
        yield from (use for use in story.uses(label) if born.step < use.step <= step and label in use.results)


def rows_of(story: Story, label: str | None, step: int) -> RowOrigins:
    """Return the calls by which the rows of the tensor ``label`` were computed from tokens, followed back through calls
    that do not mix rows, attentions and recurrent layers.

    At an attention, the queries are followed. At most ``FURTHER`` tensors are searched.
    """
    pending, seen = [(label, step)], {label}
    lookups, attentions, recurrent = list[Event](), list[Attention](), list[Event]()
    while pending and len(seen) < FURTHER:
        here, until = pending.pop(0)
        for event in makers(story, here, until):
            follow: list[str | None] = []
            if event.name in ("embedding", "one_hot"):
                lookups.append(event)
            elif event.name == "scaled_dot_product_attention":
                attentions.append(_fused(event))
                follow = [event.operands[0].label]
            elif event.name in PRODUCTS_OF_MATRICES:
                given = [o.label for o in event.operands if o.label is not None]
                given = given[1:] if event.name == "baddbmm" else given
                weighing = _softmax_behind(story, given[0], event.step) if len(given) > 1 else None
                if weighing is not None:
                    attentions.append(Attention(weighing, event, given[1], given[0], None))
                    follow = [weighing.operands[0].label]
                else:
                    follow = [given[0]] if given else []
            elif event.name in RECURRENT:
                follow = [event.operands[0].label] if here == event.results[0] else []
                recurrent.append(event)
            elif event.name in KEEPING:
                follow = [o.label for o in event.operands]
            fresh = [each for each in follow if each is not None and each not in seen]
            seen.update(fresh)
            pending += [(each, event.step) for each in fresh]
    return RowOrigins(tuple(lookups), tuple(attentions), tuple(recurrent))


def _fused(event: Event) -> Attention:
    tensors = [o for o in event.operands if o.label is not None]
    mask = next((o.label for o in event.operands if o.name == "attn_mask"), None)
    if mask is None and len(event.operands) > 3 and not event.operands[3].name:
        mask = event.operands[3].label
    return Attention(event, event, str(tensors[1].label), None, mask)


def _softmax_behind(story: Story, label: str, step: int) -> Event | None:
    """Return the softmax along the last axis from which this tensor was computed by fewer than eight element-wise
    calls, products and views; else None.
    """
    for _ in range(8):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label not in event.results or not event.operands or event.operands[0].label is None:
            return None
        if event.name in ("softmax", "_softmax"):
            shape = story.shape(label, event.step) or ()
            return event if dimension(story, event) == len(shape) - 1 else None
        if (
            event.name not in ELEMENTWISE
            and event.name not in PRODUCTS
            and event.name not in VIEWS
            and event.name not in ("nan_to_num", "div")
        ):
            return None
        label, step = event.operands[0].label, event.step
    return None


def directions(story: Story, event: Event) -> int:
    """Return 2 if a recurrent layer is bidirectional, else 1 (also if its shapes are unknown)."""
    out, state = (story.shape(label, event.step) or (0,) for label in event.results[:2])
    return out[-1] // state[-1] if state[-1] else 1


def comes_from(story: Story, label: str | None, step: int, source: Event) -> bool:
    """Whether the tensor ``label`` at ``step`` was computed, directly or through others, from the result of the call
    ``source``, as far as a search of ``FURTHER`` tensors shows it.
    """
    pending, seen = [(label, step)], {label}
    while pending and len(seen) < FURTHER:
        here, until = pending.pop(0)
        for event in makers(story, here, until):
            if event.step == source.step:
                return True
            if event.step > source.step:
                fresh = [o.label for o in event.operands if o.label is not None and o.label not in seen]
                seen.update(fresh)
                pending += [(each, event.step) for each in fresh]
    return False


def attentions(story: Story) -> Iterator[Attention]:
    """Yield the attentions of a trace, in order: the calls of ``scaled_dot_product_attention``, and the matrix products
    whose first operand comes from a softmax along the last axis. Calls that raised, and ``baddbmm``, are left out.
    """
    for event in story.calls(*PRODUCTS_OF_MATRICES, "scaled_dot_product_attention"):
        if event.error is not None or not event.results:
            continue
        if event.name == "scaled_dot_product_attention":
            yield _fused(event)
            continue
        given = [o.label for o in event.operands if o.label is not None]
        weighing = _softmax_behind(story, given[0], event.step) if len(given) > 1 and event.name != "baddbmm" else None
        if weighing is not None:
            yield Attention(weighing, event, given[1], given[0], None)


def is_among(story: Story, attention: Attention, length: int) -> bool:
    """Whether the attention compares the positions of a row of ``length`` tokens with one another (rows and columns of
    the weights both have this length).
    """
    if attention.weights is not None:
        return (story.shape(attention.weights, attention.product.step) or ())[-2:] == (length, length)
    shapes = [story.shape(o.label, attention.event.step) or () for o in attention.event.operands[:2]]
    return all(len(shape) > 1 and shape[-2] == length for shape in shapes)


def sees_next(story: Story, attention: Attention) -> float | None:
    """Return the attention weight of the first position for the second, if it is above 0; 1 if only the masks are known
    and none excludes it.

    None in every other case, also if all known weights of the first row are equal.
    """
    if attention.weights is None:
        return _mask_lets(story, attention)
    shape = story.shape(attention.weights, attention.product.step) or ()
    given, made = (
        Elements(story, attention.weights, attention.product.step),
        Elements(story, attention.event.results[0], attention.event.step),
    )
    first = (0,) * (len(shape) - 1)
    weight = given.at((*first, 1))
    if weight is None:
        return 1.0 if _masks_let(story, attention, (*first, 1)) else None
    row = [made.at((*first, j)) for j in range(shape[-1])]
    uniform = len({value for value in row if value is not None}) < 2
    return weight if not isnan(weight) and weight > 1e-6 and not uniform else None


def _masks_let(story: Story, attention: Attention, index: Index) -> bool:
    """Whether every mask between the scores and the values is known, and none excludes the position ``index``.

    False if anything but calls of ``PLAIN`` and ``VIEWS``, sums and ``masked_fill`` is between them.
    """
    if not _only(story, attention.weights, attention.product.step, {"softmax", "_softmax"}, PLAIN | VIEWS):
        return False
    label, step = attention.event.operands[0].label, attention.event.step
    for _ in range(8):
        made = list(makers(story, label, step))
        event = made[0] if len(made) == 1 else None
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or event.name == "baddbmm" or not given:
            return False
        if event.name in PRODUCTS_OF_MATRICES:
            return True
        if len(given) == 2 and event.name in ("masked_fill", *SUMS):
            scores = [each for each in given if (story.tensor(each, event.step) or {}).get("requires_grad")]
            mask = given[1] if event.name == "masked_fill" or given[0] in scores else given[0]
            value = Elements(story, mask, event.step, answers=True).at(index)
            if value is None or (value != 0 if event.name == "masked_fill" else value <= LOWEST):
                return False
            given = [each for each in given if each != mask]
        elif event.name not in PLAIN | VIEWS or len(given) != 1:
            return False
        label, step = given[0], event.step
    return False


def adds_answers(story: Story, attention: Attention) -> bool:
    """Whether a mask of the numbers 0 and 1 is added to the scores of the attention, which masks nothing; it may also
    have been passed to a call of the whole attention.
    """
    if attention.weights is None:
        return attention.mask is not None and set(values(story, attention.mask, attention.event.step)) == {0, 1}
    added = (
        event for event in makers(story, attention.event.operands[0].label, attention.event.step) if event.name in SUMS
    )
    return any(
        set(values(story, o.label, event.step)) == {0, 1}
        for event in added
        for o in event.operands
        if o.label is not None
    )


def _mask_lets(story: Story, attention: Attention) -> float | None:
    event = attention.event
    if any(
        o.text == "True" and o.name in ("", "is_causal") for o in event.operands
    ):  # an argument that is None or False is not in the trace
        return None
    if attention.mask is None:
        return 1.0
    answers = (story.tensor(attention.mask, event.step) or {}).get("dtype") == "bool"
    count = len(story.shape(event.operands[0].label, event.step) or ())
    value = Elements(story, attention.mask, event.step, answers=True).at((*(0,) * (count - 1), 1))
    return 1.0 if value is not None and value > (0 if answers else LOWEST) else None


def is_unmasked(story: Story, attention: Attention) -> bool:
    """Whether the attention has no mask before or after its softmax, and is not causal; False if other calls are in
    between.
    """
    if attention.weights is None:
        return attention.mask is None and _mask_lets(story, attention) is not None
    plain = PLAIN | VIEWS
    before = _only(
        story, attention.event.operands[0].label, attention.event.step, PRODUCTS_OF_MATRICES - {"baddbmm"}, plain
    )
    return before and _only(story, attention.weights, attention.product.step, {"softmax", "_softmax"}, plain)


def _only(story: Story, label: str | None, step: int, ends: set[str], between: set[str]) -> bool:
    """Whether the tensor was computed by one of the calls ``ends``, followed only by calls ``between`` with one tensor
    operand each.
    """
    for _ in range(8):
        made = list(makers(story, label, step))
        if len(made) != 1:
            return False
        if made[0].name in ends:
            return True
        given = [o.label for o in made[0].operands if o.label is not None]
        if made[0].name not in between or len(given) != 1:
            return False
        label, step = given[0], made[0].step
    return False


def written_forms(story: Story, label: str | None, step: int) -> Iterator[tuple[str, int]]:
    """Yield the tensor ``label`` of tokens, and the tensors of which it is a copy or a view, back to the first, each
    with the step at which it was read; nothing if ``label`` is None.
    """
    while label is not None:
        yield label, step
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label not in event.results or event.name not in SAME_TOKENS or not event.operands:
            return
        label, step = event.operands[0].label, event.step


def next_axis(story: Story, target: tuple[str | None, int], tokens: tuple[str | None, int]) -> int | None:
    """Return the axis along which the targets are the tokens shifted by one position; None if they are not, as far as
    known.

    ``target`` and ``tokens`` are pairs of a label and a step. The shift is found in the storage offsets, or in the
    values if at least ``FEWEST`` known tokens, ``FEWEST_KINDS`` of them different, agree.
    """
    targets, given = list(written_forms(story, *target)), list(written_forms(story, *tokens))
    for one, at in targets:
        for other, there in given:
            axis = _one_further(story.tensor(one, at) or {}, story.tensor(other, there) or {})
            if axis is not None:
                return axis
    pairs = ((one, at, other, there) for one, at in targets for other, there in given)
    return next((axis for pair in pairs if (axis := _next_by_value(story, *pair)) is not None), None)


def _one_further(target: Record, tokens: Record) -> int | None:
    """Return the axis if both tensors are slices of one storage and the target begins one position later along it; else
    None.
    """
    if (
        target.get("storage") is None
        or target.get("storage") != tokens.get("storage")
        or target.get("stride") != tokens.get("stride")
    ):
        return None
    there, here = target.get("shape") or [], tokens.get("shape") or []
    for axis, step in enumerate(tokens.get("stride") or ()):
        rest = [n for i, n in enumerate(there) if i != axis] == [n for i, n in enumerate(here) if i != axis]
        further = (target.get("offset") or 0) - (tokens.get("offset") or 0) == step
        if rest and further and here[axis] > 1 and there[axis] in (here[axis], here[axis] - 1):
            return axis
    return None


def _next_by_value(story: Story, target: str, at: int, tokens: str, there: int) -> int | None:
    shape, own = story.shape(tokens, there) or (), story.shape(target, at) or ()
    if len(shape) != len(own) or not shape:
        return None
    before, after = Elements(story, tokens, there), Elements(story, target, at)
    for axis, length in enumerate(shape):
        if length < 3 or any(a != b for i, (a, b) in enumerate(zip(shape, own, strict=True)) if i != axis):
            continue
        pairs = [
            (value, found)
            for index, value in before.known()
            if index[axis] > 0
            and (found := after.at((*index[:axis], index[axis] - 1, *index[axis + 1 :]))) is not None
            and found >= 0
        ]
        kinds = {value for value, _ in pairs}
        if len(pairs) >= FEWEST and len(kinds) >= FEWEST_KINDS and all(value == found for value, found in pairs):
            return axis
    return None


def padding_number(story: Story, lookup: Event) -> int | None:
    """Return the token that stands for padding among the tokens that ``lookup`` (an embedding) looked up: its
    ``padding_idx``, the ``padding_value`` of ``pad_sequence``, or the number with which a mask compares the tokens.

    None if there is none, or if ``pad_sequence`` joined sequences of equal lengths.
    """
    given = argument(lookup, "padding_idx")
    if given is not None and whole(given) is not None:
        return whole(given)
    tokens = lookup.operands[0].label
    for label, step in written_forms(story, tokens, lookup.step):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is not None and made.name == "pad_sequence":
            sizes = _sizes_joined(story, made)
            if len(sizes) > 1 and len(set(sizes)) == 1:
                return None  # sequences of one length: nothing was filled up, and this number is a token
            return _number(argument(made, "padding_value", len(sizes) + 1) or "0")
    record = story.tensor(tokens, lookup.step) or {}
    for label, other in story.tensors_on(record.get("storage")):
        if all(other.get(key) == record.get(key) for key in ("offset", "shape", "stride")):
            masks = (
                use
                for use in story.uses(label)
                if use.name in COMPARED and len(use.operands) == 2 and use.operands[1].label is None
            )
            found = [number for use in masks if (number := _number(use.operands[1].text)) is not None]
            if found:
                return found[0]
    return None


def _sizes_joined(story: Story, made: Event) -> list[int | None]:
    """The lengths of the sequences that ``pad_sequence`` joined, in order."""
    return [(story.shape(each.label, made.step) or (None,))[0] for each in made.operands if each.label is not None]


def _number(text: str) -> int | None:
    try:
        return int(float(text)) if float(text) % 1 == 0 else None
    except (ValueError, OverflowError):
        return None


def padded(story: Story, label: str | None, step: int, number: int, along: int | None = None) -> list[Index]:
    """Return the known indices of the padding token ``number`` in the matrix of tokens ``label``.

    Empty unless it is known that the rows (along the axis ``along``, if given) are padded at their ends or at their
    beginnings.
    """
    known = dict(Elements(story, label, step).known())
    shape = story.shape(label, step) or ()
    if len(shape) != 2 or min(shape) < 2:
        return []
    places = [index for index, value in known.items() if value == number]
    if not places or len(places) == len(known):
        return []
    if _within_rows(story, label, step, places):
        return []  # the number of padding is also that of a real token
    filled = [axis for axis in (1, 0) if _fills_up(known, places, axis, shape[axis])]
    return places if filled and along in (None, filled[0]) else []


def _within_rows(story: Story, label: str | None, step: int, places: list[Index]) -> bool:
    """Whether one of the indices is within the length of its own sequence, so that ``pad_sequence`` did not fill it."""
    for form, at in written_forms(story, label, step):
        made = story.event((story.tensor(form, at) or {}).get("born"))
        if made is None or made.name != "pad_sequence":
            continue
        rows = [story.shape(o.label, made.step) or () for o in made.operands if o.label is not None]
        if (argument(made, "padding_side", len(rows) + 2) or "right").strip("'\"") != "right":
            continue
        first = argument(made, "batch_first", len(rows)) == "True"
        shape = story.shape(form, at) or ()
        if len(shape) == 2 and len(rows) == shape[0 if first else 1] and all(len(row) == 1 for row in rows):
            return any(place[1 if first else 0] < rows[place[0 if first else 1]][0] for place in places)
    return False


def _fills_up(known: dict[Index, float], places: list[Index], axis: int, length: int) -> bool:
    """Whether, as far as known, the padding is at the end of every row, or at the beginning of every row.

    At least one row must be known to be padded at that end, and one not to be all padding.
    """
    number = known[places[0]]
    for sign, end in ((1, length - 1), (-1, 0)):
        rows: dict[int, dict[int, float]] = {}
        for index, value in known.items():
            rows.setdefault(index[1 - axis], {})[index[axis]] = value
        runs = [
            [value == number for _, value in sorted(row.items(), key=lambda pair: sign * pair[0])]
            for row in rows.values()
        ]
        ends = any(row.get(end) == number for row in rows.values())
        if ends and all(run == sorted(run) for run in runs) and any(not all(run) for run in runs):
            return True
    return False


def name_of_tokens(story: Story, lookup: Event, event: Event) -> str | None:
    """Return the name that the tokens looked up by ``lookup`` have where ``event`` is called: a name in the same
    function, a parameter of it, or, at the top level, any name of theirs; None if there is none.
    """
    program = story.program
    one, other = (program.at(story.span(each.step)) for each in (lookup, event))
    if one is None or other is None:
        return None
    node = written_as(story, lookup, lookup.operands[0].label)
    if program.function(one) is program.function(other) and isinstance(node, ast.Name):
        return node.id
    names = (
        [n.id for n in ast.walk(one) if isinstance(n, ast.Name)]
        if program.function(one) is program.function(other)
        else []
    )
    held = {
        str(name)
        for label, _ in written_forms(story, lookup.operands[0].label, lookup.step)
        for _, each in story.history("tensors", label, "names") for name in each or ()
    }  # fmt: skip
    around = program.function(other)
    if around is not None:
        names += [a.arg for a in around.args.args]
    return next((name for name in names if name in held), next(iter(sorted(held)), None) if around is None else None)
