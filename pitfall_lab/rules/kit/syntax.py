"""Recognises torch and NumPy code in a syntax tree: calls that write in place, the tensors they write, names that are
read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from pitfall_lab.rules.kit.source import Program
from pitfall_lab.trace import Span
from pitfall_lab.trace.operation_facts import spellings

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
METHOD_OPERATORS = {"add_": "+", "sub_": "-", "mul_": "*", "div_": "/", "pow_": "**"}
"""In-place methods, with the operator that can be used instead."""
# in-place methods whose name without the underscore is not the same operation on a new tensor
ONLY_IN_PLACE = {
    "copy_",
    "set_",
    "resize_",
    "resize_as_",
    "uniform_",
    "normal_",
    "random_",
    "bernoulli_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "log_normal_",
    "fill_diagonal_",
    "requires_grad_",
    "detach_",
    "zero_",
    "fill_",
    "apply_",
    "map_",
    "share_memory_",
}
# the position of the inplace parameter of modules and functions: nn.ReLU(True), F.relu(h, True)
FLAG_POSITIONS = {
    **dict.fromkeys(("ReLU", "ReLU6", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "SELU"), 0),
    **dict.fromkeys(
        ("ELU", "CELU", "LeakyReLU", "Dropout", "relu", "relu6", "silu", "mish", "hardswish", "hardsigmoid", "selu"), 1
    ),
    **dict.fromkeys(("Hardtanh", "Threshold", "elu", "celu", "leaky_relu"), 2),
    **dict.fromkeys(("dropout", "hardtanh", "threshold"), 3),
}
"""For layers and functions in the program's source, the index of the positional argument ``inplace``."""
# attributes and methods that return a tensor on the same memory
VIEW_ATTRIBUTES = {"data", "T", "mT", "H", "mH", "real", "imag"}
VIEW_METHODS = spellings("expand", "transpose") | {
    "as_strided",
    "contiguous",
    "cpu",
    "detach",
    "diagonal",
    "diagonal_scatter",
    "expand_as",
    "flatten",
    "moveaxis",
    "movedim",
    "narrow",
    "numpy",
    "permute",
    "ravel",
    "reshape",
    "select",
    "squeeze",
    "t",
    "unflatten",
    "unfold",
    "unsqueeze",
    "view",
    "view_as",
}
"""Methods in the program's source whose result shares memory with the tensor, so that writing to the result reaches the
tensor.
"""
BYPASSES = {"data", "detach", "numpy", "cpu"}
"""Attributes and methods that give access to the tensor's memory without its graph."""


def writes(call: ast.Call) -> bool:
    """Whether the call writes in place: its name ends in one ``_`` (``h.add_(…)``), or it has ``out=h`` or
    ``inplace=True``.

    ``inplace`` may also be given by position, but only to functions: ``nn.ReLU(True)`` only creates a layer.
    """
    name = called(call)
    in_place = name.endswith("_") and not name.endswith("__")
    position = FLAG_POSITIONS.get(name)
    in_place = in_place or (
        position is not None and name.islower() and len(call.args) > position and is_true(call.args[position])
    )
    return in_place or any(k.arg == "out" or (k.arg == "inplace" and is_true(k.value)) for k in call.keywords)


def called(call: ast.Call) -> str:
    """Return the last part of the name of the called function: ``relu_`` for ``torch.relu_(h)``; empty
    for a call such as ``f()()``.
    """
    return (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )


def receiver(call: ast.Call) -> ast.expr | None:
    """Return the expression of the tensor that the in-place call ``call`` writes: its ``out``, the object of a method,
    or the first argument of a function.

    None if it has none of these.
    """
    for keyword in call.keywords:
        if keyword.arg == "out":
            return keyword.value
    function = call.func
    if (
        isinstance(function, ast.Attribute)
        and not (isinstance(function.value, ast.Name) and function.value.id in MODULES)
        and not _is_module_path(function.value)
    ):
        return function.value
    return call.args[0] if call.args else None


MODULES = {"torch", "F", "nn", "th", "functional", "init", "np", "numpy"}


def _is_module_path(node: ast.expr) -> bool:
    """Whether ``node`` is an attribute, at any depth, of a module in :data:`MODULES` other than
    ``F``: ``torch.nn.functional``.
    """
    while isinstance(node, ast.Attribute):
        node = node.value
        if isinstance(node, ast.Name) and node.id in MODULES - {"F"}:
            return True
    return False


def keeps_shape(node: ast.expr) -> bool:
    """Whether ``node`` is a whole tensor: a name, followed by nothing but in-place calls that make no view, or what is
    in ``BYPASSES`` (``.data``, ``.detach()``, ``.numpy()``, ``.cpu()``).
    """
    while not is_name(node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in VIEW_METHODS - BYPASSES or not (name.endswith("_") or name in BYPASSES):
                return False
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in BYPASSES:
            node = node.value
        else:
            return False
    return True


def is_bypass(node: ast.expr) -> bool:
    """Whether ``node`` is a name followed by one of ``BYPASSES``, such as ``h.data`` or ``h.detach()``: access to the
    memory that autograd does not track.
    """
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Attribute) and node.attr in BYPASSES and is_name(node.value)


def is_true(node: ast.AST) -> bool:
    """Whether ``node`` is the literal ``True``."""
    return isinstance(node, ast.Constant) and node.value is True


