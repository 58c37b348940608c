"""Finds the expression in the learner's source that makes a call: :class:`SourceMap` returns it as a ``Span``, with
columns in code points and in UTF-16 units.
"""

from __future__ import annotations

import ast
import linecache
import site
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from pitfall_lab.trace import Part, Source, Span

HERE = Path(__file__).parent.parent
#: Both paths, because code objects have the path that a module was imported by, which may contain a link.
PACKAGE = (f"{HERE}/", f"{HERE.resolve()}/")
#: The frames in which the recorder runs torch's functions have the learner's file name (for
#: warnings) and this function name.
STAND_IN = "_pitfall_lab_run"


@cache
def _library_prefixes(path: tuple[str, ...]) -> tuple[str, ...]:
    """Folders whose code is not the learner's: the standard library, installed packages on the module ``path``, and
    pitfall_lab itself.
    """
    paths = sysconfig.get_paths()
    places = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths]
    places += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    places += [folder for folder in path if folder and _holds_installed_packages(folder)]
    modules = [sys.modules.get(name) for name in ("torch", "numpy", "IPython", "ipykernel")]
    places += [str(Path(module.__file__).parent) for module in modules if module and module.__file__]
    return tuple({str(Path(place)) + "/" for place in places} | {*PACKAGE, "<frozen ", "<__array_function__"})


@cache
def _holds_installed_packages(folder: str) -> bool:
    """Whether packages are installed in ``folder``: a ``--target``, a ``--user`` site, another environment, or a zip
    file.
    """
    place = Path(folder)
    return (
        place.is_file()
        or place.name in ("site-packages", "dist-packages")
        or next(place.glob("*.dist-info"), None) is not None
    )


Place = tuple[int, int, int, int]
"""Line, column, end line, end column; columns in code points."""


