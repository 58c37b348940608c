"""Parts of sentences that several rules use: names, lines and numbers in a form that beginners understand."""

from __future__ import annotations

import ast
import math
from typing import Any

from pitfall_lab.rules.kit.finding import Finding, Role
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Span, T
from pitfall_lab.trace.part_names import written
from pitfall_lab.trace.text import place

_DIGITS = 18
"""With this many significant digits two different floats always have different texts."""
_ROUNDING = 1e-6
"""Two numbers whose relative difference is at most this differ only by rounding."""


def called(story: Story, tensor: str | None, storage: str | None, step: int | None, saved_at: int | None = None) -> T:
    """Return a tensor as words in a sentence: its name, else that of a tensor on the same storage, else the expression
    that made it, else its shape.

    ``tensor`` and ``storage`` are labels; names are those after ``step``. The expression is known only if the call at
    ``saved_at`` returned the tensor; names of tensors that cover only a part of their storage come after it.
    """
    storage = storage or (story.tensor(tensor) or {}).get("storage")
    name = story.name(tensor, step) if is_whole(story, tensor, storage) else None
    name = name or next(
        (
            n
            for label, _ in story.tensors_on(storage)
            if is_whole(story, label, storage) and (n := story.name(label, step))
        ),
        None,
    )
    name = name or (story.used_name(tensor) if tensor and is_whole(story, tensor, storage) else None)
    if name:
        return _code(name)
    maker = story.line_event(saved_at)
    if (
        maker is not None
        and any((story.tensor(label) or {}).get("storage") == storage for label in maker.results)
        and (code := snippet(story, maker.span))
    ):
        return T(en=f"the result of `{code}`", zh=f"`{code}` 的结果")
    if name := story.name(tensor, step) or story.storage_name(storage, step):
        return _code(name)
    shape = story.shape(tensor, step)
    if shape is not None:
        text = "×".join(str(n) for n in shape) or "0-d"
        return T(en=f"a tensor of shape {text}", zh=f"一个形状为 {text} 的张量")
    return T(en="a tensor", zh="一个张量")


def expression(story: Story, tensor: str | None, step: int) -> T:
    """Return a tensor as words: by its own name, else by the expression that made it, else as :func:`called` does.

    The names of other tensors on its storage come last, as these may have another shape.
    """
    record = story.tensor(tensor, step) or {}
    text = story.name(tensor, step) or story.used_name(tensor) or snippet(story, story.span(record.get("born")))
    return _code(text) if text else called(story, tensor, None, step)


def _code(name: str) -> T:
    """A name as the learner would write it: ``net[0].weight`` for the parameter that torch calls ``net.0.weight``."""
    text = written(name)
    return T(en=f"`{text}`", zh=f"`{text}`")


def is_whole(story: Story, label: str | None, storage: str | None) -> bool:
    """Whether the tensor ``label`` has as many elements as the storage ``storage``; True if the storage or its size is
    unknown.
    """
    record, memory = story.tensor(label) or {}, story.record("storages", storage) or {}
    count = 1
    for length in record.get("shape") or ():
        count *= length
    return storage is None or memory.get("size") in (None, count)


def gradient_of(name: T) -> T:
    """Return ``w.grad`` in backticks if ``name`` is a name in backticks, else "the gradient of" and the description
    ``name``, in both languages.
    """
    if name.en.startswith("`") and name.en.endswith("`"):
        return T(en=f"`{name.en[1:-1]}.grad`", zh=f"`{name.zh[1:-1]}.grad`")
    return T(en=f"the gradient of {name.en}", zh=f"{name.zh} 的梯度")


