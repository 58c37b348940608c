"""Errors under ``vmap``: conditions that become ``torch.where``, random numbers, and layers that mix the examples of a
batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import called, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedies.edits import Change, before, imported, keyword_set
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

NORMS = {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d"}
MAPS = {"vmap": "different", "jacfwd": "same"}
"""Functions of torch that map another function, each with the ``randomness`` that is probably intended: different
numbers for each row of ``vmap``, the same numbers in a derivative.
"""
MOST_GROUPS, LEAST_IN_ONE = 32, 2


def branches(error: Error) -> Remedy | None:
    """Return the remedy for a condition on a tensor under ``vmap``, with a fix that computes both branches and chooses
    for each row: ``torch.where(condition, one, other)``.

    Without a fix if the condition is in no conditional expression, and in no ``if`` whose branches each assign or
    return one value. None if the program has no name for torch, or the source does not show the line.
    """
    program, torch = error.refused.story.program, torch_name(error.refused.story.program)
    node = program.at(error.refused.span)
    if node is None or torch is None:
        return None
    return Remedy(unique(program.text, list(_chosen(program, node, torch))))


def _chosen(program: Program, node: ast.AST, torch: str) -> Iterator[Fix | None]:
    inner = [n for n in ast.walk(node) if isinstance(n, ast.IfExp)]
    if isinstance(node, ast.Call) and len(inner) == 1:  # of a lambda on one line, only the call of `vmap` is known
        node = inner[0].test
    for around in [node, *program.ancestors(node)]:
        if isinstance(around, ast.IfExp) and _within(around.test, node):
            new = (
                f"{torch}.where({program.segment(around.test)}, {program.segment(around.body)}, "
                f"{program.segment(around.orelse)})"
            )
            yield _fix(program.replace((around, new)), new)
            return
        if isinstance(around, ast.If) and _within(around.test, node):
            yield _statement(program, around, torch)
            return
        if isinstance(around, ast.FunctionDef | ast.Lambda):
            return


def _within(test: ast.expr, node: ast.AST) -> bool:
    return node is test or node in set(ast.walk(test)) or isinstance(node, ast.If)


def _statement(program: Program, branch: ast.If, torch: str) -> Fix | None:
    """The fix for ``if c: return a`` before ``return b``, or for ``if c: x = a`` with or without ``else: x = b``; None
    for other statements.
    """
    block = program.block(branch)
    test, then = program.segment(branch.test), branch.body
    other = branch.orelse
    after = block[block.index(branch) + 1 :]
    if len(then) != 1 or len(other) > 1:
        return None
    if isinstance(then[0], ast.Return) and then[0].value is not None:
        last = other[0] if other else after[0] if after else None
        if not isinstance(last, ast.Return) or last.value is None:
            return None
        new = f"{torch}.where({test}, {program.segment(then[0].value)}, {program.segment(last.value)})"
        end = program.place(last).end_line
        edit = Edit(program.place(branch).line, end, f"{program.indent(branch)}return {new}\n")
        return _fix((edit,), new)
    if isinstance(then[0], ast.Assign) and len(then[0].targets) == 1 and isinstance(then[0].targets[0], ast.Name):
        name = then[0].targets[0].id
        if other and not (isinstance(other[0], ast.Assign) and program.segment(other[0].targets[0]) == name):
            return None
        beside = program.segment(other[0].value) if other and isinstance(other[0], ast.Assign) else name
        new = f"{torch}.where({test}, {program.segment(then[0].value)}, {beside})"
        return _fix(program.replace((branch, f"{name} = {new}")), new)
    return None


def _fix(edits: tuple[Edit, ...], shown: str) -> Fix:
    text = shown if len(shown) <= 60 else f"{shown.partition('(')[0]}(…)"
    return Fix(T(en=f"Choose for each row: `{text}`", zh=f"为每一行选择：`{text}`"), edits, meaning="later")


def random_numbers(error: Error) -> Remedy | None:
    """Return the remedy for random numbers under ``vmap``, with fixes that pass ``randomness=`` where the function is
    mapped.

    One fix for each mapping; a single fix for all of them if one is inside another. None if the source shows no mapping
    that lacks the argument.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    mapping = [(node, changes) for node in program.nodes if (changes := _decided(program, node))]
    if not mapping:
        return None
    fixes = [_drawn(program, changes) for _, changes in mapping]
    if any(each is not node and node in program.ancestors(each) for node, _ in mapping for each, _ in mapping):
        fixes = [_drawn(program, list(dict.fromkeys(change for _, changes in mapping for change in changes)))]
    place, step = program.place(mapping[0][0]), refused.step if refused.failure.step is not None else None
    where, here = at_line(story, place), at_line(story, refused.span)
    if len(mapping) > 1 or where == here:
        return Remedy(unique(program.text, fixes))
    said = T(
        en=f"{capital(where.en)} maps a function over rows, and {here.en} draws random numbers in it: `vmap` does not "
        "know whether each row is to have its own.",
        zh=f"{where.zh}把一个函数作用于各行，而{here.zh}在其中抽取随机数：`vmap` 不知道每一行是否要有自己的随机数。",
    )
    related = (Related("made", place, None, T(en="the function is mapped here", zh="函数在这里被映射")),)
    return Remedy(unique(program.text, fixes), said, None, place, step, related)


