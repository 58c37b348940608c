"""Changes of a program for a learner to try: the fixes of the findings, and a few simple changes of the lines involved.

These are experiments, not repairs: each gives a program that parses, and running it shows what the change does. A
simple change is offered only where the trace shows that it can make a difference
(:mod:`pitfall_lab.rules.kit.change_effects`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.change_effects import ChangeEffects
from pitfall_lab.rules.kit.finding import Edit, Finding
from pitfall_lab.rules.kit.source import Program, apply, parses
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, is_name, torch_name, written_root
from pitfall_lab.rules.kit.writing_repairs import copies_before, new_value
from pitfall_lab.trace import T, Trace
from pitfall_lab.trace.slice import failures
from pitfall_lab.trace.text import place

Place = Callable[[int], T]

MOST = 10
GENERIC = 6


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a program for a learner to try.

    ``id`` names it in messages (``"fix-1"``, ``"detach-7"``); ``title`` says in both languages what it does; ``edits``
    replace the changed lines. ``verified`` is True if it is a verified fix of a finding.
    """

    id: str
    title: T
    edits: tuple[Edit, ...]
    verified: bool = False

    def __repr__(self) -> str:
        return f"{self.id}: {self.title.en}"


def changes(trace: Trace, findings: Sequence[Finding] = ()) -> tuple[Change, ...]:
    """Return the changes that can be tried with the program of ``trace``, the fixes of ``findings`` first; each gives a
    different program that parses.

    At most ``MOST`` changes, of which at most ``GENERIC`` are not fixes. If any fix is verified, unverified fixes are
    left out. Empty if the trace has no source, or the source cannot be parsed.
    """
    if not trace.sources:
        return ()
    program = Program(trace.sources[0].text)
    if program.tree is None:
        return ()

    def at(line: int) -> T:
        return place(trace, line)

    fixes = [fix for finding in findings for fix in finding.fixes]
    offered = [fix for fix in fixes if fix.verified] or fixes
    found = [Change(f"fix-{number}", fix.title, fix.edits, fix.verified) for number, fix in enumerate(offered, 1)]
    lines = _lines(trace, findings)
    simple = list(_generic(program, lines, ChangeEffects(Story(trace), program), at))
    if not any(map(_is_about_gradients, findings)):  # what is done to gradients comes last, then
        simple.sort(key=lambda change: change.id.startswith(("drop-", "zero_grad-")))
    plain = list(_unique(program, [*found, *simple]))
    kept = [change for change in plain if change in found]
    kept += [change for change in plain if change not in found][:GENERIC]
    return tuple(_placed(kept[:MOST], at))


def _is_about_gradients(finding: Finding) -> bool:
    """Whether the finding is about gradients that add up over backwards, or about a line that cleared them."""
    names = {fact.name for fact in finding.facts}
    return {"left", "sum"} <= names or any(related.role == "cleared" for related in finding.related)


def _placed(offered: Sequence[Change], at: Place) -> Iterator[Change]:
    """Yield the changes, with the line added to each title that does not name it; of several changes with the same
    title, only the first.
    """
    seen: set[str] = set()
    for change in offered:
        where = at(change.edits[0].line)
        named = re.search(rf"{re.escape(where.en)}(?!\d)", change.title.en)
        title = change.title if named else T(f"{change.title.en} ({where.en})", f"{change.title.zh}（{where.zh}）")
        if title.en not in seen:
            seen.add(title.en)
            yield replace(change, title=title)


def _unique(program: Program, offered: Sequence[Change]) -> Iterator[Change]:
    seen = {_meaning(program.text)}
    for change in offered:
        meaning = _meaning(apply(program.text, change.edits)) if change.edits else None
        if meaning is not None and meaning not in seen:
            seen.add(meaning)
            yield change


def _meaning(text: str) -> str | None:
    """The program's syntax tree as text, equal for texts that differ only in layout and comments; None if ``text``
    cannot be parsed.
    """
    return ast.dump(ast.parse(text)) if parses(text) else None


def _lines(trace: Trace, findings: Sequence[Finding]) -> list[int]:
    """The program's lines for which changes are offered, each once: first those of failures, wrong gradients and
    findings, then those of writes and backwards.
    """
    steps = [s for f in failures(trace) for s in (*f.changed_at, f.saved_at, f.step)]
    steps += [s for harm in trace.harms for cause in harm.causes for s in (*cause.changed_at, cause.saved_at)]
    lines = [line for s in steps if s is not None and 0 <= s < len(trace.events) and (line := _line(trace, s))]
    lines += [f.span.line for f in findings if f.span and f.span.source == 0]
    lines += [r.span.line for f in findings for r in f.related if r.span and r.span.source == 0]
    for event in trace.events:
        if event.span and event.span.source == 0 and (event.writes or event.name == "backward"):
            lines.append(event.span.line)
    return list(dict.fromkeys(lines))


def _line(trace: Trace, step: int) -> int | None:
    span = trace.events[step].span
    return span.line if span and span.source == 0 else None


