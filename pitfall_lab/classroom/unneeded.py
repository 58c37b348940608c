"""What a cell uses that no exercise needs: Python's own inside, libraries' private names, modules beside torch and NumPy.

Who would lie to the code that observes a cell needs such words, and who only answers the exercise does not. A cell shares its process
with the observer, so there is no proof that it did not lie; but its text is read here, where it never runs, and the teacher is told where
to look. No point is taken away for it.

Only tokens are read: no text is too deeply nested or too long for that, and one that is no Python is read as far as it is.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator

MOST = 5
"""So many words are named."""
LONGEST = 100_000
"""Characters of a cell that are read; one that has more is named for that."""
LONGEST_TEXT = 5000
"""Characters of a formatted text whose code is read."""
LONGEST_IMPORT = 400
"""Words of an import that are read."""
_WORDS = """
modules: torch numpy math cmath random itertools functools operator collections copy typing dataclasses contextlib statistics string io
modules: time warnings decimal fractions abc enum matplotlib __future__ re pprint textwrap tqdm
calls: eval exec compile setattr delattr vars globals locals breakpoint open memoryview __import__ get_ipython attrgetter methodcaller
calls: get_type_hints get_field allow_pickle weights_only load_library memmap tofile fromfile
calls: update_wrapper Formatter format_map
attributes: sys os gc builtins inspect ctypes threading importlib linecache traceback subprocess overrides as_subclass ctypeslib
attributes: stride_tricks
own: __init__ __call__ __len__ __getitem__ __setitem__ __iter__ __next__ __enter__ __exit__ __repr__ __str__ __name__ __main__ __doc__
own: __add__ __sub__ __mul__ __matmul__ __truediv__ __neg__ __bool__ __float__ __int__ _version _base _
"""


def _of(kind: str) -> frozenset[str]:
    lines = (line.split() for line in _WORDS.strip().splitlines())
    return frozenset(word for first, *words in lines if first == f"{kind}:" for word in words)


_MODULES, _CALLS, _ATTRIBUTES, _OWN = map(_of, ("modules", "calls", "attributes", "own"))
"""Modules of which an answer may import something; calls and attributes that are named; names with a low line that a program may have."""
_IN_TEXT = re.compile(r"__\w+|\\x[0-9a-fA-F]{2}|\bimport\s+\w+|\b(?:eval|exec|getattr|setattr|vars|globals)\s*\(")
"""Code in a text, or a text whose letters are hidden."""
_LIBRARIES = frozenset({"torch", "np", "numpy", "nn", "F"})

Token = tuple[int, str]


def unneeded(source: str, known: Iterable[str] = ()) -> tuple[str, ...]:
    r"""The words of a cell that no exercise needs, as they are there, at most :data:`MOST`. What the ``known`` answers use is needed.

    >>> unneeded("import torch._C as c, sys\nx = torch.ones(2)"), unneeded("def f(x):\n    return torch.exp(x)  # sys")
    (('torch._C', 'sys'), ())
    """
    needed = {word for text in known for word in _words(list(_tokens(text)))}
    found = dict.fromkeys(word for word in _words(list(_tokens(source[:LONGEST]))) if word not in needed)
    if len(source) > LONGEST:
        found["…"] = None
    return tuple(word if len(word) <= 40 else f"{word[:40]}…" for word in list(found)[:MOST])


def _tokens(source: str) -> Iterator[Token]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                yield token.type, token.string
    except (tokenize.TokenError, SyntaxError):
        return


def _words(tokens: list[Token]) -> Iterator[str]:
    before, end = (tokenize.NEWLINE, ""), 0
    theirs = {b[1] for a, b in itertools.pairwise(tokens) if a[1] in ("def", "class") and not b[1].startswith("__")}
    theirs |= {c[1] for a, c in zip(tokens, tokens[2:], strict=False) if a[1] == "self" and not c[1].startswith("__")}
    for n, (kind, text) in enumerate(tokens):
        behind = tokens[n + 1 : n + 100]
        if kind == tokenize.NAME and n >= end:
            begins = before[0] == tokenize.NEWLINE or before[1] in (";", ":")
            if begins and text in ("import", "from"):
                end = n + sum(1 for _ in _until(tokens[n : n + LONGEST_IMPORT], ";"))
                yield from _imported(tokens[n:end])
            elif before[1] in (".", "def"):
                if (_is_inside(text) and text not in theirs) or (before[1] == "." and _is_reaching(text, tokens[n - 2], behind)):
                    yield text
            elif text in _CALLS or (_is_inside(text) and text.startswith("__")) or _is_worked_out(text, behind):
                yield text
            elif text == "class" and {"Tensor", "Parameter"} & {word for _, word in _until(tokens[n : n + 40], ":")}:
                yield "class … (Tensor)"
            elif text in _LIBRARIES and begins and behind[:1] and behind[0][1] == "." and _is_assigned(tokens[n : n + 40]):
                yield "".join(word for _, word in _until(tokens[n:], "="))
        elif kind == tokenize.STRING:
            yield from _in_text(text, theirs)
        before = kind, text


def _is_reaching(name: str, owner: Token, behind: list[Token]) -> bool:
    """Whether reading this attribute of ``owner`` can reach a name given as text, as ``"{0.__class__}".format(x)`` does."""
    if name == "format":
        return owner[0] != tokenize.STRING or re.search(r"\{[^}]*[.\[]\s*_", owner[1]) is not None
    return (name in _CALLS and name not in ("eval", "compile")) or (name == "wraps" and _arguments(behind) > 1)


def _is_worked_out(name: str, behind: list[Token]) -> bool:
    """Whether a call reads or sets attributes under names that are computed, and so not visible in the text."""
    if name == "getattr":
        return not _is_plain(behind)
    return name in ("type", "wraps") and _arguments(behind) > 1


def _arguments(tokens: list[Token]) -> int:
    """How many arguments a call has, as far as these tokens go."""
    depth, found = 0, 1
    for _, word in tokens if tokens[:1] and tokens[0][1] == "(" else ():
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        found += word == "," and depth == 1
        if depth == 0:
            break
    return found


def _in_text(text: str, theirs: Iterable[str]) -> Iterator[str]:
    """The words of the code in a formatted text, and what in a text looks like code."""
    if "f" in text.partition(text[-1])[0].lower() and len(text) <= LONGEST_TEXT:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            codes = [ast.unparse(node.value) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FormattedValue)]
            yield from (word for code in codes for word in _words(list(_tokens(code))) if word not in theirs)
    if hidden := [word for word in _IN_TEXT.findall(text) if word not in _OWN]:
        yield f"'{hidden[0]}'"


def _is_inside(name: str) -> bool:
    return name in _ATTRIBUTES or (name.startswith("_") and name not in _OWN)


def _imported(tokens: list[Token]) -> Iterator[str]:
    """The modules and names that an import statement takes from elsewhere than torch, NumPy and the like.

    ``from a import b`` is ``a.b``.
    """
    line = [word for kind, word in _until(tokens, ";") if kind in (tokenize.NAME, tokenize.OP)]
    start, _, names = (" ".join(line[1:]).partition(" import ")) if line[0] == "from" else ("", "", " ".join(line[1:]))
    start = start.replace(" ", "")
    for name in names.replace("(", "").replace(")", "").split(","):
        whole = ".".join(filter(None, (start, name.partition(" as ")[0].replace(" ", ""))))
        parts = whole.split(".")
        if parts[0] not in _MODULES or any(_is_inside(part) or part in _CALLS for part in parts if part != "__future__"):
            yield whole


def _until(tokens: list[Token], end: str) -> Iterator[Token]:
    for kind, word in tokens:
        if kind == tokenize.NEWLINE or word == end:
            return
        yield kind, word


def _is_assigned(tokens: list[Token]) -> bool:
    """Whether a name of a library's is given another value, not a setting: ``torch.exp = …``."""
    rest = list(_until(tokens, "="))
    kind, value = tokens[len(rest) + 1] if len(rest) + 1 < len(tokens) else (0, "")
    is_setting = kind == tokenize.NUMBER or value in ("True", "False", "None")
    return (
        not is_setting
        and len(rest) < len(tokens)
        and tokens[len(rest)][1] == "="
        and all(word == "." or word.isidentifier() for _, word in rest)
    )


def _is_plain(tokens: list[Token]) -> bool:
    """Whether ``getattr`` gets a name that is written out and is an ordinary one."""
    tokens = tokens[:8]
    commas = [n for n, (_, word) in enumerate(tokens) if word == ","]
    if not commas or commas[0] + 1 >= len(tokens):
        return False
    kind, text = tokens[commas[0] + 1]
    ends = [word for _, word in tokens[commas[0] + 2 :]][:1] in ([","], [")"])
    return (
        ends and kind == tokenize.STRING and text[1:-1].isidentifier() and not keyword.iskeyword(text[1:-1]) and not _is_inside(text[1:-1])
    )
