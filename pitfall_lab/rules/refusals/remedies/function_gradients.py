"""Errors of a ``torch.autograd.Function``: about what it saves, and about the shapes of the gradients that it
returns.
"""

from __future__ import annotations

import ast
import re

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T


def method(owner: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    """Return the method of the class ``owner`` with this name; None if there is none, or ``owner`` is None."""
    return (
        next((n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
        if owner is not None
        else None
    )


def class_called(program: Program, name: str) -> ast.ClassDef | None:
    """Return the program's class of this name; None if there is none."""
    return next((n for n in program.nodes if isinstance(n, ast.ClassDef) and n.name == name), None)


def saved_numbers(error: Error) -> Remedy | None:
    """Return the remedy for an argument of ``save_for_backward`` that is no tensor, with a fix that stores it as an
    attribute of ``ctx``, which ``backward`` reads.

    Without a fix if the argument is no name, or ``backward`` does not unpack ``saved_tensors`` into as many names. None
    if the source does not show the function's class, or its ``forward`` does not call ``save_for_backward`` exactly
    once with this argument.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    calls = (
        [n.func for n in ast.walk(refused.call) if isinstance(n, ast.Call) and called(n) == "apply"]
        if refused.call is not None
        else []
    )
    applied = calls[0] if len(calls) == 1 else None
    name = program.segment(applied.value).rpartition(".")[2] if isinstance(applied, ast.Attribute) else ""
    owner = class_called(program, name)
    forward = method(owner, "forward")
    saves = (
        [n for n in ast.walk(forward) if isinstance(n, ast.Call) and called(n) == "save_for_backward"]
        if forward is not None
        else []
    )
    at = int(error.match[1])
    if len(saves) != 1 or at >= len(saves[0].args):
        return None
    call = saves[0]
    argument, place = program.segment(call.args[at]), program.place(call)
    where, here = at_line(story, place), at_line(story, refused.span)
    said = T(
        en=f"{capital(where.en)} gives `save_for_backward` the {error.match[2]} `{argument}`; it takes tensors only, "
        f"and {here.en} calls the function.",
        zh=f"{where.zh}把 {error.match[2]} 类型的 `{argument}` 交给 `save_for_backward`，而它只接受张量；"
        f"{here.zh}调用了这个函数。",
    )
    related = (Related("saved", place, None, T(en=f"`{argument}` is saved here", zh=f"`{argument}` 在这里保存")),)
    return Remedy(unique(program.text, [_kept_on_ctx(program, owner, call, at)]), said, None, place, None, related)


def _kept_on_ctx(program: Program, owner: ast.ClassDef | None, call: ast.Call, at: int) -> Fix | None:
    """The fix that stores the argument number ``at`` of ``call`` as an attribute: ``ctx.scale = scale``.

    None if it is no name, or if ``backward`` does not unpack ``saved_tensors`` into as many names.
    """
    backward, statement = method(owner, "backward"), program.statement(call)
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    unpack = (
        next(
            (
                s
                for s in ast.walk(backward)
                if isinstance(s, ast.Assign) and program.segment(s.value).endswith(".saved_tensors")
            ),
            None,
        )
        if backward is not None
        else None
    )
    names = unpack.targets[0] if unpack is not None else None
    argument = call.args[at]
    if (
        not isinstance(names, ast.Tuple)
        or len(names.elts) != len(call.args)
        or receiver is None
        or not isinstance(argument, ast.Name)
    ):
        return None
    if statement is None or unpack is None:
        return None
    ctx, held = program.segment(receiver), program.segment(names.elts[at])
    kept = [program.segment(each) for k, each in enumerate(call.args) if k != at]
    left = [program.segment(each) for k, each in enumerate(names.elts) if k != at]
    into = ", ".join(left) if len(left) > 1 else f"({left[0]},)" if left else ""
    inner = program.segment(unpack.value)
    first = f"{ctx}.save_for_backward({', '.join(kept)})" if kept else ""
    lines = [first, f"{ctx}.{argument.id} = {argument.id}"]
    again = [f"{into} = {inner}" if left else "", f"{held} = {inner.rpartition('.')[0]}.{argument.id}"]
    joined = ("\n" + program.indent(statement)).join(line for line in lines if line)
    read = ("\n" + program.indent(unpack)).join(line for line in again if line)
    title = T(
        en=f"Keep it as an attribute: `{ctx}.{argument.id} = {argument.id}`",
        zh=f"作为属性保存：`{ctx}.{argument.id} = {argument.id}`",
    )
    return Fix(title, program.replace((statement, joined), (unpack, read)))


def gradient_of_another_shape(error: Error) -> Remedy | None:
    """Return the remedy for a gradient that ``backward`` returns in the wrong shape; it names the line that computes
    the gradient.

    Its fixes, if any fits, swap the factors of a product, transpose, or sum. None if the source does not show the class
    with its ``forward``, or its ``backward`` does not have exactly one return.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    owner = class_called(program, error.match[1])
    backward, forward = method(owner, "backward"), method(owner, "forward")
    got, wanted = ([int(n) for n in re.findall(r"\d+", error.match[k])] for k in (3, 4))
    at = int(error.match[2])
    value = _returned(backward, at)
    if value is None or forward is None or backward is None:
        return None
    made = _made(backward, value)
    parameter = _parameter(forward, at)
    place = program.place(made)
    where, here = at_line(story, place), at_line(story, refused.span)
    shapes = ["×".join(map(str, shape)) or "()" for shape in (got, wanted)]
    said = T(
        en=f"{capital(where.en)} computes the gradient of {parameter.en} in the shape {shapes[0]}, and {parameter.en} "
        f"has {shapes[1]}; the backward on {here.en} refuses it.",
        zh=f"{where.zh}算出的 {parameter.zh} 的梯度形状是 {shapes[0]}，而 {parameter.zh} 是 {shapes[1]}；"
        f"{here.zh}的反向传播因此报错。",
    )
    related = (Related("made", place, None, T(en="the gradient is computed here", zh="梯度在这里算出")),)
    return Remedy(unique(program.text, _reshaped(program, made, got, wanted)), said, None, place, None, related)


def _returned(backward: ast.FunctionDef | None, at: int) -> ast.expr | None:
    returns = (
        [n.value for n in ast.walk(backward) if isinstance(n, ast.Return) and n.value is not None]
        if backward is not None
        else []
    )
    if len(returns) != 1:
        return None
    values = returns[0].elts if isinstance(returns[0], ast.Tuple) else [returns[0]]
    return values[at] if at < len(values) else None


def _made(backward: ast.FunctionDef, value: ast.expr) -> ast.expr:
    """The last expression, other than a constant, that is assigned to the returned name; the returned expression itself
    if it is no name.
    """
    if not isinstance(value, ast.Name):
        return value
    given = [
        n.value for n in ast.walk(backward)
        if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in n.targets)
        and not isinstance(n.value, ast.Constant)
    ]  # fmt: skip
    return given[-1] if given else value


def _parameter(forward: ast.FunctionDef, at: int) -> T:
    names = [each.arg for each in forward.args.args][1:]
    return T(f"`{names[at]}`", f"`{names[at]}`") if at < len(names) else T(f"argument {at}", f"第 {at} 个参数")


def _reshaped(program: Program, made: ast.expr, got: list[int], wanted: list[int]) -> list[Fix | None]:
    """Fixes that swap the factors of a product or transpose (if the two sizes are reversed), or sum over all other
    dimensions (if one dimension is expected, and exactly one has its size).
    """
    text, texts = operand(program, made), list[str]()
    if len(got) == 2 and got == wanted[::-1]:
        if (
            isinstance(made, ast.BinOp)
            and isinstance(made.op, ast.MatMult)
            and (left := _untransposed(program, made.left)) is not None
        ):
            texts.append(f"{_transposed(program, made)} @ {left}")
        else:
            texts.append(f"{text}.t()")
    if (
        len(wanted) == 1 and got.count(wanted[0]) == 1
    ):  # over leading dimensions, and those of length one, torch sums by itself
        dims = tuple(k for k, size in enumerate(got) if size != wanted[0])
        texts.append(f"{text}.sum(dim={dims[0] if len(dims) == 1 else dims})")
    return [
        Fix(
            T(en=f"Compute it in the argument's shape: `{one}`", zh=f"按参数的形状计算：`{one}`"),
            program.replace((made, one)),
        )
        for one in texts
    ]


def _untransposed(program: Program, node: ast.expr) -> str | None:
    """``x`` for ``x.t()``, ``x.T`` or ``x.mT``; None for other expressions."""
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        return program.segment(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "t":
        return program.segment(node.func.value)
    return None


def _transposed(program: Program, product: ast.BinOp) -> str:
    """The right factor of ``x.t() @ g``, transposed in the same way as the left one: ``g.t()``."""
    left, right = product.left, operand(program, product.right)
    return f"{right}.{left.attr}" if isinstance(left, ast.Attribute) else f"{right}.t()"