class SourceMap:
    """Finds the learner's innermost frame and the expression that it is executing.

    ``main`` are the code file names that the program may have; ``name`` is its display name, and its ``text`` is source
    0. Other files of the learner (imported modules, functions of earlier cells) are added when a call first comes from
    them. If the text is made of several cells, ``parts`` describes them, and ``places`` lists which lines of other
    files the text contains, as ``(file, first line there, last line there, first line here)``. Line 1 of ``main`` is
    line ``begins`` of the text.
    """

    def __init__(
        self,
        main: str | tuple[str, ...],
        name: str,
        text: str,
        parts: tuple[Part, ...] = (),
        places: Sequence[tuple[str, int, int, int]] = (),
        *,
        begins: int = 1,
    ) -> None:
        names = (main,) if isinstance(main, str) else main
        self._sources = [Source(name, text, parts)]
        self._index: dict[str, int] = dict.fromkeys(names, 0)
        self._main = frozenset(names)
        self._shift = begins - 1
        self._places: dict[str, list[tuple[int, int, int]]] = {}
        for file, first, last, here in places:
            self._places.setdefault(file, []).append((first, last, here - first))
        self._is_user: dict[str, bool] = dict.fromkeys(names, True)
        self._positions: dict[int, tuple[CodeType, list[Any]]] = {}
        self._spans: dict[tuple[int, int], Span | None] = {}
        self._lines: dict[int, list[str]] = {}

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources so far; the program itself is the first."""
        return tuple(self._sources)

    def rename(self, name: str) -> None:
        """Change the program's display name, and that of its last cell if it has several (the number of a cell is known
        only after it has run).
        """
        source = self._sources[0]
        parts = (*source.parts[:-1], replace(source.parts[-1], name=name)) if source.parts else ()
        self._sources[0] = Source(name, source.text, parts)

    def rename_others(self, name_of: Callable[[str], str | None]) -> None:
        """Rename the other files for which ``name_of`` returns a name for the file name (Python runs each cell from a
        file name that it generates); if it returns None or an empty name, a file keeps its name.
        """
        for filename, index in self._index.items():
            if index and (name := name_of(filename)):
                self._sources[index] = replace(self._sources[index], name=name)

    def is_user(self, filename: str) -> bool:
        """Whether code with this file name is the learner's: no library and not this package.

        Code without a file, as ``exec`` runs it, counts only if it comes from IPython or Python's prompt, or if
        ``linecache`` has its lines under another name than ``<string>``.
        """
        known = self._is_user.get(filename)
        if known is None:
            known = not filename.startswith((*_library_prefixes(tuple(sys.path)), "<eval_with_key>"))
            if known and filename.startswith("<"):  # not a file: a cell, or code whose source is in linecache
                # Code run by exec or eval (``<string>``) has no source to show; the line that runs it is shown in its
                # place. Since Python 3.13 linecache has a text under this name, but it is that of ``python -c``.
                known = filename.startswith(("<ipython", "<stdin")) or (
                    filename in linecache.cache and filename != "<string>"
                )
            self._is_user[filename] = known
        return known

    def user_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the learner's innermost frame at or outside ``frame``, or ``None``."""
        while frame is not None:
            filename = frame.f_code.co_filename
            if (
                self._is_user[filename] if filename in self._is_user else self.is_user(filename)
            ) and frame.f_code.co_name != STAND_IN:
                return frame
            frame = frame.f_back
        return None

    def scope(self, frame: FrameType) -> tuple[str, ...]:
        """Return the names of at most 12 of the learner's functions around ``frame``, outermost first; of more, the
        innermost 12. Functions that run the whole program (``record(text)`` in a function) are none of it.
        """
        names: list[str] = []
        walk: FrameType | None = frame
        while walk is not None and len(names) < 12:
            code = walk.f_code
            if self.is_learners(code):
                names.append(code.co_qualname)
            elif code.co_name == "<module>" and code.co_filename in self._main:
                break  # what lies around it runs the program, and is none of its functions
            walk = walk.f_back
        return tuple(reversed(names))

    def is_learners(self, code: CodeType) -> bool:
        """Whether ``code`` is a function of the learner."""
        return self.is_user(code.co_filename) and code.co_name not in ("<module>", STAND_IN)

    def span(self, frame: FrameType) -> Span | None:
        """Return the expression that ``frame`` is executing, or the whole line where Python has no columns; ``None`` if
        its source is unknown.
        """
        key = (id(frame.f_code), frame.f_lasti)
        if key in self._spans:
            return self._spans[key]
        span = self._find(frame)
        self._spans[key] = span
        return span

    def _find(self, frame: FrameType) -> Span | None:
        code = frame.f_code
        known = self._positions.get(id(code))
        if known is None:
            known = self._positions[id(code)] = code, list(code.co_positions())
        positions = known[1]
        at = frame.f_lasti // 2
        line, end_line, start, end = positions[at] if at < len(positions) else (frame.f_lineno, None, None, None)
        if line is None or (found := self._located(code.co_filename, line)) is None:
            return None
        source, shift = found
        return self.make(source, line + shift, start, (end_line or line) + shift, end)

    def _located(self, filename: str, line: int) -> tuple[int, int] | None:
        """The number of the source that contains a line of a file, and how many lines further down it is there; None
        without a source.
        """
        if filename in self._main:
            return 0, self._shift
        shift = next((shift for first, last, shift in self._places.get(filename, ()) if first <= line <= last), None)
        if shift is not None:
            return 0, shift
        source = self._source(filename)
        return None if source is None else (source, 0)

    def make(self, source: int, line: int, start: int | None, end_line: int, end: int | None) -> Span | None:
        """Build a span in the source with index ``source``; ``None`` if a line does not exist. Lines count from 1.

        ``start`` and ``end`` are columns in UTF-8 bytes, as in Python's ``ast`` and code objects; None: from the first
        or to the last character of the line that is no space.
        """
        lines = self._text_lines(source)
        if not 1 <= line <= len(lines) or not 1 <= end_line <= len(lines):
            return None
        first, last = lines[line - 1], lines[end_line - 1]
        begin = _code_points(first, start) if start is not None else len(first) - len(first.lstrip())
        finish = _code_points(last, end) if end is not None else len(last.rstrip())
        return Span(line, begin, end_line, finish, (_utf16(first, begin), _utf16(last, finish)), source)

    def has_text(self, filename: str) -> bool:
        """Whether the source of this file is available."""
        return filename in self._index or bool(linecache.getlines(filename))

    def text_of(self, filename: str) -> str:
        """Return the source text of one of the learner's files; empty if it is not available."""
        source = self._source(filename)
        return "" if source is None else self._sources[source].text

    def line_span(self, filename: str, line: int) -> Span | None:
        """Return the span of a whole line of a file, without its indentation; None if the source of the file is
        unknown, or it has no such line.
        """
        found = self._located(filename, line)
        return None if found is None else self.make(found[0], line + found[1], None, line + found[1], None)

    def target(self, span: Span) -> str | None:
        """Return the name to which the expression at ``span`` is assigned (``"h"``, ``"self.w"``), or None."""
        names, _ = _assigned(self._sources[span.source].text)
        return names.get((span.line, span.column, span.end_line, span.end_column))

    def part_target(self, span: Span, number: int) -> str | None:
        """Return the name to which element ``number`` (from 0) of the tuple at ``span`` is assigned, or None.

        ``"slope"`` in ``(slope,) = grad(y, x)`` and in ``slope = grad(y, x)[0]``, ``"slopes[0]"`` in ``slopes = …``.
        """
        place = (span.line, span.column, span.end_line, span.end_column)
        parts = _parted(self._sources[span.source].text).get(place)
        if parts is not None:
            return parts.get(number)
        whole = self.target(span)
        return f"{whole}[{number}]" if whole else None

    def statement(self, span: Span) -> Span:
        """Return the whole assignment if ``span`` is only its target, a subscript or an attribute (Python reports
        ``x[0]`` as the position of ``x[0] = v``); else ``span`` itself.
        """
        _, statements = _assigned(self._sources[span.source].text)
        found = statements.get((span.line, span.column, span.end_line, span.end_column))
        if found is None:
            return span
        line, column, end_line, end_column = found
        lines = self._text_lines(span.source)
        utf16 = (_utf16(lines[line - 1], column), _utf16(lines[end_line - 1], end_column))
        return Span(line, column, end_line, end_column, utf16, span.source)

    def targets_on(self, span: Span, text: str) -> list[tuple[str, Span]]:
        """Return the names assigned on the line of ``span`` from expressions whose source contains ``text``, each with
        its expression's span.

        Only expressions on this one line count.
        """
        names, _ = _assigned(self._sources[span.source].text)
        return [
            (name, self._on_line(place, span.source))
            for place, name in names.items()
            if self._contains(place, span, text)
        ]

    def returned_on(self, span: Span, text: str) -> Span | None:
        """Return the span of the call whose result a ``return`` statement on the line of ``span`` returns, if its
        source contains ``text``; otherwise None.
        """
        places = (place for place in _returned(self._sources[span.source].text) if self._contains(place, span, text))
        return next((self._on_line(place, span.source) for place in places), None)

    def _contains(self, place: Place, span: Span, text: str) -> bool:
        line, start, end_line, end = place
        return line == span.line == end_line and text in self._text_lines(span.source)[line - 1][start:end]

    def _on_line(self, place: Place, source: int) -> Span:
        line, start, end_line, end = place
        first = self._text_lines(source)[line - 1]
        return Span(line, start, end_line, end, (_utf16(first, start), _utf16(first, end)), source)

    def _source(self, filename: str) -> int | None:
        if filename not in self._index:
            lines = linecache.getlines(filename)
            if not lines:
                return None
            self._index[filename] = len(self._sources)
            self._sources.append(Source(Path(filename).name, "".join(lines)))
        return self._index[filename]

    def _text_lines(self, source: int) -> list[str]:
        if source not in self._lines:
            # Not str.splitlines: Python's lines end only at \n (after universal newlines), not at form feeds or U+2028.
            self._lines[source] = self._sources[source].text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return self._lines[source]