def _generic(program: Program, lines: list[int], effects: ChangeEffects, at: Place) -> Iterator[Change]:
    for line in lines:
        statement = program.statement_on(line)
        if statement is None:
            continue
        yield from _of_write(program, statement, line, effects, at)
        yield from _of_backward(program, statement, line, effects, at)
        yield from _of_value(program, statement, line, effects, at)


def _of_write(program: Program, statement: ast.stmt, line: int, effects: ChangeEffects, at: Place) -> Iterator[Change]:
    """Changes of a line that writes in place: make a new tensor instead, copy right before, write under ``no_grad``, or
    swap the statement with the next one.

    Nothing for other lines. The last two only for statements alone on their lines; ``no_grad`` only if the program
    imports torch.
    """
    written = written_root(statement)
    if written is None:
        return
    if effects.copying(statement, program.segment(written)):
        fix = new_value(program, statement, statement)
        if fix is not None:
            yield Change(f"new-{line}", fix.title, fix.edits)
        for copy in copies_before(program, statement)[-1:]:
            if copy is not None and not effects.are_arrays(statement):
                yield Change(f"clone-{line}", copy.title, copy.edits)
    torch = torch_name(program)
    if torch and program.stands_alone(statement) and effects.unrecorded(statement):
        place = program.place(statement)
        indent = program.indent(statement)
        body = "".join(f"    {text.rstrip()}\n" for text in program.lines[place.line - 1 : place.end_line])
        title = T(f"Put the write on {at(line).en} under `no_grad`", f"在 `no_grad` 下执行{at(line).zh}的写入")
        yield Change(
            f"no_grad-{line}", title, (Edit(place.line, place.end_line, f"{indent}with {torch}.no_grad():\n{body}"),)
        )
    block = program.block(statement)
    here = block.index(statement)
    alone = here + 1 < len(block) and program.stands_alone(statement) and program.stands_alone(block[here + 1])
    if alone and effects.swapping(statement, block[here + 1]):
        yield _swap(program, statement, block[here + 1], line, at)


def _swap(program: Program, first: ast.stmt, second: ast.stmt, line: int, at: Place) -> Change:
    one, two = program.place(first), program.place(second)
    upper = "".join(program.lines[one.line - 1 : one.end_line])
    between = "".join(program.lines[one.end_line : two.line - 1])
    lower = "".join(program.lines[two.line - 1 : two.end_line])
    title = T(f"Swap {at(line).en} and {at(two.line).en}", f"交换{at(line).zh}与{at(two.line).zh}")
    lower = lower if lower.endswith("\n") else lower + "\n"
    return Change(f"swap-{line}", title, (Edit(one.line, two.end_line, lower + between + upper),))


def _of_backward(
    program: Program, statement: ast.stmt, line: int, effects: ChangeEffects, at: Place
) -> Iterator[Change]:
    """One change for a line that runs backward: leave out the program's first ``zero_grad``, or, if the program has
    none, clear the gradients before the backward.

    Nothing for other lines, or if the program calls neither ``zero_grad`` nor the ``step`` of a variable, or if the
    trace shows no effect.
    """
    if not any(isinstance(n, ast.Call) and called(n) == "backward" for n in ast.walk(statement)):
        return
    for node in program.nodes:
        if (
            isinstance(node, ast.Call)
            and called(node) == "zero_grad"
            and (clearing := program.statement(node)) is not None
        ):
            if not effects.keeping(clearing):
                return
            where = program.place(clearing).line
            title = T(
                f"Leave {at(where).en} out: `{program.segment(node)}`", f"去掉{at(where).zh}：`{program.segment(node)}`"
            )
            yield Change(f"drop-{where}", title, program.delete(clearing))
            return
    for node in program.nodes if effects.clearing(statement) else ():
        if (
            isinstance(node, ast.Call)
            and called(node) == "step"
            and isinstance(node.func, ast.Attribute)
            and is_name(node.func.value)
        ):
            name = program.segment(node.func.value)
            title = T(f"Clear the gradients before {at(line).en}", f"在{at(line).zh}之前清空梯度")
            yield Change(f"zero_grad-{line}", title, program.insert_before(statement, f"{name}.zero_grad()"))
            return


def _of_value(program: Program, statement: ast.stmt, line: int, effects: ChangeEffects, at: Place) -> Iterator[Change]:
    """The change that detaches the assigned value from the graph; nothing if the line does not assign to one name, if
    no backward goes through that tensor, or if such a backward would then reach no leaf.
    """
    if (
        not isinstance(statement, ast.Assign)
        or len(statement.targets) != 1
        or not isinstance(statement.targets[0], ast.Name)
    ):
        return
    name = statement.targets[0].id
    if not effects.detaching(line, name):
        return
    text = program.segment(statement.value)
    if not isinstance(statement.value, (ast.Call, ast.Name, ast.Attribute, ast.Subscript)):
        text = f"({text})"
    title = T(f"Detach `{name}` on {at(line).en}", f"在{at(line).zh} detach `{name}`")
    yield Change(f"detach-{line}", title, program.replace((statement.value, f"{text}.detach()")))