def _drawn(program: Program, changes: list[Change]) -> Fix:
    own = any('"different"' in text for _, text in changes)
    title = (
        T(
            en='Let each row draw its own numbers: `randomness="different"`',
            zh='让每一行各自抽取随机数：`randomness="different"`',
        )
        if own
        else T(
            en='Draw the same numbers for each column: `randomness="same"`',
            zh='让每一列用相同的随机数：`randomness="same"`',
        )
    )
    return Fix(title, program.splice(*changes), meaning="later")


def _decided(program: Program, node: ast.AST) -> list[Change]:
    """The changes that pass ``randomness`` in ``vmap(f)``, ``partial(vmap, …)`` or ``@vmap``; empty if it is passed
    already, and for other nodes.
    """
    if isinstance(node, ast.Call):
        name = called(node)
        name = _last(node.args[0]) if name == "partial" and node.args else name
        given = next((k.value for k in node.keywords if k.arg == "randomness"), None)
        if name not in MAPS or (isinstance(given, ast.Constant) and given.value != "error"):
            return []
        change = keyword_set(program, node, f'randomness="{MAPS[name]}"')
        return [change] if change is not None else []
    function = program.parents.get(node)
    if isinstance(function, ast.FunctionDef) and node in function.decorator_list and _last(node) in MAPS:
        partial, imports = _partial(program)
        return [
            (program.place(node), f'{partial}({program.segment(node)}, randomness="{MAPS[_last(node)]}")'),
            *imports,
        ]
    return []


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _partial(program: Program) -> tuple[str, list[Change]]:
    """How the program can call ``functools.partial``, and the change that imports it, if that is necessary."""
    imports = [n for n in program.nodes if isinstance(n, ast.Import | ast.ImportFrom)]
    for node in imports:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom) and node.module == "functools" and alias.name == "partial":
                return alias.asname or "partial", []
            if isinstance(node, ast.Import) and alias.name == "functools":
                return f"{alias.asname or 'functools'}.partial", []
    first = next(n for n in imports if not (isinstance(n, ast.ImportFrom) and n.module == "__future__"))
    return "partial", [before(program, first, "from functools import partial")]


def statistics_of_a_batch(error: Error) -> Remedy | None:
    """Return the remedy for batch norms under ``vmap``, with a fix that uses ``GroupNorm``, which normalises each
    example separately; None if the source creates no batch norm.

    Without a fix if it creates several, and one of them by a bare imported name (``BatchNorm2d``).
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    norms = [n for n in program.nodes if isinstance(n, ast.Call) and called(n) in NORMS and n.args]
    if not norms:
        return None
    place = program.place(norms[0])
    where, here = at_line(story, place), at_line(story, refused.span)
    name = called(norms[0])
    said = T(
        en=f"{capital(where.en)} makes a `{name}`, which normalises over the examples of a batch and updates "
        f"its running statistics; under `vmap` {here.en} runs for one example at a time, and the statistics "
        "belong to none of them.",
        zh=f"{where.zh}建立的 `{name}` 要对一批样本做归一化并更新滑动统计量；而在 `vmap` 之下，{here.zh}每次只处理一个"
        "样本，统计量不属于其中任何一个。",
    )
    accepts = T(
        en="a norm that looks at one example (`GroupNorm`, `LayerNorm`, `InstanceNorm`), or `model.eval()`, where the "
        "statistics are fixed",
        zh="只看单个样本的归一化（`GroupNorm`、`LayerNorm`、`InstanceNorm`），或 `model.eval()`，此时统计量不变",
    )
    related = tuple(Related("made", program.place(n), None, T(en="made here", zh="在这里建立")) for n in norms[:3])
    return Remedy(unique(program.text, [_groups(program, norms)]), said, accepts, place, None, related)


def _groups(program: Program, norms: list[ast.Call]) -> Fix | None:
    """The fix that replaces batch norms by group norms; None if there are several and one is created by a bare imported
    name.

    With one group if the number of channels is no literal.
    """
    changes = []
    for norm in norms:
        channels = norm.args[0]
        count = (
            _groups_of(channels.value) if isinstance(channels, ast.Constant) and isinstance(channels.value, int) else 1
        )
        function = program.segment(norm.func)
        base = function[: -len(called(norm))]
        changes.append((norm, f"{base}GroupNorm({count}, {program.segment(channels)})"))
    if any(isinstance(n.func, ast.Name) for n in norms):
        first = norms[0]
        extra = imported(program, (program.place(first), changes[0][1]), first, "GroupNorm")
        edits = extra if len(norms) == 1 else ()
    else:
        edits = program.replace(*changes)
    title = T(en=f"Normalise each example for itself: `{changes[0][1]}`", zh=f"对每个样本单独归一化：`{changes[0][1]}`")
    return Fix(title, edits, meaning="later") if edits else None


def _groups_of(channels: int) -> int:
    """The largest number of groups, at most 32, that divides the channels and leaves at least two in each; 1 if there
    is none.

    >>> _groups_of(8), _groups_of(64), _groups_of(3)
    (4, 32, 1)
    """
    fitting = [n for n in range(1, MOST_GROUPS + 1) if channels % n == 0 and channels // n >= LEAST_IN_ONE]
    return max(fitting, default=1)