def _code_points(line: str, byte_column: int) -> int:
    return (
        byte_column
        if line.isascii()
        else len(line.encode("utf-8", "surrogatepass")[:byte_column].decode("utf-8", "ignore"))
    )


def _utf16(line: str, column: int) -> int:
    return column if line.isascii() else len(line[:column].encode("utf-16-le", "surrogatepass")) // 2


def _place(node: ast.expr | ast.stmt, lines: list[str]) -> Place | None:
    end, end_column = node.end_lineno, node.end_col_offset
    if end is None or end_column is None or end > len(lines):
        return None
    return (
        node.lineno,
        _code_points(lines[node.lineno - 1], node.col_offset),
        end,
        _code_points(lines[end - 1], end_column),
    )


@lru_cache(maxsize=64)
def _assigned(text: str) -> tuple[dict[Place, str], dict[Place, Place]]:
    """The assignments of a program, by position.

    First: each assigned expression and the name to which it is assigned. Second: each subscript or attribute that is an
    assignment's target, and the position of the whole statement.
    """
    names: dict[Place, str] = {}
    statements: dict[Place, Place] = {}
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return names, statements
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for node in nodes:
        for target, value in _pairs(node):
            name, place = _dotted(target), _place(value, lines)
            if name and place:
                names.setdefault(place, name)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            whole = _place(node, lines)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                place = _place(target, lines)
                if isinstance(target, (ast.Subscript, ast.Attribute)) and place and whole:
                    statements[place] = whole
    return names, statements


