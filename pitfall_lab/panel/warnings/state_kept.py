"""Warns of an optimizer's state dict that was kept without a copy, was changed by steps, and is loaded again
(:func:`states_kept`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.calls import called_in, definitions, does, reaching
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import binds
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.kept_states import KeptState

DEPTH = 4
_COPIES = frozenset({"deepcopy", "clone"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Functions = Mapping[str, ast.AST]


def states_kept(found: Iterable[KeptState], ran: Ran) -> Iterator[dict[str, Any]]:
    """Yield the warnings about those kept states that a cell loaded after steps had changed them.

    ``found`` are findings in the live objects, ``ran`` are the runs of cells; each warning is a dict of
    :func:`.message.warning`.
    """
    for each in found:
        used = _loaded(each, ran)
        if used is not None:
            yield _said(each, used, ran)


def _said(found: KeptState, used: Cell, ran: Ran) -> dict[str, Any]:
    name, since, here = f"`{found.text}`", called(found.since), called(used.count)
    moved = called(found.moved) if found.moved is not None else here
    opt = f"`{found.optimizer}`" if found.optimizer else ""
    of = T(f"of {opt}" if opt else "of the optimizer", f" {opt} " if opt else "优化器")
    loads = T(f"and {here} loads it", f"{here} 又把它载入")
    if moved == here:
        loads = T("and it is loaded again after that", "之后又把它载入")
    how = T(
        f"has the tensors {of.en} itself, not copies: {moved} trained, which changed them, {loads.en}",
        f"保存的就是{of.zh}的张量本身，不是副本：{moved} 的训练修改了它们，{loads.zh}",
    )
    if not found.shared:
        how = T(
            f"was loaded, and `load_state_dict` {of.en} took its tensors without a copy: {moved} trained, which "
            f"changed them, {loads.en}",
            f"被载入过，而{of.zh}的 `load_state_dict` 没有复制就使用了其中的张量：{moved} 的训练修改了它们，{loads.zh}",
        )
    owner = found.optimizer or "opt"
    said = Said(
        T(
            f"{name} of {since} {how.en}: these are not the averages and step counts of {since}.",
            f"{since} 的 {name} {how.zh}：得到的不是 {since} 时的平均量和步数。",
        ),
        T(
            "`state_dict()` of an optimizer returns its tensors, and `load_state_dict` uses those that need no "
            "conversion as they are (that of a module copies the values). So steps write into what was kept, before "
            "the first loading or after it.",
            "优化器的 `state_dict()` 返回它自己的张量，`load_state_dict` 则直接使用不需要转换的张量"
            "（模块的则会复制数值）。"
            "因此无论在第一次载入之前还是之后，训练步骤都会写入保存下来的状态。",
        ),
        T(
            f"Copy where it is kept and where it is loaded: `copy.deepcopy({owner}.state_dict())` in {since}, and "
            f"`{owner}.load_state_dict(copy.deepcopy({found.text}))`. Then run again from {since} on.",
            f"保存时和载入时都复制：{since} 中用 `copy.deepcopy({owner}.state_dict())`，载入时用 "
            f"`{owner}.load_state_dict(copy.deepcopy({found.text}))`。然后从 {since} 开始重新运行。",
        ),
        found.path[:1],
        (found.text,),
    )
    cells = cell(ran, found.since, "made", found.path[0]) + cell(ran, found.moved, "changed")
    cells += cell(ran, used.count, "stale") if used.count != found.moved else []
    return warning("state-kept", "silent", said, cells, "PL703")


def _loaded(found: KeptState, ran: Ran) -> Cell | None:
    """The first cell that loaded the state after steps had changed it; None if there is none."""
    runs = list(ran.since(0))
    order = _Order(found, definitions(runs), reaching(".step(", runs))
    for run in runs:
        if run.count < found.since or (found.moved is None and run.count > found.since):
            continue
        if run.count == found.since and not found.shared:
            continue
        after = found.moved is not None and run.count > found.moved
        if order.is_wrong(run.tree.body, stepped=after, bound=run.count > found.since):
            return run
    return None


class _Order:
    """Determines whether code loads a kept state after steps have changed it."""

    def __init__(self, found: KeptState, functions: Functions, steps: set[str]) -> None:
        self._name, self._text, self._functions, self._steps = found.path[0], found.text, functions, steps

    def is_wrong(self, body: Sequence[ast.stmt], *, stepped: bool, bound: bool) -> bool:
        """Whether the statements ``body`` load the kept state (``load_state_dict``) after the optimizer has stepped.

        ``stepped``: there were steps before them; ``bound``: the name holds the kept state already.
        """
        for each in body:
            if isinstance(each, _DEFINITIONS):
                continue
            inner = [getattr(each, name, None) for name in ("body", "orelse", "finalbody")]
            blocks = [block for block in inner if isinstance(block, list) and block]
            rebinds = self._name in binds(each)
            loads, steps = bound and self._loads(each, self._name), does(each, ".step(", self._steps)
            if loads and (stepped or (steps and not rebinds and isinstance(each, (ast.For, ast.While)))):
                return True
            if blocks and any(self.is_wrong(block, stepped=stepped, bound=bound) for block in blocks):
                return True
            stepped, bound = (steps and bool(blocks) if rebinds else stepped or steps), bound or rebinds
        return False

    def _loads(self, node: ast.AST, name: str, depth: int = DEPTH) -> bool:
        """Whether the code, or a function that it calls, loads the state in ``name`` without a copy."""
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            given = [*call.args, *(each.value for each in call.keywords)]
            called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if called == "load_state_dict" and any(self._is_it(each, name) for each in given):
                return True
        if not depth:
            return False
        return any(
            self._loads(function, inner, depth - 1)
            for function_name in sorted(set(called_in(node)) & self._functions.keys())
            if isinstance(function := self._functions[function_name], ast.FunctionDef) and function is not node
            for inner in self._names_in(function, node, name)
        )

    def _names_in(self, function: ast.FunctionDef, node: ast.AST, name: str) -> Iterator[str]:
        """The names that the state has in a called function: the same one, if it is global there, or its parameter."""
        arguments = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        if name not in arguments and name not in {each for one in function.body for each in binds(one)}:
            yield name
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == function.name:
                given = [*zip(arguments, call.args, strict=False)]
                given += [(each.arg or "", each.value) for each in call.keywords]
                yield from (argument for argument, value in given if isinstance(value, ast.Name) and value.id == name)

    def _is_it(self, given: ast.expr, name: str) -> bool:
        if any(isinstance(each, ast.Call) and set(called_in(each)) & _COPIES for each in ast.walk(given)):
            return False
        return ast.unparse(given) == name + self._text[len(self._name) :]