def statement_text(story: Story, span: Span | None, limit: int = 48) -> str:
    """Return the source at ``span``, or the whole statement if the span marks only an index or attribute: ``h[0] = 1``
    and not ``h[0]``.

    On one line, shortened to ``limit`` characters; empty if the source is unknown.
    """
    node = story.program.at(span) if story.program.tree is not None else None
    statement = story.program.statement(node)
    if statement is None or not isinstance(node, (ast.Subscript, ast.Attribute)):
        return snippet(story, span, limit)
    text = " ".join(story.program.segment(statement).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def at_line(story: Story, span: Span | None) -> T:
    """Return a position in words, in both languages: ``line 6``, in a notebook ``line 6 of cell 2``, with the name of
    the file if it is not the program's own; ``a line that could not be located`` if ``span`` is None.
    """
    if span is None:
        return T(en="a line that could not be located", zh="某一行（无法定位）")
    cell, line = story.place(span.line) if span.source == 0 else (None, span.line)
    if cell is not None:
        return T(en=f"line {line} of cell {cell}", zh=f"第 {cell} 个代码单元格第 {line} 行")
    return place(story.trace, span.line, span.source)


def line_of(story: Story, finding: Finding, role: Role) -> T:
    """Return the line of the finding's first related line with the role ``role``, in words: ``line 6``; as
    :func:`at_line` does for None if there is none.
    """
    related = finding.line(role)
    return at_line(story, related.span if related else None)


def snippet(story: Story, span: Span | None, limit: int = 48) -> str:
    """The source at ``span`` on one line, shortened to ``limit`` characters; empty if it is unknown."""
    if span is None or span.source >= len(story.trace.sources):
        return ""
    lines = story.trace.sources[span.source].text.split("\n")[span.line - 1 : span.end_line]
    if not lines:
        return ""
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column :]
    text = " ".join(" ".join(lines).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def capital(text: str) -> str:
    """The text with a capital first letter (``str.capitalize`` would lower the rest)."""
    return text[:1].upper() + text[1:]


def numbers(cells: Any, only: list[int] | None = None, limit: int = 4, digits: int = 4) -> str:
    """Return the first ``limit`` known values in ``cells`` as a short list, ``[7.31, 1.19, 9.53]``, each with
    ``digits`` significant digits; with ``only``, the values at these indices.

    >>> numbers([0.123456, 2.0, "nan"])
    '[0.1235, 2, nan]'

    A ``…`` follows where there are more, with ``only``, or where ``cells`` is a selection (a dict).
    """
    pairs = flat(cells)
    if only is not None:
        pairs = [pair for pair in pairs if pair[0] in only]
    shown = ", ".join(number(value, digits) for _, value in pairs[:limit])
    complete = len(pairs) <= limit and only is None and not isinstance(cells, dict)
    return f"[{shown}]" if complete else f"[{shown}, …]"


def number(value: Any, digits: int = 4) -> str:
    """Return one value as text: an int or float with ``digits`` significant digits, anything else by ``str``."""
    return f"{value:.{digits}g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def apart(one: Any, other: Any, *, percent: bool = False) -> tuple[str, str] | None:
    """Two numbers, or two shares as percentages, as texts with as many digits as it takes to see that they differ.

    >>> apart(4.66662, 4.66671)
    ('4.6666', '4.6667')

    None if they differ by no more than rounding, or if their texts do not differ.
    """
    known = all(isinstance(value, (int, float)) for value in (one, other))
    if known and math.isclose(one, other, rel_tol=_ROUNDING):
        return None
    ways = ([f"{value:.{digits}%}" for value in (one, other)] for digits in range(_DIGITS))
    if not percent or not known:
        ways = ([number(one, digits), number(other, digits)] for digits in range(4, _DIGITS))
    return next(((a, b) for a, b in ways if a != b), None)


def numbers_apart(one: Any, other: Any, only: list[int] | None = None) -> tuple[str, str]:
    """Return two sets of values as texts, each as :func:`numbers` shows it, with as many digits as it takes to see that
    they differ; if no number of digits shows it, their texts with 4 digits.

    ``only`` are the indices to show; None for the first ones.
    """
    ways = [tuple(numbers(cells, only, digits=digits) for cells in (one, other)) for digits in range(4, _DIGITS)]
    return next(((a, b) for a, b in ways if a != b), (ways[0][0], ways[0][1]))


def flat(cells: Any) -> list[tuple[int, Any]]:
    """Return the known values in ``cells`` as ``(index, value)`` pairs, from any form in which a trace stores values:
    nested lists, a single value or a selection (a dict).

    The index counts the elements in row-major order. Empty for None.
    """
    if cells is None:
        return []
    if isinstance(cells, dict):
        return [(int(index), value) for index, value in cells.get("shown", [])]
    if not isinstance(cells, (list, tuple)):
        return [(0, cells)]
    values: list[Any] = []
    pending = list(reversed(cells))
    while pending:
        item = pending.pop()
        if isinstance(item, (list, tuple)):
            pending.extend(reversed(item))
        else:
            values.append(item)
    return list(enumerate(values))


def differ(one: dict[int, Any], other: dict[int, Any]) -> list[int]:
    """Return the indices, known in both gradients (values by index), at which they differ by more than rounding,
    relative to the largest value in either.
    """
    shared = [index for index in one if index in other]
    sizes = [
        abs(v) for cells in (one, other) for v in cells.values() if isinstance(v, (int, float)) and math.isfinite(v)
    ]
    scale = max(sizes, default=0.0)
    return [i for i in shared if not _near(one[i], other[i], 1e-4 * scale + 1e-7)]


def _near(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= tolerance
    return bool(a == b)


def difference(one: Any, other: Any) -> list[int]:
    """Return the indices, known in both sets of values, at which they differ by more than 1e-5 of the larger of the two
    absolute values or, if both are below 1, by more than 1e-5.

    NaN equals NaN.
    """
    theirs = dict(flat(other))
    return [index for index, value in flat(one) if index in theirs and not _close(value, theirs[index])]


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-5 * max(1.0, abs(a), abs(b)) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)
