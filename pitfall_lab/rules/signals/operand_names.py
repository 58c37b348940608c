"""The source expression of an operand, on the line that made the call."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import expression
from pitfall_lab.trace import Event, T

LONGEST = 40
"""The longest source of an operand that is shown unchanged."""


def written_as(story: Story, event: Event, label: str | None) -> ast.expr | None:
    """Return the expression that passed the tensor ``label`` to the call ``event``: ``x`` of ``x + y``, ``F.relu(x)``,
    ``x.add_(1)``, ``layer(x)``; None if the source does not show it.
    """
    return next(iter(all_written_as(story, event, label)), None)


def all_written_as(story: Story, event: Event, *labels: str | None) -> list[ast.expr]:
    """Return the expressions that passed one of the tensors ``labels`` to the call ``event``, in order: ``x`` and ``y``
    of ``x + y`` if both are the same tensor; empty if the source does not show them.
    """
    node = story.program.at(story.span(event.step))
    places = [number for number, operand in enumerate(event.operands) if operand.label in labels]
    if node is None or not places:
        return []
    given = _given(node, event)
    if event.name.startswith("__r") or (
        isinstance(node, ast.BinOp) and len(places) < len(event.operands) and _is_reflected(event, node)
    ):
        given = given[::-1]
    return [given[place] for place in places if place < len(given)]


def _given(node: ast.AST, event: Event) -> list[ast.expr]:
    """The expressions that are operands of the call or operator at ``node``, in the order of torch's arguments."""
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        return [node.left, node.comparators[0]]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return [node.targets[0].value]
    if not isinstance(node, ast.Call):
        return []
    joined = node.args[0] if len(node.args) >= 1 and isinstance(node.args[0], ast.List | ast.Tuple) else None
    arguments = [*(joined.elts if joined is not None else node.args), *(k.value for k in node.keywords)]
    function = node.func
    is_method = isinstance(function, ast.Attribute) and not _is_module(function.value)
    return (
        [function.value, *arguments]
        if is_method and isinstance(function, ast.Attribute) and _of_tensor(function, event)
        else arguments
    )


def _is_module(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "F", "nn", "functional", "np")


def _of_tensor(function: ast.Attribute, event: Event) -> bool:
    """Whether ``function`` is a method of a tensor, and not a layer in an attribute of the same name
    (``self.relu``).
    """
    name = event.name
    if event.op.startswith("torch.nn.functional.") or (
        isinstance(function.value, ast.Name) and function.value.id == "self"
    ):
        return False
    return (
        function.attr in TENSOR_METHODS or function.attr.endswith("_") or (function.attr == name and name not in LAYERS)
    )


def _is_reflected(event: Event, node: ast.BinOp) -> bool:
    return isinstance(node.left, ast.Constant) and event.operands[0].label is not None


LAYERS = {"linear", "embedding", "dropout", "conv1d", "conv2d", "conv3d", "lstm", "gru", "normalize"}
"""Functions whose names are also used for layers."""
TENSOR_METHODS = {
    "abs", "add", "sub", "mul", "div", "pow", "square", "sqrt", "exp", "log", "sum", "mean", "matmul", "mm", "bmm",
    "relu", "sigmoid", "tanh", "softmax", "log_softmax", "argmax", "max", "min", "norm", "view", "reshape", "flatten",
    "squeeze", "unsqueeze", "transpose", "permute", "t", "clone", "detach", "float", "to", "eq", "ne", "gt", "lt",
    "item", "numpy", "clamp", "gather", "expand", "repeat", "allclose", "equal", "dot", "std", "var", "cpu", "long",
    "double", "tolist", "backward", "contiguous", "index_select", "cumsum", "prod",
}  # fmt: skip
"""Methods in the program's source whose receiver is a tensor."""


def shown(story: Story, event: Event, label: str | None) -> T:
    """Return the operand ``label`` of ``event`` in words, for a sentence: its source on the line of the call, if that
    is short; else its name or the expression that made it.
    """
    node = written_as(story, event, label)
    text = story.program.segment(node) if node is not None else ""
    if 0 < len(text) <= LONGEST and "\n" not in text:
        return T(en=f"`{text}`", zh=f"`{text}`")
    return expression(story, label, event.step)
