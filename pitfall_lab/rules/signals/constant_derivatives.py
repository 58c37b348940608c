"""Finds derivatives without a graph (``autograd.grad`` without ``create_graph``) that a loss combines with other
results of the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.linear_parts import ADDING, SCALING
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import operations_that, spellings

PASSED = (
    ADDING.keys()
    | SCALING.keys()
    | spellings("abs", "cat", "neg", "pow", "transpose")
    | {
        "T",
        "__getitem__",
        "chunk",
        "clone",
        "contiguous",
        "flatten",
        "float",
        "mean",
        "permute",
        "reshape",
        "split",
        "sqrt",
        "square",
        "squeeze",
        "stack",
        "sum",
        "t",
        "to",
        "unbind",
        "unsqueeze",
        "view",
    }
)
"""Calls through which a derivative is followed. ``detach()`` is not among them: after it, the missing graph is
intended.
"""
JOINING = ADDING.keys() | operations_that("difference_loss")
BENDING = spellings("abs", "mul", "pow") | operations_that("difference_loss") | {"norm", "square", "vector_norm"}
"""Nonlinear functions of a residual."""
FURTHER = 200


@dataclass(frozen=True, slots=True)
class Constant:
    """A call that combines a derivative without a graph with a trained tensor: ``joined`` is the call (``Event``),
    ``other`` the label of the tensor, which was computed from the same weights and is trained.
    """

    joined: Event
    other: str


def constant_derivative(story: Story, flow: Flow, grad: Event, held: set[str]) -> Constant | None:
    """Return the call that adds the result of ``grad``, a derivative without a graph, to a trained term of an equation;
    None if there is none.

    ``held`` are the labels of the tensors that the optimizers hold. The derivative must be one with respect to an input
    that does not depend on them, and the sum must be squared, or its absolute value or norm taken, on the way to a
    backward: there the gradient of the equation needs that of the derivative.
    """
    if grad.error is not None or not grad.operands or not grad.results:
        return None
    inputs = [o.label for o in grad.operands[1:] if o.label is not None]
    if any(flow.leaves(each, grad.step) & held for each in inputs) or _is_recorded(story, grad.results[0], grad.step):
        return None
    weights = flow.leaves(grad.operands[0].label, grad.step) & held
    pending, seen = list(grad.results) if weights else [], set(grad.results)
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results or use.step <= grad.step:
                continue
            others = (
                [o.label for o in use.operands if o.label is not None and o.label != label]
                if use.name in JOINING
                else []
            )
            trained = next((each for each in others if flow.leaves(each, use.step) & weights), None)
            if trained is not None and _is_bent(story, use):
                return Constant(use, trained)
            result = use.results[0]
            if use.name in PASSED and result not in seen and not _is_recorded(story, result, use.step):
                seen.add(result)
                pending.append(result)
    return None


def untrained_term(story: Story, flow: Flow, grad: Event, held: set[str]) -> Constant | None:
    """Return the call that adds a loss term, made of the result of ``grad`` (a derivative without a graph) and of
    inputs that require grad, to a trained term.

    Such a term requires grad because its inputs do (``load(x)``, where ``x`` is what the derivative is taken with
    respect to), but reaches none of the tensors ``held`` (labels) by optimizers. None if there is no such call, if the
    derivative has a graph or is one with respect to trained tensors, or if a gradient of the inputs is used: then the
    term may train the inputs.
    """
    if grad.error is not None or not grad.operands or not grad.results:
        return None
    inputs = [o.label for o in grad.operands[1:] if o.label is not None]
    if any(flow.leaves(each, grad.step) & held for each in inputs) or _is_recorded(story, grad.results[0], grad.step):
        return None
    weights = flow.leaves(grad.operands[0].label, grad.step) & held
    pending, seen = list(grad.results) if weights else [], set(grad.results)
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results or use.step <= grad.step or use.name not in PASSED | JOINING:
                continue
            reached = flow.leaves(label, use.step) if _is_recorded(story, label, use.step) else set()
            others = [o.label for o in use.operands if o.label is not None and o.label != label]
            trained = next((each for each in others if flow.leaves(each, use.step) & weights), None)
            if trained is not None:
                graph = (story.tensor(use.results[0], use.step) or {}).get("grad_fn")
                ran = (story.record("nodes", graph) or {}).get("ran") is not None
                if use.name in ADDING and ran and reached and story.shape(label, use.step) == ():
                    return None if any(_gradient_used(story, leaf) for leaf in reached) else Constant(use, trained)
                continue
            result = use.results[0]
            if result not in seen and not flow.leaves(result, use.step) & held:
                seen.add(result)
                pending.append(result)
    return None


def _gradient_used(story: Story, leaf: str) -> bool:
    """Whether any call but ``zero_`` and ``backward`` has as operand the gradient that a backward stored in the leaf's
    ``.grad``.
    """
    kept = {label for _, label in story.history("tensors", leaf, "grad") if label is not None}
    return any(event.name not in ("zero_", "backward") for label in kept for event in story.uses(label))


def _is_recorded(story: Story, label: str, step: int) -> bool:
    return bool((story.tensor(label, step) or {}).get("requires_grad"))


def _is_bent(story: Story, use: Event) -> bool:
    """Whether the sum is squared, or its absolute value or norm taken, on the way to a backward that ran; a product
    with another tensor does not count.
    """
    pending, seen = [use], {use.step}
    while pending and len(seen) < FURTHER:
        event = pending.pop()
        if (story.record("nodes", (story.tensor(event.results[0], event.step) or {}).get("grad_fn")) or {}).get(
            "ran"
        ) is None:
            continue
        if event.name in BENDING:
            alone = len({o.label for o in event.operands}) == 1
            if event.name != "mul" or alone:
                return True
        for after in story.uses(event.results[0]):
            if after.results and after.error is None and after.step not in seen and after.name in PASSED | BENDING:
                seen.add(after.step)
                pending.append(after)
    return False
