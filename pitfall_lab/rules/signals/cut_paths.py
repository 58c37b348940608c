"""Layers that are trained together although the input of the later one has lost the graph of the earlier ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.flow import FACTORS, SUMS, Cut, Flow
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Event, OptimizerStep
from pitfall_lab.trace.operation_facts import operations_that, spellings

LAYERS = (
    spellings("matmul", "mm") | operations_that("convolution") | operations_that("recurrent")
    | {"addmm", "bilinear", "bmm", "gru_cell", "linear", "lstm_cell"}
)  # fmt: skip
"""Calls that multiply their input by the weights of a layer."""
PENALTIES = (
    spellings("abs", "add", "clamp", "div", "expand", "mul", "neg", "pow", "sigmoid") | spellings("sub", exchanged=True)
    | {"chunk", "exp", "expm1", "flatten", "float", "getitem", "linalg_vector_norm", "log", "log1p", "log_softmax",
       "logsigmoid", "logsumexp", "mean", "norm", "relu", "reshape", "softmax", "softplus", "split", "sqrt", "square",
       "squeeze", "std", "sum", "tanh", "to", "unsqueeze", "var", "vector_norm", "view"}
)  # fmt: skip
"""Calls that a penalty on a hidden state consists of: element-wise functions and reductions."""
CONSTANTS = {"tensor", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "scalar_tensor", "as_tensor"}
"""Calls that make constants, which have no graph to lose."""


@dataclass(frozen=True, slots=True)
class Apart:
    """A layer that was cut off from earlier layers: the call ``layer`` was given the tensor ``value`` (a label), which
    ``cut`` (``detach()`` or the like) had separated from the graph of the parameters ``behind`` (labels), although the
    optimizer step ``update`` trains these and the layer together.

    ``backward``, before ``update``, reaches the parameters ``behind`` on other paths. If ``cut`` is the ``.data`` of a
    weight of the layer itself, ``behind`` is this weight.
    """

    cut: Cut
    value: str
    layer: Event
    behind: tuple[str, ...]
    backward: Event
    update: OptimizerStep


def cut_paths(story: Story) -> Iterator[Apart]:
    """Yield the layers whose input was cut off from other layers (or whose weight was read by ``.data``) that the same
    optimizer trains.

    The last backward between two steps of an optimizer is examined; each line of a cut is reported once. Cuts that are
    probably intended are left out, among them those of integers, of gradients and by ``sample``, and usually a
    ``detach`` if the earlier layers are trained by a loss of their own and not only by penalties.
    """
    flow, reported = Flow(story), set()
    backwards = [b for b in story.backwards() if b.error is None and b.operands]
    since: dict[object, int] = {}
    for update in story.trace.optimizer_steps:
        key = update.span if update.made is None else update.made
        begun, since[key] = since.get(key, 0), update.step
        backward = next((b for b in reversed(backwards) if begun <= b.step < update.step), None)
        for found in _before(story, flow, backward, begun, update) if backward is not None else ():
            place = story.span(found.cut.event.step)
            if place not in reported:
                reported.add(place)
                yield found


def _before(story: Story, flow: Flow, backward: Event, begun: int, update: OptimizerStep) -> Iterator[Apart]:
    """Yield what was found in the iteration that began at step ``begun`` and ended with ``update``."""
    start, held = backward.operands[0].label, set(update.holds)
    layers = [event for event in story.events[begun : backward.step] if event.kind == "call" and event.name in LAYERS]
    if not layers or not held:
        return
    graph = set(story.behind((story.tensor(start, backward.step) or {}).get("grad_fn")))
    reached = flow.leaves(start, backward.step)
    for layer in layers:
        node = (story.tensor(layer.results[0], layer.step) or {}).get("grad_fn") if layer.results else None
        if node not in graph:
            continue
        own = {leaf for o in layer.operands for leaf in flow.leaves(o.label, layer.step)}
        for value in (o.label for o in layer.operands if o.label is not None):
            record = story.tensor(value, layer.step) or {}
            if record.get("requires_grad") or (record.get("born") or 0) < begun or not layer.results:
                continue
            cuts = flow.cuts(value, layer.step)
            if len(cuts) == 1 and cuts[0].event.name == "data" and cuts[0].tensor in held & reached:
                yield Apart(
                    cuts[0], value, layer, (cuts[0].tensor,), backward, update
                )  # the weight of the layer itself
            if any((story.tensor(cut.tensor, cut.event.step) or {}).get("is_leaf") for cut in cuts):
                continue  # a whole layer was computed without a graph
            chosen = [cut for cut in cuts if _is_unintended(story, flow, cut, layer, start)]
            behind = {leaf for cut in chosen for leaf in flow.leaves(cut.tensor, cut.event.step)}
            if behind and behind <= held & reached and own <= held and not behind & own:
                last = max(chosen, key=lambda cut: cut.event.step)
                yield Apart(
                    last, value, layer, tuple(label for label in update.holds if label in behind), backward, update
                )


def _is_unintended(story: Story, flow: Flow, cut: Cut, layer: Event, start: str | None) -> bool:
    """Whether the cut is probably not intended.

    False for a gradient, integers or a ``sample``; True for other kinds than ``detach``, and if the result went to
    NumPy. A ``detach`` is probably intended if the hidden state is trained by a loss of its own (the layer may be a
    probe), but not if only penalties on the hidden state are left.
    """
    if cut.kind in ("gradient", "integer") or story.said(cut.event.step) == "sample":
        return False
    if cut.kind != "detach" or any(
        use.name == "numpy" for label in cut.event.results for use in story.uses(label) if use.step < layer.step
    ):
        return True
    behind = flow.leaves(cut.tensor, cut.event.step)
    inside = set(story.behind((story.tensor(cut.tensor, cut.event.step) or {}).get("grad_fn")))
    others = [term for term in _terms(story, start) if inside & set(_behind(story, term))]
    return bool(others) and all(
        flow.leaves(term, len(story.events)) <= behind and _is_penalty(story, term, inside) for term in others
    )


def _behind(story: Story, label: str) -> Iterator[str]:
    return story.behind((story.tensor(label) or {}).get("grad_fn"))


def _terms(story: Story, start: str | None) -> list[str]:
    """The terms that require grad of a sum of one-element tensors; the tensor itself if it is no such sum."""
    found, pending = [], [start]
    while pending:
        label = pending.pop()
        record = story.tensor(label) or {}
        event = story.event(record.get("born"))
        if label is None or not record.get("requires_grad"):
            continue
        given = (
            [o.label for o in event.operands if o.label is not None and o.label != label] if event is not None else []
        )
        single = all(n == 1 for n in record.get("shape") or ())
        name = event.name.strip("_") if event is not None else ""
        if (
            given
            and single
            and (
                name in SUMS
                or (name in FACTORS and len(given) == 1 and all(n == 1 for n in story.shape(given[0]) or ()))
            )
        ):
            pending += given
        else:
            found.append(label)
    return found


def _is_penalty(story: Story, term: str, inside: set[str]) -> bool:
    """Whether a term of the loss is computed from the nodes ``inside`` only by calls of ``PENALTIES``, and from
    constants.
    """
    for node in set(_behind(story, term)) - inside:
        event = story.event((story.record("nodes", node) or {}).get("born"))
        if event is None or event.name.strip("_") not in PENALTIES:
            return False
        plain = [
            o.label
            for o in event.operands
            if o.label is not None and not (story.tensor(o.label, event.step) or {}).get("requires_grad")
        ]
        if not all(_is_constant(story, label) for label in plain):
            return False
    return True


def _is_constant(story: Story, label: str) -> bool:
    made = story.event((story.tensor(label) or {}).get("born"))
    return all(n == 1 for n in story.shape(label) or ()) or (made is not None and made.name in CONSTANTS)
