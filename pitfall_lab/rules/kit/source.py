"""A program's source and its syntax tree, and edits that change the source by nodes of the tree.

Edits replace whole lines (see :class:`~pitfall_lab.rules.kit.finding.Edit`), but keep everything on these lines that
they do not change: comments, neighbouring statements, indentation.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from pitfall_lab.rules.kit.finding import Edit
from pitfall_lab.trace import Span

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Program:
    """A Python source text with its syntax tree, and methods that look up nodes and their spans in the text.

    Columns are counted in code points. ``text`` is the source, ``lines`` its lines with their line ends, ``tree`` the
    tree (None if the source cannot be parsed, as with a cell magic). ``parents`` has the parent of each node.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = split_lines(text)
        self.tree = _parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._marked: dict[Span, ast.AST | None] = {}
        self._places: dict[ast.AST, Span] = {}
        for node in ast.walk(self.tree) if self.tree else ():
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All syntax nodes that have a position in the source."""
        return [node for node in self.parents if hasattr(node, "lineno")]

    def place(self, node: ast.AST) -> Span:
        """Return the span of a node, with columns in code points (``ast`` counts UTF-8 bytes)."""
        found = self._places.get(node)
        if found is None:
            found = self._places[node] = self._place(node)
        return found

    def _place(self, node: ast.AST) -> Span:
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        start, end = self._column(line, node.col_offset), self._column(end_line, node.end_col_offset)  # type: ignore[attr-defined]
        return Span(line, start, end_line, end, (self._utf16(line, start), self._utf16(end_line, end)))

    def _column(self, line: int, offset: int) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))

    def _utf16(self, line: int, column: int) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return column if text.isascii() else len(text[:column].encode("utf-16-le", "surrogatepass")) // 2

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """The calls in the source, by the source of the called expression and, if that is an attribute, also by its
        name after a dot: ``"net.step"`` and ``".step"``.
        """
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in (n for n in self.nodes if isinstance(n, ast.Call)):
            found[self.segment(call.func)].append(call)
            if isinstance(call.func, ast.Attribute):
                found[f".{call.func.attr}"].append(call)
        return found

    @cached_property
    def handed_to(self) -> dict[str, list[ast.Call]]:
        """The calls in the source, by the last name of each positional argument that is a name or an attribute:
        ``net.apply(layer.begin)`` under ``"begin"``.
        """
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in (n for n in self.nodes if isinstance(n, ast.Call)):
            for each in call.args:
                if isinstance(each, ast.Name | ast.Attribute):
                    found[each.id if isinstance(each, ast.Name) else each.attr].append(call)
        return found

    @cached_property
    def _statements(self) -> dict[int, ast.stmt]:
        """The first statement without a body on each line."""
        found = [n for n in self.nodes if isinstance(n, ast.stmt) and not hasattr(n, "body")]
        return {n.lineno: n for n in sorted(found, key=lambda n: n.col_offset, reverse=True)}

    def statement_on(self, line: int) -> ast.stmt | None:
        """Return the first statement without a body that begins on ``line``; None if there is none."""
        return self._statements.get(line)

    def segment(self, node: ast.AST) -> str:
        """Return the source text of a node."""
        place = self.place(node)
        if place.line == place.end_line:
            return self.lines[place.line - 1][place.column : place.end_column]
        middle = self.lines[place.line : place.end_line - 1]
        return "".join(
            [self.lines[place.line - 1][place.column :], *middle, self.lines[place.end_line - 1][: place.end_column]]
        )

    def at(self, span: Span | None) -> ast.AST | None:
        """Return the node that ``span`` marks: the outermost node with exactly this span (for an expression statement,
        its expression), else the smallest node around it.

        None if there is none, or if the span is None or in another file.
        """
        if span is None or span.source != 0:
            return None
        if span not in self._marked:
            self._marked[span] = self._search(span)
        return self._marked[span]

    @cached_property
    def _edges(self) -> list[tuple[tuple[int, int], tuple[int, int], ast.AST]]:
        """The start and end positions of each node, with the node."""
        places = ((self.place(node), node) for node in self.nodes)
        return [((place.line, place.column), (place.end_line, place.end_column), node) for place, node in places]

    def _search(self, span: Span) -> ast.AST | None:
        first, last = (span.line, span.column), (span.end_line, span.end_column)
        around: list[tuple[int, int, ast.AST]] = []
        for start, end, node in self._edges:
            if start > first or end < last:
                continue
            if start == first and end == last:
                # an expression statement has the place of its expression: the expression is meant
                return node.value if isinstance(node, ast.Expr) else node
            around.append((end[0] - start[0], end[1] - start[1], node))
        return min(around, key=lambda item: item[:2])[2] if around else None

    def statement(self, node: ast.AST | None) -> ast.stmt | None:
        """Return the statement that contains ``node``; ``node`` itself if it is one; None for None."""
        while node is not None and not isinstance(node, ast.stmt):
            node = self.parents.get(node)
        return node

    def statement_at(self, span: Span | None) -> ast.stmt | None:
        """Return the smallest statement that contains ``span``; None if there is none."""
        return self.statement(self.at(span))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that contain ``node``, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function(self, node: ast.AST) -> Function | None:
        """Return the function that contains ``node``; None at the top level."""
        return next((a for a in self.ancestors(node) if isinstance(a, Function)), None)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the list of statements (of a body or a branch) that contains ``statement``; a list of ``statement``
        alone if its parent has no such list (a ``match``).
        """
        parent = self.parents.get(statement)
        for field in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and statement in block:
                return block
        return [statement]

    def indent(self, statement: ast.stmt) -> str:
        """Return the white space at the beginning of the line on which ``statement`` begins."""
        line = self.lines[self.place(statement).line - 1]
        return line[: len(line) - len(line.lstrip())]

    def replace(self, *changes: tuple[ast.AST, str]) -> tuple[Edit, ...]:
        """Return the edits that make ``changes``: pairs of a syntax node and the text that replaces it; the nodes must
        not overlap.
        """
        return self.splice(*((self.place(node), text) for node, text in changes))

    def rewritten(self, node: ast.AST, *changes: tuple[ast.AST, str]) -> str:
        """Return the source of ``node`` with changes made to it: pairs of a syntax node inside and the text that
        replaces it; the nodes must not overlap.

        >>> program = Program("y = softmax(s, 1)")
        >>> [call] = program.calls["softmax"]
        >>> program.rewritten(call, (call.args[0], "s / 2"))
        'softmax(s / 2, 1)'
        """
        whole = self.place(node)
        text = self._spliced(whole.line, whole.end_line, [(self.place(part), new) for part, new in changes])
        return text[whole.column : len(text) - len(self._line(whole.end_line)[whole.end_column :])]

    def splice(self, *changes: tuple[Span, str]) -> tuple[Edit, ...]:
        """Return the edits that replace each span by its text, last line first; changes that touch the same lines
        become one edit.
        """
        groups: list[list[tuple[Span, str]]] = []
        for change in sorted(changes, key=lambda item: (item[0].line, item[0].column)):
            if groups and change[0].line <= max(span.end_line for span, _ in groups[-1]):
                groups[-1].append(change)
            else:
                groups.append([change])
        return tuple(self._splice_group(group) for group in reversed(groups))

    def _splice_group(self, group: list[tuple[Span, str]]) -> Edit:
        first, last = group[0][0].line, max(span.end_line for span, _ in group)
        return Edit(first, last, self._spliced(first, last, group))

    def _spliced(self, first: int, last: int, changes: list[tuple[Span, str]]) -> str:
        """The lines from ``first`` to ``last`` as one text, with each span of ``changes`` replaced by its text."""
        starts, total = {}, 0
        for number in range(first, last + 1):
            starts[number] = total
            total += len(self._line(number))
        text = "".join(self._line(number) for number in range(first, last + 1))
        for span, new in sorted(changes, key=lambda item: (item[0].line, item[0].column), reverse=True):
            text = text[: starts[span.line] + span.column] + new + text[starts[span.end_line] + span.end_column :]
        return text

    def _line(self, number: int) -> str:
        line = self.lines[number - 1]
        return line if line.endswith(("\n", "\r")) else line + "\n"

    def stands_alone(self, statement: ast.stmt) -> bool:
        """Whether no other statement is on the lines of ``statement``."""
        place = self.place(statement)
        before = self.lines[place.line - 1][: place.column]
        after = self.lines[place.end_line - 1][place.end_column :].strip()
        return not before.strip() and (not after or after.startswith("#"))

    def insert_before(self, statement: ast.stmt, *new: str) -> tuple[Edit, ...]:
        """Return the edits that insert the statements ``new`` before ``statement``, on lines of their own; separated by
        ``;`` if another statement is before it on its line.
        """
        place = self.place(statement)
        here = Span(place.line, place.column, place.line, place.column)
        if not self.lines[place.line - 1][: place.column].strip():
            glue = "\n" + self.indent(statement)
            return self.splice((here, glue.join(new) + glue))
        return self.splice((here, "; ".join(new) + "; "))

    def insert_after(self, statement: ast.stmt, *new: str) -> tuple[Edit, ...]:
        """Return the edits that insert statements after ``statement``, on lines of their own."""
        last = self.place(statement).end_line
        indent = self.indent(statement)
        return (Edit(last, last, self._line(last) + "".join(f"{indent}{line}\n" for line in new)),)

    def delete(self, statement: ast.stmt) -> tuple[Edit, ...]:
        """Return the edits that delete ``statement``; if it is alone in its block or shares a line, it is replaced by
        ``pass``.
        """
        place = self.place(statement)
        if len(self.block(statement)) == 1 or not self.stands_alone(statement):
            return self.splice((place, "pass"))
        return (Edit(place.line, place.end_line, ""),)


def split_lines(text: str) -> list[str]:
    """Return the lines of ``text``, with their ends, as Python counts them (``str.splitlines`` also breaks at form
    feeds and more).
    """
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def apply(text: str, edits: tuple[Edit, ...]) -> str:
    r"""Return ``text`` after the edits were applied.

    >>> apply("a\nb\nc\n", (Edit(3, 3, ""), Edit(1, 1, "A\n")))
    'A\nb\n'
    """
    lines = split_lines(text)
    for edit in sorted(edits, key=lambda edit: edit.line, reverse=True):
        lines[edit.line - 1 : edit.end_line] = [edit.text] if edit.text else []
    return "".join(lines)


def merge(*groups: tuple[Edit, ...]) -> tuple[Edit, ...] | None:
    """Return all edits of the ``groups`` as one tuple, last line first; None when two of them touch the same lines."""
    edits = sorted((edit for group in groups for edit in group), key=lambda edit: edit.line, reverse=True)
    for later, earlier in itertools.pairwise(edits):
        if earlier.end_line >= later.line:
            return None
    return tuple(edits)


def parses(text: str) -> bool:
    """Whether the text is Python that can be parsed."""
    return _parse(text) is not None


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