@lru_cache(maxsize=64)
def _parted(text: str) -> dict[Place, dict[int, str]]:
    """The expressions of which a program assigns elements to names, by position, with the name of each such element."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: dict[Place, dict[int, str]] = {}
    for target, value in (pair for node in nodes for pair in _pairs(node)):
        if isinstance(target, _SEQUENCE):
            whole, parts = value, dict(enumerate(map(_dotted, target.elts)))
            if any(isinstance(part, ast.Starred) for part in target.elts):
                continue
        elif (
            isinstance(value, ast.Subscript)
            and isinstance(value.slice, ast.Constant)
            and isinstance(value.slice.value, int)
        ):
            whole, parts = value.value, {value.slice.value: _dotted(target)}
        else:
            continue
        if place := _place(whole, lines):
            found.setdefault(place, {}).update((number, name) for number, name in parts.items() if name)
    return found


@lru_cache(maxsize=64)
def _returned(text: str) -> tuple[Place, ...]:
    """The calls whose result a ``return`` statement of the program returns unchanged."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    places = (
        _place(node.value, lines) for node in nodes if isinstance(node, ast.Return) and isinstance(node.value, ast.Call)
    )
    return tuple(place for place in places if place)


_SEQUENCE = (ast.Tuple, ast.List)


def _pairs(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """The assignment targets of a statement, each with its value; ``a, b = x, y`` gives the whole tuples and the two
    pairs.

    A value that is a choice (``x if c else y``) gives a pair with the whole value and one for each alternative.
    """
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        pairs = [(node.target, node.value)]
    else:
        return []
    for target, value in list(pairs):
        if isinstance(target, _SEQUENCE) and isinstance(value, _SEQUENCE) and len(target.elts) == len(value.elts):
            pairs += zip(target.elts, value.elts, strict=True)
    return [(target, choice) for target, value in pairs for choice in _choices(value)]


def _choices(value: ast.expr) -> list[ast.expr]:
    """The expression and the operands that may become its value: ``f(x) if ready else x``, ``x or f(x)``, ``y :=
    f(x)``.
    """
    inside = {ast.IfExp: ("body", "orelse"), ast.NamedExpr: ("value",)}.get(type(value), ())
    parts = value.values if isinstance(value, ast.BoolOp) else [getattr(value, field) for field in inside]
    return [value, *(choice for part in parts for choice in _choices(part))]


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inside = _dotted(node.value)
        return f"{inside}.{node.attr}" if inside else None
    return None
