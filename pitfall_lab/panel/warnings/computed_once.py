"""Warns of a buffer that a module computed from a parameter when it was created, and never again
(:func:`computed_once`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.computed_buffers import ComputedBuffer

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class _StoredAt(NamedTuple):
    """The statement of a class's ``__init__`` that stores a tensor: its run and its line."""

    run: Cell
    line: int


def computed_once(found: ComputedBuffer, ran: Ran) -> dict[str, Any] | None:
    """The warning about a buffer that does not follow the parameter from which it was computed; None if the source of
    the class does not show that only ``__init__`` computes it.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    place = _place(found, ran)
    if place is None:
        return None
    moved = called(found.moved)
    sentence = T(
        f"{_subject(found).en} from `{found.leaf}`, which {moved} has changed: it still has the numbers of before.",
        f"{_subject(found).zh}由 `{found.leaf}` 算出，而 {moved} 已经改变了后者：它仍是之前的数。",
    )
    cells = cell(ran, place.run.count, "made", line=place.line) + cell(ran, found.moved, "changed")
    said = Said(sentence, _WHY, _fix(found, place), found.path)
    return warning("computed-once", "silent", said, cells, "PL502")


def freed(found: ComputedBuffer, ran: Ran) -> tuple[T, T, T] | None:
    """Sentence, explanation and fix for a backward that failed because the graph of this buffer was freed; None if the
    source of the class does not show that only ``__init__`` computes the buffer.
    """
    place = _place(found, ran)
    if place is None:
        return None
    sentence = T(
        f"{_subject(found).en} from `{found.leaf}`, and the first backward has freed its graph: this is why the next "
        "one failed.",
        f"{_subject(found).zh}由 `{found.leaf}` 算出，而第一次反向传播已释放它的计算图：所以下一次反向传播失败了。",
    )
    return sentence, _WHY, _fix(found, place)


def _subject(found: ComputedBuffer) -> T:
    kind = T("a buffer", "缓冲区") if found.is_buffer else T("an attribute", "属性")
    en, zh = (f", in {called(found.made)},", f"在 {called(found.made)} 中") if found.made is not None else ("", "")
    return T(f"`{found.name}` ({kind.en}) was computed once{en}", f"`{found.name}`（{kind.zh}）只{zh}计算过一次，")


_WHY = T(
    "`__init__` runs once: what it computes from a parameter keeps the graph of that computation and its numbers. Each "
    "forward uses the same result, so the parameter's steps do not reach it, and a second backward meets the freed "
    "graph. `retain_graph=True` would only hide that.",
    "`__init__` 只运行一次：它由参数算出的结果会保留那次计算的计算图和数。每次前向计算用的都是同一个结果，"
    "所以参数的更新不会影响它，而第二次反向传播会遇到已释放的计算图。`retain_graph=True` 只会掩盖这一点。",
)


def _fix(found: ComputedBuffer, place: _StoredAt) -> T:
    attribute, leaf = found.path[-1], f"`{found.leaf.rpartition('.')[2]}`"
    where, root = called(place.run.count), f"`{found.path[0]}`"
    en, zh = (f", line {place.line}", f"第 {place.line} 行") if place.run.whole else ("", "")
    return T(
        f"Compute `{attribute}` in `forward`, from {leaf}, in place of `__init__` ({where}{en}); store there only what "
        f"needs no gradient. Then make {root} anew.",
        f"在 `forward` 中由 {leaf} 计算 `{attribute}`，而不是在 `__init__` 中（{where} {zh}）；"
        f"那里只保存不需要梯度的内容。然后重新创建 {root}。",
    )


def _place(found: ComputedBuffer, ran: Ran) -> _StoredAt | None:
    """The statement in ``__init__`` that stores the buffer, if no other method of the newest class of this name stores
    it; else None.
    """
    for run in reversed(list(ran.since(0))):
        classes = [each for each in run.tree.body if isinstance(each, ast.ClassDef) and each.name == found.owner]
        for one in classes[-1:]:
            methods = [each for each in one.body if isinstance(each, _FUNCTIONS)]
            lines = {method.name: line for method in methods if (line := _stored(method, found.path[-1]))}
            return _StoredAt(run, lines["__init__"]) if lines.keys() == {"__init__"} else None
    return None


def _stored(method: ast.AST, name: str) -> int:
    """The line on which a method registers or assigns an attribute of this name; 0 if it does not."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
            return node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "name")]
            if node.func.attr in ("register_buffer", "__setattr__") and any(
                isinstance(each, ast.Constant) and each.value == name for each in named
            ):
                return node.lineno
    return 0
