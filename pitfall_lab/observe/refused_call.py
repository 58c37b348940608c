"""Describes the call that raised an error: the function, and its arguments as the program's source writes them
(:func:`refused_call` and :func:`uncaught`).

Runs only after an error was raised, and costs nothing before that.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.expressions import UNKNOWN, Expressions, attribute
from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.private import schemas_of
from pitfall_lab.observe.recorder import Call
from pitfall_lab.observe.spans import STAND_IN, SourceMap
from pitfall_lab.observe.torch_names import name_of
from pitfall_lab.trace import Failure, Given, Origin
from pitfall_lab.trace.text import plain

Label = Callable[[Any], str | None]
MOST_ITEMS = 16
MOST_GIVEN = 24
MOST_NUMBERS = 1 << 24
"""How many elements a tensor may have for its minimum and maximum to be computed."""
THROUGH = frozenset({"_wrapped_call_impl", "_call_impl", "__call__", "wrapper", "decorate_context", "inner", "_fn"})
"""Functions of torch that only pass a call on."""
OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul", ast.Pow: "pow",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
}  # fmt: skip


def refused_call(call: Call, sources: SourceMap, label: Label) -> tuple[Given, ...]:
    """Describe the arguments of a call for which torch raised an error, at most ``MOST_GIVEN`` (24); each tensor among
    the first ``MOST_ITEMS`` (16) of a list counts as one.

    ``sources`` finds how the program's line writes them; ``label`` returns a tensor's label in the trace, or None.
    """
    words = Expressions(call.frame, *_running(call.frame.f_code, call.frame.f_lasti, sources))
    return _given(_named(call.name, call.func, call.args, call.kwargs), words, label)


def uncaught(error: BaseException, failure: Failure, sources: SourceMap, label: Label) -> Failure:
    """Return ``failure`` with its ``origin``, function (``op``) and arguments (``given``), read from the traceback of
    an error that ended the program; unchanged if the traceback has no frame of the program.

    Where the program's own code raised it, the arguments are the tensors in the variables of its innermost frame; where
    other code did, those of a function of that code. ``label`` returns a tensor's label in the trace, or None.
    """
    frames: list[tuple[FrameType, int]] = []
    walk: TracebackType | None = error.__traceback__
    while walk is not None:
        frames.append((walk.tb_frame, walk.tb_lasti))
        walk = walk.tb_next
    own = [at for at, (frame, _) in enumerate(frames) if sources.is_user(frame.f_code.co_filename)]
    if not own:
        return failure
    frame, lasti = frames[own[-1]]
    node, text = _running(frame.f_code, lasti, sources)
    words = Expressions(frame, node, text)
    beyond = [each for each, _ in frames[own[-1] + 1 :]]
    if isinstance(error, RecursionError):  # the frame in which the limit was reached says nothing
        origin: Origin = "program"
        op, arguments = "", _tensors_of(frame)
    elif beyond:
        origin = "torch" if any(map(_is_torchs, beyond)) else "library"
        op, arguments = _of_frames(beyond)
    elif _raises(frame.f_code, lasti):
        origin, op, arguments = "program", "", _tensors_of(frame)
    else:
        op, arguments = _of_expression(node, words, text)
        may_be_bool = type(error) is RuntimeError and not op.startswith("torch") and _decides(frame.f_code, lasti)
        if may_be_bool and (held := _tensors_of(frame)):
            op, arguments = "torch.Tensor.__bool__", held  # vmap raises this error in __bool__
        origin = "torch" if op.startswith("torch") else "program"
        arguments = arguments if origin == "torch" else _tensors_of(frame)
    return replace(failure, origin=origin, op=op, given=_given(arguments, words, label))


def origin_of(error: BaseException, sources: SourceMap) -> Origin:
    """Return the origin of an error that left a torch call: "program" if a ``raise`` in the program's own code, which
    torch had called, raised it; else "torch".
    """
    walk = error.__traceback__
    while walk is not None and walk.tb_next is not None:
        walk = walk.tb_next
    if (
        walk is None
        or walk.tb_frame.f_code.co_name == STAND_IN
        or not sources.is_user(walk.tb_frame.f_code.co_filename)
    ):
        return "torch"
    return "program" if _raises(walk.tb_frame.f_code, walk.tb_lasti) else "torch"


def _raises(code: CodeType, lasti: int) -> bool:
    return 0 <= lasti < len(code.co_code) and dis.opname[code.co_code[lasti]] in ("RAISE_VARARGS", "RERAISE")


def _decides(code: CodeType, lasti: int) -> bool:
    """Whether the instruction tests the truth value of an object (``if``, ``while``, ``not``, ``and``, ``or``)."""
    name = dis.opname[code.co_code[lasti]] if 0 <= lasti < len(code.co_code) else ""
    return name in ("TO_BOOL", "UNARY_NOT") or "JUMP_IF" in name or name.startswith("POP_JUMP")


def _is_torchs(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("torch", "torchvision")


def _tensors_of(frame: FrameType) -> list[tuple[str, Any]]:
    """The tensors among a frame's local variables, each after its name; names that begin with an underscore are left
    out.
    """
    return [
        (name, value)
        for name, value in list(variables(frame).items())
        if isinstance(value, torch.Tensor) and not name.startswith("_")
    ]


def _of_frames(frames: list[FrameType]) -> tuple[str, list[tuple[str, Any]]]:
    """The qualified name and arguments (name, value) of the innermost public torch function with tensor arguments among
    ``frames``, which need not be the one that raised.

    If no public one has a tensor argument, the innermost public one is used, or else the innermost. Functions of
    library code are used if no frame is torch's.
    """
    mine = [frame for frame in frames if _is_torchs(frame)] or frames
    named = [frame for frame in mine if frame.f_code.co_name not in THROUGH] or mine
    best = named[-1]
    for frame in reversed(named):
        if not frame.f_code.co_name.startswith("_") and _has_tensor(frame):
            best = frame
            break
    else:
        best = next((f for f in reversed(named) if not f.f_code.co_name.startswith("_")), best)
    return _public(f"{best.f_globals.get('__name__', '')}.{best.f_code.co_qualname}"), _arguments(best)


def _has_tensor(frame: FrameType) -> bool:
    return next(argument_values.tensors([value for _, value in _arguments(frame)]), None) is not None


def _public(name: str) -> str:
    """The public name: ``torch.nn.BatchNorm1d.forward`` for a name in ``torch.nn.modules.batchnorm``,
    ``torch.optim.Adam`` for its ``__init__``.
    """
    parts = name.removesuffix(".__init__").split(".")
    parts = [
        part for part, after in zip(parts, [*parts[1:], ""], strict=True) if part != after.lower() or part == after
    ]
    if parts[:3] == ["torch", "nn", "modules"] and len(parts) > 3:
        return ".".join(["torch", "nn", *parts[4 if parts[3].islower() else 3 :]])
    if parts[:2] == ["torch", "_tensor"]:
        return ".".join(["torch", *parts[2:]])
    return ".".join(part for at, part in enumerate(parts) if part != parts[at - 1])


def _arguments(frame: FrameType) -> list[tuple[str, Any]]:
    code, held = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = [(name, held[name]) for name in names if name in held]
    more = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        rest = held.get(code.co_varnames[more])
        found += [(f"{code.co_varnames[more]}[{at}]", value) for at, value in enumerate(rest or ())]
    return found


def _of_expression(node: ast.AST | None, words: Expressions, text: str) -> tuple[str, list[tuple[str, Any]]]:
    """The qualified name and arguments (name, value) of the function of torch that the program's own line calls, after
    torch's C++ code raised the error.

    An empty name if the line calls nothing of torch.
    """

    def argument(expression: ast.AST) -> Any:
        value = words.value(expression)
        return WrittenArgument(ast.get_source_segment(text, expression) or "") if value is UNKNOWN else value

    if isinstance(node, ast.Call):
        op, bound = _callee(node.func, words)
        given = bound + [argument(each) for each in node.args if not isinstance(each, ast.Starred)]
        if op in BUILTIN_METHODS and not any(map(_may_be_tensor, given)):
            op = ""
        named = {each.arg: argument(each.value) for each in node.keywords if each.arg}
        return op, _named(op, None, tuple(given), named)
    if isinstance(node, ast.BinOp | ast.AugAssign):
        left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        name = OPERATORS.get(type(node.op), "")
        pair = [argument(left), argument(right)]
        op = (
            f"torch.Tensor.{name}{'_' if isinstance(node, ast.AugAssign) else ''}"
            if any(map(_may_be_tensor, pair))
            else ""
        )
        return op, [("input", pair[0]), ("other", pair[1])]
    if isinstance(node, ast.Attribute):
        held = argument(node.value)
        op = f"torch.Tensor.{node.attr}" if isinstance(held, torch.Tensor) else _attribute_of(held, node.attr)
        return op, [("input", held)]
    if isinstance(node, ast.Subscript):
        held = argument(node.value)
        return ("torch.Tensor.__getitem__" if isinstance(held, torch.Tensor) else ""), [
            ("input", held),
            ("index", argument(node.slice)),
        ]
    if isinstance(node, ast.expr):
        held = argument(node)
        return ("torch.Tensor" if isinstance(held, torch.Tensor) else ""), [("input", held)]
    return "", []


class WrittenArgument:
    """An argument whose value is not known without running the program: its source text."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())


