"""Feature maps that are joined although they differ in height or width: one is resized to the other."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import is_name, torch_name
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.rules.refusals.size_origin import origin
from pitfall_lab.trace import Given, T


def resized(error: Error) -> Remedy | None:
    """Return the remedy for two feature maps that are joined although they differ in height or width, with a fix that
    resizes the map that was created later to the other.

    None if they are not two tensors of 3 to 5 dimensions with the same batch size, do not differ in height or width, or
    it is unknown where they began to differ. Without a fix if the line does not write both by a name.
    """
    refused, program = error.refused, error.refused.story.program
    maps = [g for g in refused.tensors if g.shape is not None]
    statement = program.statement_at(refused.span)
    if len(maps) != 2 or statement is None or not program.stands_alone(statement) or hasattr(statement, "body"):
        return None
    one, other = maps
    sizes = [g.shape for g in maps if g.shape is not None]
    if (
        len(sizes[0]) != len(sizes[1])
        or len(sizes[0]) not in (3, 4, 5)
        or sizes[0][0] != sizes[1][0]
        or sizes[0][2:] == sizes[1][2:]
    ):
        return None
    apart = origin(refused)
    if apart is None:
        return None
    fixes: list[Fix | None] = []
    moved, kept = sorted(maps, key=lambda g: _born(error, g), reverse=True)
    for changed, given in ((moved, kept), (kept, moved)):
        fixes.append(_interpolated(error, statement, changed, given))
    here = refused.words("en")["Line"]
    names = [refused.name(g) for g in (one, other)]
    shapes = ["×".join(map(str, size)) for size in sizes]
    said = T(
        en=f"{here} joins {names[0].en} of shape {shapes[0]} and {names[1].en} of shape {shapes[1]}, which differ in "
        f"height or width. {apart.en}",
        zh=f"{refused.words('zh')['Line']}拼接 {names[0].zh}（{shapes[0]}）和 {names[1].zh}（{shapes[1]}），两者的"
        f"高或宽不同。{apart.zh}",
    )
    return Remedy(unique(program.text, fixes[:1]), said)


def _born(error: Error, given: Given) -> int:
    return int((error.refused.story.tensor(given.label, error.refused.step) or {}).get("born") or 0)


def _interpolated(error: Error, statement: ast.stmt, changed: Given, kept: Given) -> Fix | None:
    program = error.refused.story.program
    function = _interpolate(program)
    if function is None or not changed.text or not kept.text or not _is_plain(changed.text):
        return None
    line = f"{changed.text} = {function}({changed.text}, size={kept.text}.shape[2:])"
    title = T(
        en=f"Bring `{changed.text}` to the size of `{kept.text}` first",
        zh=f"先把 `{changed.text}` 调整到 `{kept.text}` 的大小",
    )
    return Fix(title, program.insert_before(statement, line))


def _is_plain(text: str) -> bool:
    try:
        return is_name(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return False


def _interpolate(program: Program) -> str | None:
    """How the program can call ``interpolate``: by its own name for ``torch.nn.functional``, else by its name for
    torch; None if it has neither.
    """
    for node in program.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                module = f"{getattr(node, 'module', '') or ''}.{alias.name}".strip(".")
                if module == "torch.nn.functional" and (alias.asname or isinstance(node, ast.ImportFrom)):
                    return f"{alias.asname or alias.name}.interpolate"
    torch = torch_name(program)
    return f"{torch}.nn.functional.interpolate" if torch else None
