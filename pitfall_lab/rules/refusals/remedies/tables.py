"""An index beyond the rows of an embedding: the rows were counted too early, or are too few."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Edit, Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.text_origins import origins, owner, parameters
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import Given, Span, T

GROWING = {"append", "add", "update", "setdefault", "extend", "insert"}


def rows(error: Error) -> Remedy | None:
    """Return the remedy for an embedding table with too few rows for the indices that it looks up.

    If the rows were counted before all entries were added, the fix counts them afterwards. Otherwise it makes as many
    rows as the largest index needs, if the number of rows is a literal, or one more row, if that is enough. None if it
    is unknown where the table is created, or if an index is negative.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    wrong, table = error.wrong, error.other
    record = story.tensor(table.label, refused.step) if table is not None and table.label is not None else None
    span = story.span((record or {}).get("born"))
    made = program.at(span)
    if (
        wrong is None
        or table is None
        or table.shape is None
        or not isinstance(made, ast.Call)
        or called(made) not in ("Embedding", "EmbeddingBag")
    ):
        return None
    size = next((k.value for k in made.keywords if k.arg == "num_embeddings"), made.args[0] if made.args else None)
    if size is None or not isinstance(wrong.high, int) or not isinstance(wrong.low, int) or wrong.low < 0:
        return None
    counted = [found for each in origins(program, size) if (found := _counted_early(program, each)) is not None]
    if counted:
        return _early(story, (error, wrong, table), (span, size), counted[0])
    count = table.shape[0]
    fixes: list[Fix | None] = []
    function, passed = program.function(made), [found for found in origins(program, size) if found is not size]
    given = isinstance(size, ast.Name) and function is not None and size.id in parameters(function) and len(passed) == 1
    for each in [passed[0], size] if given else [size]:  # a size that was passed belongs to the caller
        if isinstance(each, ast.Constant):
            fixes.append(_as_many(program, each, str(wrong.high + 1)))
        elif wrong.high == count:
            fixes.append(_as_many(program, each, _one_more(program, each)))
    where, here, name = at_line(story, span), at_line(story, refused.span), refused.name(wrong)
    said = T(
        en=f"{capital(where.en)} makes a table of {count} rows, numbers 0 to {count - 1}, and {here.en} looks up "
        f"number {wrong.high} in it: the numbers in {name.en} go from {wrong.low} to {wrong.high}.",
        zh=f"{where.zh}建立的表有 {count} 行，编号 0 到 {count - 1}，而{here.zh}要查编号 {wrong.high}：{name.zh} 中的"
        f"编号从 {wrong.low} 到 {wrong.high}。",
    )
    related = (
        Related("made", span, None, T(en=f"a table of {count} rows is made here", zh=f"在这里建立 {count} 行的表")),
    )
    return Remedy(unique(program.text, fixes), said, None, span, (record or {}).get("born"), related)


def _one_more(program: Program, size: ast.expr) -> str:
    """The source of an expression plus 1: ``len(words) + 2`` for ``len(words) + 1``."""
    last = size.right if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Add) else None
    if isinstance(size, ast.BinOp) and isinstance(last, ast.Constant) and isinstance(last.value, int):
        return f"{program.segment(size.left)} + {last.value + 1}"
    return f"{operand(program, size)} + 1"


def _as_many(program: Program, size: ast.expr, text: str) -> Fix:
    return Fix(
        T(en=f"Make as many rows as there are numbers: `{text}`", zh=f"行数与编号数一致：`{text}`"),
        program.replace((size, text)),
        meaning="later",
    )


def _counted_early(program: Program, value: ast.expr) -> tuple[ast.stmt, ast.stmt, ast.expr] | None:
    """For ``size = len(index)``, where later statements of the same block add to ``index``: this statement, the last of
    the later ones, and the expression ``index``.

    None for other values, and if the later statements use ``size``.
    """
    statement = program.statement(value)
    if (
        not isinstance(value, ast.Call)
        or called(value) != "len"
        or len(value.args) != 1
        or not isinstance(statement, ast.Assign)
    ):
        return None
    block = program.block(statement)
    held = program.segment(value.args[0])
    later = [s for s in block[block.index(statement) + 1 :] if _grows(program, s, held)]
    names = {program.segment(t) for t in statement.targets}
    if not later or any(
        program.segment(n) in names for s in later for n in ast.walk(s) if isinstance(n, ast.Name | ast.Attribute)
    ):
        return None
    return statement, later[-1], value.args[0]


def _grows(program: Program, statement: ast.stmt, held: str, depth: int = 0) -> bool:
    """Whether a statement, or a method of the same object that it calls, adds an entry to ``held``."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and program.segment(node.value) == held:
            return True
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if called(node) in GROWING and program.segment(node.func.value) == held:
            return True
        own = owner(program, statement)
        if depth == 0 and own is not None and isinstance(node.func.value, ast.Name) and node.func.value.id == "self":
            body = next((n for n in own.body if isinstance(n, ast.FunctionDef) and n.name == called(node)), None)
            if body is not None and any(_grows(program, s, held, 1) for s in body.body):
                return True
    return False


def _early(
    story: Story,
    about: tuple[Error, Given, Given],
    table: tuple[Span | None, ast.expr],
    counted: tuple[ast.stmt, ast.stmt, ast.expr],
) -> Remedy:
    error, wrong, weight = about
    program, refused = story.program, error.refused
    statement, last, held = counted
    place = program.place(statement)
    where, more, made, here = (at_line(story, each) for each in (place, program.place(last), table[0], refused.span))
    count = weight.shape[0] if weight.shape is not None else 0
    name = program.segment(held)
    said = T(
        en=f"{capital(where.en)} counts `{name}` before {more.en} adds to it: the table made on {made.en} has {count} "
        f"rows, numbers 0 to {count - 1}, and {here.en} looks up number {wrong.high}.",
        zh=f"{where.zh}在{more.zh}往 `{name}` 里添加之前就数了它：{made.zh}建立的表只有 {count} 行，编号 0 到 "
        f"{count - 1}，而{here.zh}要查编号 {wrong.high}。",
    )
    accepts = T(
        en=f"a table with a row for each number up to {wrong.high}", zh=f"编号到 {wrong.high} 为止每个都有一行的表"
    )
    end = program.place(last).end_line
    text = program.indent(statement) + " ".join(program.segment(statement).split())
    line = program.lines[end - 1]
    edits = merge(
        (Edit(end, end, f"{line if line.endswith(chr(10)) else line + chr(10)}{text}\n"),), program.delete(statement)
    )
    title = T(en=f"Count `{name}` when everything is in it", zh=f"等全部放入之后再数 `{name}`")
    fixes = (
        (Fix(title, edits, meaning="later"),)
        if edits and program.stands_alone(statement) and program.stands_alone(last)
        else ()
    )
    related = (
        Related("made", place, None, T(en=f"`{name}` is counted here", zh=f"在这里数 `{name}`")),
        Related(
            "changed",
            program.place(last),
            None,
            T(en=f"`{name}` gets more entries here", zh=f"`{name}` 在这里又增加了条目"),
        ),
        Related("made", table[0], None, T(en=f"a table of {count} rows is made here", zh=f"在这里建立 {count} 行的表")),
    )
    return Remedy(fixes, said, accepts, place, None, related)