def _may_be_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _attribute_of(held: Any, name: str) -> str:
    kind = type(held)
    return f"{kind.__module__}.{kind.__qualname__}.{name}" if str(kind.__module__).partition(".")[0] == "torch" else ""


def _callee(node: ast.expr, words: Expressions) -> tuple[str, list[Any]]:
    """The name of the called function if it is torch's, else "", and, for a method, its tensor in a list."""
    function = words.value(node)
    if isinstance(node, ast.Attribute):
        held = words.value(node.value)
        if isinstance(held, torch.Tensor):
            return f"torch.Tensor.{node.attr}", [held]
        if held is UNKNOWN and hasattr(torch.Tensor, node.attr) and not isinstance(node.value, ast.Constant):
            return f"torch.Tensor.{node.attr}", [WrittenArgument("")]
        if function is UNKNOWN:
            function = attribute(type(held), node.attr)
    if function is UNKNOWN or not callable(function):
        return "", []
    module = str(getattr(function, "__module__", "") or "")
    name = name_of(function) if not isinstance(function, type) else f"{module}.{function.__qualname__}"
    if not name.startswith("torch") and isinstance(getattr(function, "__self__", None), type(torch)):
        name = f"{function.__self__.__name__}.{name}".replace("torch._C", "torch")
    return (name if name.startswith("torch") or module.startswith("torch") else _builtin(name)), []