def written_root(statement: ast.stmt) -> ast.expr | None:
    """Return the name (plain or dotted, as an expression) of the tensor that ``statement`` writes in place: ``h`` in
    ``h[0] = 1``, ``h.view(-1).add_(1)``, ``F.relu_(h)``.

    Of several calls that write, the first one counts. None if the source shows no write, or the statement has a body.
    """
    written: ast.AST | None = None
    if isinstance(statement, ast.AugAssign):
        written = statement.target
    elif isinstance(statement, ast.Assign):
        subscripts = [t for t in statement.targets if isinstance(t, ast.Subscript)]
        written = subscripts[0] if subscripts else None
    if written is None and not hasattr(statement, "body"):
        calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and writes(n)]
        written = receiver(calls[0]) if calls else None
    name = root(written) if written is not None else None
    return name if name is not None and is_name(name) and not _is_constant_name(name) else None


def binds_name(loop: ast.AST, name: str) -> bool:
    """Whether ``loop`` is a ``for`` loop that assigns ``name`` in each iteration."""
    return isinstance(loop, ast.For) and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(loop.target))


def _is_constant_name(name: ast.expr) -> bool:
    return isinstance(name, ast.Name) and name.id in MODULES


def root(node: ast.AST) -> ast.expr:
    """The expression that subscripts, views and in-place calls start from: ``h`` for ``h.view(-1)[0]``, ``f(x)`` for
    ``f(x)[0]``.

    >>> ast.unparse(root(ast.parse("self.h.view(-1)[0].add_(1)", mode="eval").body))
    'self.h'
    """
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (node.func.attr in VIEW_METHODS or node.func.attr.endswith("_"))
        ):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in VIEW_ATTRIBUTES:
            node = node.value
        else:
            return node  # type: ignore[return-value]


def is_name(node: ast.AST) -> bool:
    """Whether ``node`` is a plain name or a dotted one (``self.h``) without an attribute that
    makes a view (``.data``, ``.T``).
    """
    while isinstance(node, ast.Attribute):
        if node.attr in VIEW_ATTRIBUTES:
            return False
        node = node.value
    return isinstance(node, ast.Name)


def reads(program: Program, node: ast.AST) -> set[str]:
    """Return the names that ``node`` reads; of a dotted name also its beginnings (``self.h`` reads ``self`` too), and
    ``losses["g"]`` as one name.
    """
    found: set[str] = set()
    pending = [node]
    while pending:
        item = pending.pop()
        if is_entry(item):
            found |= {program.segment(item)} if isinstance(item.ctx, ast.Load) else set()
            continue
        if isinstance(item, (ast.Name, ast.Attribute)) and is_name(item) and isinstance(item.ctx, ast.Load):
            found.add(program.segment(item))
        pending.extend(ast.iter_child_nodes(item))
    return found


def assigned(program: Program, statement: ast.stmt) -> set[str]:
    """Return the source of each target that ``statement``, or a statement nested in it, assigns: names, attributes
    (``self.w``), and entries with a constant index such as ``d['k']`` (but not ``rows[i]``).

    Empty for a definition or an import.
    """
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return set()
    targets = (n for n in ast.walk(statement) if isinstance(n, (ast.Name, ast.Attribute)) or is_entry(n))
    return {program.segment(n) for n in targets if isinstance(n.ctx, ast.Store)}


def is_entry(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Whether ``node`` is one entry of a named dictionary or list, with a constant key or index: ``losses["g"]``."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and is_name(node.value)


def operand(program: Program, node: ast.expr) -> str:
    """Return the source of ``node``, in parentheses unless it binds as tightly as a name."""
    return _bound(program.segment(node), node)


def operand_text(text: str) -> str:
    """Return the expression ``text`` in parentheses unless it binds as tightly as a name; unchanged if it cannot be
    parsed.
    """
    try:
        return _bound(text, ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return text


def _bound(text: str, node: ast.expr) -> str:
    atom = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.Tuple, ast.ListComp))
    number = isinstance(node, ast.Constant) and not text.startswith("-")
    return text if atom or number or _in_own_parentheses(text) else f"({text})"


def _in_own_parentheses(text: str) -> bool:
    return text.startswith("(") and text.endswith(")") and text.count("(") == 1


def with_parentheses(program: Program, node: ast.expr) -> Span:
    """Return the span of ``node``, an operand of an operator, including the parentheses directly around it on the same
    lines, if there are any.
    """
    place = program.place(node)
    before, after = (
        program.lines[place.line - 1][: place.column].rstrip(),
        program.lines[place.end_line - 1][place.end_column :],
    )
    inside = before.endswith("(") and after.lstrip().startswith(")")
    if not inside or not isinstance(program.parents.get(node), ast.BinOp | ast.Compare | ast.Attribute | ast.UnaryOp):
        return place
    return Span(place.line, len(before) - 1, place.end_line, place.end_column + len(after) - len(after.lstrip()) + 1)


def torch_name(program: Program) -> str | None:
    """Return the name by which the program can use ``torch`` after an ``import`` statement; None if it has none (``from
    torch import …`` does not define one).
    """
    for node in program.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch" or (alias.name.startswith("torch.") and alias.asname is None):
                    return alias.asname or "torch"
    return None


def flat_targets(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the single targets of the assignment target ``node``, in order: three of ``out, (h, c) = …``; ``node``
    itself if it is one.
    """
    if isinstance(node, ast.Tuple | ast.List):
        for each in node.elts:
            yield from flat_targets(each)
    else:
        yield node
