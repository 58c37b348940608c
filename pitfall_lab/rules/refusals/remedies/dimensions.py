"""Dimensions and sizes that fit another shape: fixes take the dimension that fits, the tensor's own batch size, or an
index with one more dimension (``index.unsqueeze(1)``).
"""

from __future__ import annotations

import ast
import math
import re

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.refusals.remedies.edits import keyword_set
from pitfall_lab.rules.refusals.remedies.joined_maps import resized
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T


def joined_along(error: Error) -> Remedy | None:
    """Return the remedy for tensors that cannot be joined along this dimension, with a fix that joins them along the
    only dimension in which their sizes differ.

    If there is no such dimension, or the call is unknown, the remedy of :func:`resized` (or None). None if the call has
    ``**arguments``.
    """
    refused, program = error.refused, error.refused.story.program
    shapes = [g.shape for g in refused.tensors if g.part_of and g.shape is not None]
    call = refused.call
    if call is None or len(shapes) < 2 or len({len(s) for s in shapes}) != 1:
        return resized(error)
    different = [k for k in range(len(shapes[0])) if len({s[k] for s in shapes}) > 1]
    if len(different) != 1:
        return resized(error)
    text = f"dim={different[0]}"
    given = call.args[1] if len(call.args) > 1 else None
    change = (program.place(given), str(different[0])) if given is not None else keyword_set(program, call, text)
    if change is None:
        return None
    title = T(
        en=f"Join them along the dimension in which they differ: `{text}`", zh=f"沿着它们不同的那一维拼接：`{text}`"
    )
    return Remedy((Fix(title, program.splice(change), meaning="later"),))


def batch_size_of(error: Error) -> Remedy | None:
    """Return the remedy for ``view`` or ``reshape`` with a literal batch size, with a fix that takes it from the
    tensor, ``x.size(0)``.

    If the other sizes do not fit either, the fix is ``x.size(0), -1`` for two sizes, and there is none for more. None
    for other calls, and if the sizes are not written one by one.
    """
    refused, program, wrong = error.refused, error.refused.story.program, error.wrong
    call = refused.call
    if (
        call is None
        or wrong is None
        or not wrong.shape
        or called(call) not in ("view", "reshape")
        or not isinstance(call.func, ast.Attribute)
    ):
        return None
    sizes = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple | ast.List) else call.args
    meant = [int(n) for n in re.findall(r"-?\d+", error.match[1])]
    if len(sizes) != len(meant) or any(isinstance(s, ast.Starred) for s in sizes):
        return None
    fixes, total = list[Fix | None](), math.prod(wrong.shape)
    others = math.prod(n for n in meant[1:] if n >= 0)
    if meant[0] > 0 and -1 not in meant and wrong.shape[0] * others == total:
        text = f"{operand(program, call.func.value)}.size(0)"
        fixes.append(
            Fix(
                T(en=f"Take the batch size from the tensor: `{text}`", zh=f"批大小取自张量：`{text}`"),
                program.replace((sizes[0], text)),
                meaning="later",
            )
        )
    elif len(meant) == 2:
        first = f"{operand(program, call.func.value)}.size(0)"
        title = T(
            en=f"Keep the batch, and let torch compute the rest: `{first}, -1`",
            zh=f"保持批大小，其余由 torch 计算：`{first}, -1`",
        )
        fixes.append(Fix(title, program.replace((sizes[0], first), (sizes[1], "-1")), meaning="later"))
    return Remedy(unique(program.text, fixes))


def order_with_batch(error: Error) -> Remedy | None:
    """Return the remedy for a ``permute`` whose order lacks one dimension, or has one too many and begins with 0, with
    a fix that adds or removes the batch dimension.

    None for other calls, and if the order is not written as non-negative integer literals.
    """
    refused, program, wrong = error.refused, error.refused.story.program, error.other
    call = refused.call
    if call is None or wrong is None or wrong.shape is None or called(call) != "permute":
        return None
    parts = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple | ast.List) else call.args
    numbers = [n.value for n in parts if isinstance(n, ast.Constant) and isinstance(n.value, int)]
    if len(numbers) != len(parts) or min(numbers, default=-1) < 0:
        return None
    if len(numbers) + 1 == len(wrong.shape):
        order = [0, *(n + 1 for n in numbers)]
    elif len(numbers) == len(wrong.shape) + 1 and numbers[0] == 0:
        order = [n - 1 for n in numbers[1:]]
    else:
        return None
    text = ", ".join(map(str, order))
    first, last = program.place(parts[0]), program.place(parts[-1])
    whole = type(first)(first.line, first.column, last.end_line, last.end_column)
    title = T(
        en=f"Give the order with the batch: `{text}`" if order[0] == 0 else f"Give the order without a batch: `{text}`",
        zh=f"给出带批维的次序：`{text}`" if order[0] == 0 else f"给出不带批维的次序：`{text}`",
    )
    return Remedy((Fix(title, program.splice((whole, text)), meaning="later"),))