def _builtin(name: str) -> str:
    """The tensor method that a built-in such as ``float(t)`` calls, as torch raises an error in it; empty for other
    names.
    """
    return f"torch.Tensor.__{name}__" if name in BUILTINS else ""


BUILTINS = ("float", "int", "bool", "complex", "len", "iter", "abs")
"""Python's functions that call a method of a tensor whose name is the function's, with two underscores on both
sides.
"""
BUILTIN_METHODS = frozenset(f"torch.Tensor.__{name}__" for name in BUILTINS)
"""The tensor methods that Python's built-in functions call."""


# ------------------------------------------------------------------ arguments and their names


def _named(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """The arguments, each after the name of its parameter ("" where the name is not known)."""
    names = _parameters(name, func, args)
    if names and len(args) > len(names) and all(type(value) is int for value in args[len(names) - 1 :]):
        args = (*args[: len(names) - 1], tuple(args[len(names) - 1 :]))  # x.view(2, 3) is x.view((2, 3))
    return [(names[at] if at < len(names) else "", value) for at, value in enumerate(args)] + list(kwargs.items())


def _parameters(name: str, func: Any, args: tuple[Any, ...]) -> list[str]:
    code = getattr(func or _function(name), "__code__", None)
    if isinstance(code, CodeType) and not code.co_flags & inspect.CO_VARARGS:
        return list(code.co_varnames[: code.co_argcount])
    short = (
        name.removeprefix("torch.")
        .removeprefix("Tensor.")
        .removeprefix("nn.functional.")
        .removeprefix("_C._nn.")
        .replace(".", "_")
    )
    if short in DUNDERS:
        return DUNDERS[short]
    for word in (short, short.strip("_"), short.rpartition("_")[2]):
        schemas = schemas_of(f"aten::{word}") if word else []
        # schemas without tensors are for numbers in TorchScript
        schemas = [s for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)] or schemas
        fitting = [s for s in schemas if _fits(s, args)] or [
            s for s in schemas if s.arguments and "Tensor" in str(s.arguments[0].type)
        ]
        if fitting:
            return ["input" if a.name == "self" else str(a.name) for a in fitting[0].arguments if not a.kwarg_only]
    return []


def _function(name: str) -> Any:
    """Torch's function of this qualified name, or None. It is needed for a repeated call, of which only the name is
    known.
    """
    found: Any = torch
    for part in name.removeprefix("torch.").split("."):
        found = getattr(found, part, None)
    return found


