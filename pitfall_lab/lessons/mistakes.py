"""What a learner may have got wrong about a program, as programs to run under a policy of the shadow engine: beliefs,
slips, and two together. The functions yield each as a :class:`Mistake`.

A slip leaves something out of the program: a statement, or a method's call (``x.abs()`` becomes ``x``); or a line is
taken for another one, which the lesson names. The program keeps its lines: what is said of a line can be compared
between these runs.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pitfall_lab import shadow
from pitfall_lab.lessons.misconceptions import Misconception
from pitfall_lab.trace import T

Taken = tuple[int, str] | tuple[int, str, str, str]
"""A line, by its number, and what it is taken for; or these and what is answered to that, in English and in Chinese."""


@dataclass(frozen=True, slots=True)
class Slip:
    """What a learner may overlook or misread in one line of a program.

    ``line`` is the number of the line. ``call`` is the overlooked call or operation with a constant (``* 3``); if it is
    empty, the whole statement is overlooked. If ``taken_for`` is set, nothing is overlooked: the line is read as this
    text, and ``said`` is the lesson's answer to that (None: there is none). If only ``said`` is set, the learner
    expects torch to refuse the line.
    """

    line: int
    call: str = ""
    taken_for: str = ""
    said: T | None = None


@dataclass(frozen=True, slots=True)
class Mistake:
    """One way to a wrong answer: misconceptions (``beliefs``), something overlooked or misread (``slip``; None:
    nothing), or both. ``program`` is the program as the learner then reads it.
    """

    program: str
    beliefs: tuple[Misconception, ...] = ()
    slip: Slip | None = None

    @property
    def policy(self) -> shadow.Policy:
        """The policy of torch, changed by all ``beliefs``."""
        policy = shadow.TORCH
        for belief in self.beliefs:
            policy = belief(policy)
        return policy


def single(program: str, held: list[Misconception]) -> Iterator[Mistake]:
    """Yield for each belief the mistake of holding only this one."""
    return (Mistake(program, (belief,)) for belief in held)


def slips(program: str) -> Iterator[Mistake]:
    """Yield a mistake for each part of the program that may be overlooked, with the program without that part.

    First come operations with a constant on their right (``* 3``), then method calls, both only if they are on one
    line, then statements other than imports, the last statement first. Nothing is yielded for a program with a
    ``while`` loop.
    """
    tree = ast.parse(program)
    if any(isinstance(node, ast.While) for node in ast.walk(tree)):
        return  # it might never end
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.lineno == node.end_lineno:
            shorter, left = _cut(program, node.lineno, _after_brackets(program, node), node.end_col_offset)
            yield Mistake(shorter, slip=Slip(node.lineno, left))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    inner = [node for node in calls if not isinstance(node.func.value, ast.Name) or node.func.value.id != "torch"]  # type: ignore[attr-defined]
    for call in inner:
        if call.lineno == call.end_lineno:
            dot = (call.func.end_col_offset or 0) - len(call.func.attr) - 1  # type: ignore[attr-defined]
            shorter, _ = _cut(program, call.lineno, dot, call.end_col_offset)
            yield Mistake(shorter, slip=Slip(call.lineno, f".{call.func.attr}()"))  # type: ignore[attr-defined]
    statements = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    for statement in sorted(statements, key=lambda node: -node.lineno):
        yield Mistake(_without_statement(program, statement), slip=Slip(statement.lineno))


def misread(program: str, lines: Iterable[Taken]) -> Iterator[Mistake]:
    """Yield a mistake for each of ``lines``: the program with another text in place of the line.

    Each of ``lines`` has the line's number, the text for which it may be taken and, optionally, the answer to that in
    English and in Chinese.
    """
    for line, text, *answer in lines:
        read = program.splitlines()
        before = read[line - 1]
        read[line - 1] = before[: len(before) - len(before.lstrip())] + text
        yield Mistake("\n".join(read), slip=Slip(line, taken_for=text, said=T(*answer) if answer else None))


def together(first: list[Mistake], second: list[Mistake]) -> Iterator[Mistake]:
    """Yield combined mistakes: each pair of ``first`` (beliefs), then each of ``first`` with each of ``second``
    (slips).
    """
    for a, b in itertools.combinations(first, 2):
        yield Mistake(a.program, (*a.beliefs, *b.beliefs))
    for a, b in itertools.product(first, second):
        yield Mistake(b.program, a.beliefs, b.slip)


def _cut(program: str, line: int, begin: int | None, end: int | None) -> tuple[str, str]:
    """The program without a slice of one line, and that slice without spaces and brackets around it.

    ``begin`` and ``end`` count the bytes of the line.
    """
    lines = program.splitlines()
    whole = lines[line - 1].encode()
    lines[line - 1] = (whole[:begin] + whole[end:]).decode()
    return "\n".join(lines), whole[begin:end].decode().strip().strip("()").strip()


def _after_brackets(program: str, node: ast.BinOp) -> int:
    """Return the column, in bytes of its line, where the left operand ends, its closing parentheses included (the
    syntax tree does not contain them). The operation must be on one line.
    """
    begin, end = node.left.end_col_offset or 0, node.right.col_offset
    between = program.splitlines()[node.lineno - 1].encode()[begin:end]
    return begin + between.rfind(b")") + 1


def _without_statement(program: str, statement: ast.stmt) -> str:
    lines = program.splitlines()
    first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
    lines[first:last] = [" " * statement.col_offset + "pass", *[""] * (last - first - 1)]
    return "\n".join(lines)