def mask_of_another_dimension(error: Error) -> Remedy | None:
    """Return the remedy for a mask that does not have the length of the first dimension, with the fix ``x[:, mask]``
    for ``x[mask]``.

    None unless exactly one other dimension has the mask's length and the index consists of the mask alone.
    """
    refused, program = error.refused, error.refused.story.program
    node = program.at(refused.span)
    node = node.targets[0] if isinstance(node, ast.Assign) else node.value if isinstance(node, ast.Expr) else node
    mask, shape = ([int(n) for n in re.findall(r"\d+", error.match[k])] for k in (1, 3))
    fitting = [k for k, n in enumerate(shape) if mask == [n] and k > 0]
    if not isinstance(node, ast.Subscript) or len(fitting) != 1 or isinstance(node.slice, ast.Tuple):
        return None
    text = f"{':, ' * fitting[0]}{program.segment(node.slice)}"
    shown = f"{program.segment(node.value)}[{text}]"
    title = T(
        en=f"Use the mask in the dimension that has its length: `{shown}`", zh=f"在长度相符的那一维使用掩码：`{shown}`"
    )
    return Remedy((Fix(title, program.replace((node.slice, text)), meaning="later"),))


def index_with_a_column(error: Error) -> Remedy | None:
    """Return the remedy for a ``gather`` whose index has one entry for each row, with the fix ``x.gather(1,
    index.unsqueeze(1)).squeeze(1)`` for ``x.gather(1, index)``.

    None for other calls and other shapes, and for a call on several lines.
    """
    refused, program = error.refused, error.refused.story.program
    call = refused.call
    tensors = [g for g in refused.tensors if g.shape is not None]
    if call is None or called(call) != "gather" or len(tensors) < 2:
        return None
    index = next((g for g in tensors if g.name == "index"), tensors[1])
    input_shape = tensors[0].shape or ()
    place = next((a for a in [*call.args, *(k.value for k in call.keywords)] if program.segment(a) == index.text), None)
    if (
        place is None
        or index.shape is None
        or len(index.shape) + 1 != len(input_shape)
        or index.shape != input_shape[:-1]
    ):
        return None
    dim = len(input_shape) - 1
    inner = f"{operand(program, place)}.unsqueeze({dim})"
    text = program.segment(call)
    at, start = program.place(place), program.place(call)
    if start.line != start.end_line:
        return None
    new = f"{text[: at.column - start.column]}{inner}{text[at.end_column - start.column :]}.squeeze({dim})"
    title = T(
        en=f"Give the positions as a column, and take one number of each row: `{inner}`",
        zh=f"把位置排成一列，每行取一个数：`{inner}`",
    )
    return Remedy((Fix(title, program.replace((call, new)), meaning="later"),))


def with_a_batch(error: Error) -> Remedy | None:
    """Return the remedy for a single example that is passed to a model instead of a batch, with the fix
    ``image.unsqueeze(0)`` in the program's call of the model; None if no model was called.
    """
    refused, program, wrong = error.refused, error.refused.story.program, error.wrong
    call = refused.inside(wrong) if wrong is not None and wrong.label is not None else None
    if call is None or not call.args or isinstance(call.args[0], ast.Starred):
        return None
    text = f"{operand(program, call.args[0])}.unsqueeze(0)"
    title = T(en=f"Make a batch of the one example: `{text}`", zh=f"把单个样本变成一批：`{text}`")
    return Remedy((Fix(title, program.replace((call.args[0], text)), meaning="later"),))