DUNDERS = {
    "tensor": ["data"],
    "as_tensor": ["data"],
    "from_numpy": ["ndarray"],
    "__getitem__": ["input", "index"],
    "__setitem__": ["input", "index", "value"],
    **{
        f"__{mark}{name}__": ["input", "other"]
        for name in ("add", "sub", "mul", "truediv", "matmul", "pow", "mod", "floordiv", "and", "or")
        for mark in ("", "r", "i")
    },
    **{
        f"__{name}__": ["input"]
        for name in ("float", "int", "bool", "index", "len", "iter", "complex", "contains", "array")
    },
    "backward": ["input", "gradient", "retain_graph", "create_graph"],
}
"""The names of parameters where torch's schemas give none."""


def _fits(schema: Any, args: tuple[Any, ...]) -> bool:
    """Whether the arguments fit this overload's schema: tensors exactly where it takes tensors."""
    wanted = [argument for argument in schema.arguments if not argument.kwarg_only]
    if len(args) > len(wanted) and not (wanted and str(wanted[-1].type).startswith("List[int]")):
        return False
    for argument, value in zip(wanted, args, strict=False):
        kind, is_tensor = str(argument.type), isinstance(value, torch.Tensor)
        if (
            not isinstance(value, WrittenArgument)
            and is_tensor != ("Tensor" in kind and "List" not in kind)
            and value is not None
        ):
            return False
    return True


def _given(arguments: list[tuple[str, Any]], words: Expressions, label: Label) -> tuple[Given, ...]:
    found = itertools.chain.from_iterable(_each(name, value, words, label) for name, value in arguments)
    return tuple(itertools.islice(found, MOST_GIVEN))


def _each(name: str, value: Any, words: Expressions, label: Label) -> Iterator[Given]:
    if isinstance(value, WrittenArgument):
        yield Given(name, value.text)
    elif isinstance(value, torch.Tensor | np.ndarray):
        yield _array(name, value, words, label)
    elif type(value) in (list, tuple) and any(isinstance(item, torch.Tensor) for item in value):
        for at, item in enumerate(value[:MOST_ITEMS]):
            for one in _each(f"{name}[{at}]", item, words, label):
                yield Given(**{**_fields(one), "part_of": name})
    else:
        said = words.of(value) if type(value) not in (bool, int, float, str, type(None)) else ""
        plain_text = (
            repr(value) if isinstance(value, torch.layout | torch.memory_format) else argument_values.text(value)
        )
        yield Given(name, said, type(value).__name__, value=plain_text)


def _fields(one: Given) -> dict[str, Any]:
    return {field: getattr(one, field) for field in Given.__dataclass_fields__}


def _array(name: str, value: Any, words: Expressions, label: Label) -> Given:
    said = words.of(value)
    if isinstance(value, np.ndarray):
        return Given(name, said, "ndarray", dtype=value.dtype.name, shape=value.shape)
    known = tensor_facts.read(
        value, stale=True
    )  # reading a view's is_leaf may regenerate its grad_fn, and torch may raise at that
    low, high = _range(value)
    return Given(
        name,
        said,
        "Parameter" if isinstance(value, torch.nn.Parameter) else "Tensor",
        label(value),
        dtype=known.dtype,
        shape=known.shape,
        device=known.device,
        requires_grad=known.requires_grad,
        low=low,
        high=high,
    )


def _range(value: torch.Tensor) -> tuple[Any, Any]:
    """The minimum and maximum of a dense, real CPU tensor with 1 to ``MOST_NUMBERS`` elements; (None, None) for
    others.
    """
    with contextlib.suppress(Exception), torch.no_grad():
        if (
            value.device.type == "cpu"
            and 0 < value.numel() <= MOST_NUMBERS
            and value.layout is torch.strided
            and not value.is_complex()
        ):
            numbers = value.detach()
            return plain(numbers.min().item()), plain(numbers.max().item())
    return None, None


# ------------------------------------------------------------------ the program's own line


def _running(code: CodeType, lasti: int, sources: SourceMap) -> tuple[ast.AST | None, str]:
    """The syntax node of the expression that a frame of the program is executing (None if unknown), and the source text
    (empty if not available).
    """
    text = sources.text_of(code.co_filename)
    at = next(itertools.islice(code.co_positions(), lasti // 2, None), None)
    if not text or at is None or None in at:
        return None, text
    return _nodes(text).get(at), text


@lru_cache(maxsize=8)
def _nodes(text: str) -> dict[tuple[int | None, ...], ast.AST]:
    """The expressions and statements of a program by position; of those with the same position, the outermost.

    Empty if the text is not valid Python.
    """
    found: dict[tuple[int | None, ...], ast.AST] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt) and not isinstance(node, ast.Expr):
            found.setdefault((node.lineno, node.end_lineno, node.col_offset, node.end_col_offset), node)
    return found
