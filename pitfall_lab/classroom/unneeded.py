"""What a cell uses that no exercise needs: Python's own inside, libraries' private names, modules beside torch and
NumPy. :func:`unneeded` returns such words.

Code that deceives the observer of a cell needs such words; code that only answers the exercise does not. A cell shares
its process with the observer, so there is no proof that it did not deceive it; but its text is read here, where it
never runs, and the table shows where to look. No point is taken away for it.

Tokens are read: no text is too deeply nested or too long for that. They are read as Python reads them: without the
syntax of a notebook, and in plain letters, whatever letters the names have (a wide ``ｅｖａｌ`` is ``eval``). Which
variable a name is, is seen in the program's tree (:mod:`pitfall_lab.classroom.scopes`). What is not read is named as
such.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.util
import io
import itertools
import keyword
import re
import sys
import tokenize
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType

from pitfall_lab.classroom import kernel, vocabulary
from pitfall_lab.classroom.scopes import Scopes

MOST = 5
"""The largest number of words that are listed."""
LONGEST = 20_000
"""Characters of a cell that are read, kept and shown; one that has more is named for that."""
LONGEST_CALL = 200
"""Words behind a name that are read; of a call or the head of a class that is longer, this is named."""
_WORDS = """
modules: torch numpy math cmath random itertools functools operator collections copy typing dataclasses contextlib statistics string io
modules: time warnings decimal fractions abc enum matplotlib __future__ re pprint textwrap tqdm
inner: torch.nn torch.optim torch.autograd torch.linalg torch.fft torch.special torch.func torch.amp torch.cuda torch.random torch.utils
inner: torch.utils.data torch.utils.checkpoint torch.distributions torch.testing torch.backends torch.sparse torch.nested torch.profiler
inner: torch.version torch.distributed numpy.random numpy.linalg numpy.fft numpy.testing numpy.ma numpy.polynomial numpy.typing
inner: matplotlib.pyplot tqdm.auto tqdm.notebook
whole: torch.nn torch.optim torch.autograd torch.utils.data torch.distributions torch.backends torch.cuda torch.amp
calls: eval exec compile setattr delattr vars globals locals breakpoint open memoryview __import__ get_ipython attrgetter methodcaller
calls: get_type_hints get_field allow_pickle weights_only load_library memmap tofile fromfile
calls: update_wrapper Formatter format_map singledispatch singledispatchmethod make_dataclass new_class ForwardRef ABCMeta
calls: wrapper_getattr wrapper_setattr wrapattr evaluate_forward_ref EnumMeta EnumType metaclass ParameterDict load_state_dict lazy_property arg_constraints FileIO open_code _stream
calls: runtime_checkable register_parametrization attrname set_reduce_ex_hook set_getstate_hook decorate_methods global_enum bar_format OpenWrapper
attributes: sys os gc builtins inspect ctypes threading importlib linecache traceback subprocess overrides as_subclass ctypeslib
attributes: stride_tricks torch np types pickle timeit multiprocessing weakref atexit mmap marshal unittest runpy runstring rundocs measure
attributes: TorchDispatchMode TorchFunctionMode datapipes cffi
own: __init__ __call__ __len__ __getitem__ __setitem__ __iter__ __next__ __enter__ __exit__ __repr__ __str__ __name__ __main__ __doc__
own: __post_init__ __slots__ __version__ __add__ __sub__ __mul__ __matmul__ __truediv__ __neg__ __bool__ __float__ __int__ _version _base _
"""  # noqa: E501


def _of(kind: str) -> frozenset[str]:
    lines = (line.split() for line in _WORDS.strip().splitlines())
    return frozenset(word for first, *words in lines if first == f"{kind}:" for word in words)


_MODULES, _INNER, _WHOLE, _CALLS, _ATTRIBUTES, _OWN = map(
    _of, ("modules", "inner", "whole", "calls", "attributes", "own")
)
"""Modules of which an answer may import something, those inside them that it may use, and those of which it may use all
that is inside; calls and attributes that are named; names with a low line that a program may have.
"""
_IN_TEXT = re.compile(
    rf"__\w+|\\x[0-9a-fA-F]{{2}}|\bimport\s+(?!(?:{'|'.join(sorted(_MODULES))})\b)\w+|\b(?:eval|exec|getattr|setat"
    r"tr|vars|globals)\s*\("
)
"""Code in a text, or a text whose letters are hidden."""
_LIBRARIES = {"torch": "torch", "np": "numpy", "numpy": "numpy", "nn": "torch.nn", "F": "torch.nn.functional"}
"""What a cell calls the libraries without importing them."""
_NEVER_THEIRS = sys.stdlib_module_names | {"torch", "np", "ctypeslib", "stride_tricks", "datapipes", "_stream"}
"""Words that are named although a program has a function or an attribute of that name."""
_ASSIGNING = frozenset({"=", "+=", "-=", "*=", "@=", "/=", "//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>="})
_SETTING = _ASSIGNING | {":"}
_PARTS = frozenset(part for name in (*_MODULES, *_INNER) for part in name.split("."))
_HANDED_ON = frozenset({"torch", "np", "numpy"})
"""Modules that are named where a program passes them on: under another name what is used of them would not be seen."""
_OF_SHELL = ("run_line_magic", "run_cell_magic", "system", "getoutput")
_SHELL = "|".join(("get_ipython", *_OF_SHELL))
"""What IPython writes in the place of its own syntax; in a cell itself these are words like others."""
UNREAD = "…"
"""Named where not all of a cell could be read."""

Token = tuple[int, str]


def unneeded(source: str, known: Iterable[str] = ()) -> tuple[str, ...]:
    r"""The words of the cell ``source`` that no exercise needs, as the cell writes them, at most :data:`MOST`.

    What the ``known`` answers use is needed.

    >>> unneeded("import torch._C as c, sys\nx = torch.ones(2)"), unneeded("def f(x):\n    return torch.exp(x)  # sys")
    (('torch._C', 'sys'), ())
    """
    needed = {word for text in known for word in _words_of(text)}
    text = source[:LONGEST]
    if len(source) <= LONGEST and kernel.needed(source):
        text = kernel.as_python(source)
        needed |= {"get_ipython", *_OF_SHELL} - {*re.findall(_SHELL, source)}
    found = dict.fromkeys(word for word in _words_of(text) if word not in needed)
    if len(source) > LONGEST:
        found[UNREAD] = None
    return tuple(word if len(word) <= 40 else f"{word[:40]}…" for word in list(found)[:MOST])


def _tokens(source: str) -> Iterator[Token]:
    plain = source if source.isascii() else _NOT_ASCII.sub(_in_plain_letters, source)
    try:
        for token in tokenize.generate_tokens(io.StringIO(plain).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                yield token.type, token.string
    except (tokenize.TokenError, SyntaxError):
        yield tokenize.ERRORTOKEN, UNREAD


_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def _in_plain_letters(found: re.Match[str]) -> str:
    """The character or characters that Python reads for a non-ASCII letter in a name; other characters stay."""
    plain = unicodedata.normalize("NFKC", found[0])
    return plain if f"_{plain}".isidentifier() else found[0]


@dataclass(frozen=True)
class _WordsAround:
    """The program around some tokens: its ``scopes``, the names of its own (``made``), and its names for
    ``libraries``.
    """

    scopes: Scopes
    made: frozenset[str] = frozenset()
    libraries: Mapping[str, str] = field(default_factory=dict)


def _words_of(text: str) -> Iterator[str]:
    return _words(list(_tokens(text)), _WordsAround(Scopes(text)))


def _words(tokens: list[Token], around: _WordsAround) -> Iterator[str]:
    """The words that no exercise needs among these tokens, in their order."""
    return _CellReading(tokens, around).words()


class _CellReading:
    """Reads the tokens of a cell, and finds the words that no exercise needs (:meth:`words`)."""

    def __init__(self, tokens: list[Token], around: _WordsAround) -> None:
        self.tokens, self.scopes = tokens, around.scopes
        self.theirs = _theirs(tokens, self.scopes)
        self.made = _without_modules(_made(tokens), tokens, self.scopes) | around.made
        self.set_here = _without_modules(_made(tokens, in_texts=False), tokens, self.scopes)
        self.classes, self.roots, self.targets = _Classes(tokens), _roots(tokens), _targets(tokens)
        self.aliases = _aliases(tokens)
        self.libraries = _libraries(tokens, self.aliases, around.libraries)

    def words(self) -> Iterator[str]:
        before, end = (tokenize.NEWLINE, ""), 0
        for n, (kind, text) in enumerate(self.tokens):
            if kind == tokenize.NAME and n >= end:
                if text in ("import", "from") and _begins(before):
                    end = n + sum(1 for _ in _until(itertools.islice(self.tokens, n, None), ";"))
                    yield from _imported(self.tokens[n:end], self.libraries)
                else:
                    yield from self._of_name(n, text, before)
            elif kind == tokenize.STRING:
                yield from self._of_text(n, text, before)
            elif kind == _FORMATTED_PART:
                yield from _in_text(text)
            elif kind == tokenize.ERRORTOKEN and text == UNREAD:
                yield text
            before = kind, text

    def _of_name(self, n: int, text: str, before: Token) -> Iterator[str]:
        behind = self.tokens[n + 1 : n + LONGEST_CALL]
        if before[1] in (".", "def"):
            own = set() if self.tokens[self.roots[n]][1] in self.libraries else self.made
            if _is_named(self.tokens, n, self.theirs, own):
                yield text
            yield from _loading(text, behind)
        elif text in self.libraries:
            yield from self._of_library(n, text, before)
        else:
            yield from _named(text, behind, self.scopes, is_target=n in self.targets)
            yield from self.classes.reported(self.tokens[n : n + LONGEST_CALL], self.libraries)
            yield from _read_by_text(text, behind, self.set_here, self.libraries, self.scopes)
            if text == "case" and _begins(before):
                yield from _matched(itertools.islice(self.tokens, n + 1, None))
        if text in _READ_TO_THE_END and _is_cut(text, behind):
            yield UNREAD

    def _of_library(self, n: int, text: str, before: Token) -> Iterator[str]:
        module, (alias, whole) = self.libraries[text], self.aliases.get(n, ("", ""))
        behind = self.tokens[n + 1 : n + LONGEST_CALL]
        if behind[:1] == [(tokenize.OP, ".")]:
            behind = [*_chained(itertools.islice(self.tokens, n + 1, None))]
        is_alias = bool(alias) and alias not in self.scopes.in_classes
        yield from _used(text, module, behind, is_target=n in self.targets, is_alias=is_alias)
        is_value = before[1] not in ("as", "import") and [word for _, word in behind[:1]] not in (["."], ["="], [":="])
        if is_value and module != "type" and _is_handed_on(text, module, self.scopes, is_alias=is_alias):
            yield text
        if alias:
            _call(alias, module + whole.removeprefix(text), self.libraries)

    def _of_text(self, n: int, text: str, before: Token) -> Iterator[str]:
        for code in _codes(text) if _is_formatted(text) else ():
            inside = _WordsAround(self.scopes, frozenset(self.made), self.libraries)
            yield from (word for word in _words([*_tokens(f"({code})")], inside) if word not in self.theirs)
        yield from _in_text(text)
        yield from _joined(before, text, itertools.islice(self.tokens, n + 1, None))


_FORMATTED_PART = getattr(tokenize, "FSTRING_MIDDLE", -1)
"""From Python 3.12 on a formatted text is several tokens, with its code among them."""


def _begins(before: Token) -> bool:
    """Whether a statement may begin after this token."""
    return before[0] == tokenize.NEWLINE or before[1] in (";", ":")


def _is_cut(name: str, behind: list[Token]) -> bool:
    """Whether the brackets after a name, or the head of a class, are longer than the tokens ``behind``, which are cut.

    False if ``behind`` has fewer tokens than are read of a call.
    """
    if len(behind) < LONGEST_CALL - 1:
        return False
    if name == "class":
        return len([*_head(behind)]) == len(behind)
    return behind[0][1] == "(" and not _call_length([(0, name), *behind])


def _roots(tokens: list[Token]) -> list[int]:
    """For each token the index of the name that begins its chain: the index of ``torch`` for ``data`` in
    ``torch.nn.data``.

    A token in no chain has its own index.
    """
    found: list[int] = []
    for n in range(len(tokens)):
        is_inside = n > 1 and tokens[n - 1][1] == "." and tokens[n - 2][0] == tokenize.NAME
        found.append(found[n - 2] if is_inside else n)
    return found


def _libraries(tokens: list[Token], aliases: dict[int, tuple[str, str]], around: Mapping[str, str]) -> dict[str, str]:
    """The names by which a cell calls libraries, modules in them and ``type``, each with its full name.

    Names that are bound anywhere in the cell count, since a function may run after what stands below it.
    """
    found = {**{name: whole for name, whole in aliases.values() if whole == "type"}, **_LIBRARIES, **around}
    first, at_end = {**found}, {**found}
    for n, (before, (_, word)) in enumerate(itertools.pairwise([(tokenize.NEWLINE, ""), *tokens])):
        if word in ("import", "from") and _begins(before):
            for _ in _imported([*_until(itertools.islice(tokens, n, None), ";")], at_end):
                pass
    for _ in range(3):
        for n, (name, whole) in aliases.items():
            if tokens[n][1] in at_end:
                _call(name, at_end[tokens[n][1]] + whole.removeprefix(tokens[n][1]), at_end)
    return {**{name: whole for name, whole in at_end.items() if _called(whole)}, **first}


def _without_modules(made: set[str], tokens: list[Token], scopes: Scopes) -> set[str]:
    """The names in ``made``, without those of modules that only variables of the cell have.

    An attribute of such a name may be a module. All of ``made`` if the source is no Python.
    """
    if not scopes.is_python:
        return made
    unsure = {name for name in made if _is_modules(name)} - scopes.attributes
    if not unsure:
        return made
    texts = " ".join(text for kind, text in tokens if kind == tokenize.STRING)
    return made - unsure.difference(_NAME.findall(texts))


def _is_modules(name: str) -> bool:
    """Whether ``name`` may be that of a module that no answer needs: one of Python's, or one held by another module."""
    return name not in _MODULES and (name in sys.stdlib_module_names or name in _held())


@cache
def _held() -> frozenset[str]:
    """Names under which modules for answers have others, such as ``bltns`` for ``builtins``."""
    modules = [sys.modules[name] for name in (*_MODULES, *_INNER, "torch.nn.functional") if name in sys.modules]
    held = ((name, value) for module in modules for name, value in [*vars(module).items()])
    return frozenset(n for n, value in held if issubclass(type(value), ModuleType) and not _is_allowed(value.__name__))


def _theirs(tokens: list[Token], scopes: Scopes) -> set[str]:
    """The names that a cell itself gives to functions, classes and attributes of ``self``.

    Left out are names with two leading underscores, and private names that torch's own objects have.
    """
    found = {b[1] for a, b in itertools.pairwise(tokens) if a[1] in ("def", "class")}
    if not scopes.sets("self"):
        found |= {c[1] for a, c in zip(tokens, tokens[2:], strict=False) if a[1] == "self"}
    theirs = {name for name in found if not name.startswith("__")} - _NEVER_THEIRS
    return theirs - vocabulary.private() if any(name[:1] == "_" for name in theirs) else theirs


def _made(tokens: list[Token], *, in_texts: bool = True) -> set[str]:
    """The names of the cell's own: of variables, parameters and fields, and of attributes that it sets.

    With ``in_texts``, also every name in a string, as ``namedtuple`` takes them.
    """
    found: set[str] = set()
    for before, (kind, text) in itertools.pairwise([(0, ""), *tokens]):
        if kind == tokenize.NAME and before[1] != ".":
            found.add(text)
        elif kind == tokenize.STRING and in_texts:
            found.update(_NAME.findall(text))
    triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return found | {name for (_, dot), (_, name), (_, sign) in triples if dot == "." and sign in _SETTING}


_NAME = re.compile(r"[^\W\d]\w*")


def _is_known(name: str, made: set[str]) -> bool:
    """Whether the attribute ``name`` is one that an answer may need, or one of the cell's own (``made``)."""
    known = name in _OWN or name in vocabulary.words() or name in _MODULES or name in _PARTS
    return known or (name in made and not vocabulary.is_left_out(name) and name not in vocabulary.inside())


def _is_named(tokens: list[Token], n: int, theirs: set[str], made: set[str]) -> bool:
    """Whether the attribute (or the defined function) at index ``n`` is to be reported: no exercise needs it.

    ``theirs`` and ``made`` are names of the cell's own, which are not reported.
    """
    text, reads = tokens[n][1], tokens[n - 1][1] == "."
    if _is_inside(text) and text not in theirs:
        return True
    return reads and (_is_reaching(text, tokens[n - 2], tokens[n + 1 : n + LONGEST_CALL]) or not _is_known(text, made))


def _read_by_text(
    text: str, behind: list[Token], made: set[str], libraries: dict[str, str], scopes: Scopes
) -> Iterator[str]:
    """Yield ``getattr`` if it reads an attribute under a literal name that no answer needs and the cell has not made.

    ``made`` are the names of the cell's own; they do not count for attributes of a library.
    """
    if text != "getattr" or not (name := _plain_name(behind)) or _is_of_a_kind(behind, scopes):
        return
    own = set() if [word for _, word in behind[1:2] if word in libraries] else made
    if not _is_known(name, own):
        yield text


def _call(name: str, whole: str, libraries: dict[str, str]) -> None:
    """Note in ``libraries`` that the cell calls the module or class ``whole`` by ``name``, if ``name`` is not there
    yet.

    Names that are neither a loaded module's nor begin with a capital letter are not noted.
    """
    if name not in libraries and (_called(whole) or whole in _MODULES or whole.rpartition(".")[2][:1].isupper()):
        libraries[name] = whole


def _named(text: str, behind: list[Token], scopes: Scopes, *, is_target: bool = False) -> Iterator[str]:
    """Yield what is reported wherever it is used: a call such as ``exec``, or a name such as ``__code__``.

    An ``import`` comes here only if it does not begin a statement. Reported, too, are classes derived from Tensor,
    Parameter or type, or with ``**`` in their head.
    """
    if (
        text in _CALLS
        or text == "import"
        or (is_target and text == "type")
        or (_is_inside(text) and text.startswith("__"))
        or _is_worked_out(text, behind, scopes)
        or _is_torchs_field(text, behind)
        # it imports what a text names
        or (text == "help" and not {word for _, word in behind[1:2]} & {*_LIBRARIES, ")"})
    ):
        yield text
    elif text == "class":
        words = {word for _, word in _head(behind)}
        for word, what in ({"Tensor", "Parameter"}, "Tensor"), ({"type"}, "type"), ({"**"}, "**"):
            if words & word:
                yield f"class … ({what})"
                return


_READ_TO_THE_END = frozenset(
    {"class", "getattr", "type", "help", "load", "wraps", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
)
"""Words of which what stands in the brackets behind them decides."""


def _head(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens up to the colon that ends the head of a statement; colons in brackets and lambdas do not
    end it.
    """
    depth = lambdas = 0
    for kind, word in tokens:
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        lambdas += depth == 0 and word == "lambda"
        if kind == tokenize.NEWLINE or (word == ":" and depth == 0 and not lambdas):
            return
        lambdas -= depth == 0 and word == ":"
        yield kind, word


def _is_torchs_field(name: str, behind: list[Token]) -> bool:
    """Whether a field with a private name that torch's own objects use is declared here: ``_name: …``."""
    return name[:1] == "_" and behind[:1] == [(tokenize.OP, ":")] and name in vocabulary.private() - _OWN


def _matched(behind: Iterable[Token]) -> Iterator[str]:
    """Yield the attributes that a pattern of ``match`` reads and no exercise needs, such as ``hub`` in ``case
    f(hub=x)``.
    """
    for (kind, word), (_, sign) in itertools.pairwise(_head(behind)):
        if kind == tokenize.NAME and sign == "=" and (_is_inside(word) or not _is_known(word, set())):
            yield word


def _chained(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the dots and names at the beginning of ``tokens``, and the first token after them."""
    is_dot = True
    for token in tokens:
        yield token
        if token[1] != "." if is_dot else token[0] != tokenize.NAME:
            return
        is_dot = not is_dot


def _chain(tokens: list[Token]) -> list[str]:
    """The dots and names that follow a name: those of ``.nn.Linear`` in ``torch.nn.Linear(2)``."""
    pairs = itertools.takewhile(
        lambda pair: pair[0][1] == "." and pair[1][0] == tokenize.NAME, zip(tokens[::2], tokens[1::2], strict=False)
    )
    return [word for pair in pairs for _, word in pair]


def _statements(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Yield the indices at which each simple statement begins and ends (exclusive).

    The head of a compound statement is a statement of its own, and what follows it in its line is another.
    """
    begin, inside = 0, 0
    for n, (kind, word) in enumerate(tokens):
        inside += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        is_head = word == ":" and inside == 0 and tokens[begin][1] in _HEADS
        if kind == tokenize.NEWLINE or word == ";" or is_head:
            yield begin, n
            begin, inside = n + 1, 0
    yield begin, len(tokens)


_HEADS = frozenset(
    {"async", "class", "def", "elif", "else", "except", "finally", "for", "if", "try", "while", "with", "case", "match"}
)
"""Words with which a statement begins that has others in it."""


def _targets(tokens: list[Token]) -> set[int]:
    """The indices of names to whose attributes a statement assigns, in whatever form.

    ``torch.exp = f``, ``x = torch.exp = f``, ``(torch.exp, x) = f, 1``, ``for torch.exp in [f]``, ``with f as
    torch.exp``, ``del torch.exp``, ``type(x).exp = f``. Assigning a number, True, False or None is a setting and does
    not count.
    """
    found: set[int] = set()
    for begin, end in _statements(tokens):
        assigned = _last_assigning(tokens, begin, end)
        brackets, calls, taken = [], 0, ""
        for n in range(begin, end):
            word = tokens[n][1]
            if word in ("(", "[", "{"):
                brackets.append(n > begin and _is_value(tokens[n - 1]))
                calls += brackets[-1]
            elif word in (")", "]", "}"):
                calls -= brackets.pop() if brackets else 0
            elif word in ("for", "as", "del", "in") or (word == ":" and not brackets):
                taken = word
            first = n + _call_length(tokens[n : min(end, n + LONGEST_CALL)]) if word == "type" else n
            if (
                first + 1 < end
                and tokens[first + 1][1] == "."
                and (not calls or taken == "for")  # the loop in a call's brackets assigns, too
                and (n == begin or tokens[n - 1][1] != ".")
            ):
                at = first + 1 + len(_chain([*_chained(itertools.islice(tokens, first + 1, end))]))
                behind = tokens[at][1] if at < end else ""
                ends = behind in (",", ")", "]", "in", ":", "") or behind in _ASSIGNING
                if ends and ((n < assigned and taken != ":") or taken in ("for", "as", "del")):
                    found.add(n)
    return found


def _call_length(tokens: list[Token]) -> int:
    """The number of tokens of the brackets after the first token, both brackets included; 0 if there are none or no
    end.
    """
    depth = 0
    for n, (_, word) in enumerate(tokens[1:], 1):
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if depth == 0:
            return n if n > 1 else 0
    return 0


def _last_assigning(tokens: list[Token], begin: int, end: int) -> int:
    """The index of the last assignment sign of a statement outside of brackets; 0 if there is none.

    A sign that assigns only a number, True, False or None does not count.
    """
    found, inside = 0, 0
    for n in range(begin, end):
        word = tokens[n][1]
        inside += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if inside == 0 and word in _ASSIGNING and not (n + 2 == end and _is_setting(tokens[n + 1])):
            found = n
    return found


def _is_handed_on(name: str, module: str, scopes: Scopes, *, is_alias: bool) -> bool:
    """Whether a library's ``module``, which a cell calls ``name``, is to be reported where it is used as a value.

    What is used of a module that was passed on would not be seen. Giving it another name (``is_alias``) is followed, so
    it is allowed, except for ``torch``, ``np`` and other modules that an answer may import.
    """
    if module in _ALSO_VARIABLES:
        return not is_alias and scopes.passes_on(name)
    return name in _HANDED_ON or module in _MODULES or (bool(_called(module)) and not is_alias)


_ALSO_VARIABLES = frozenset({"torch.nn.functional", "torch.optim"})
"""Modules whose short names, ``F`` and ``optim``, are many a variable's."""


def _is_setting(token: Token) -> bool:
    """Whether what is assigned is a number, True, False or None."""
    return token[0] == tokenize.NUMBER or token[1] in ("True", "False", "None")


def _is_value(token: Token) -> bool:
    """Whether a bracket after this token calls it or indexes it."""
    kind, word = token
    return word in (")", "]", "}") or kind == tokenize.STRING or (kind == tokenize.NAME and not keyword.iskeyword(word))


def _aliases(tokens: list[Token]) -> dict[int, tuple[str, str]]:
    """Other names that a program gives to chains of names, as in ``d = torch.utils.data``.

    The key is the index of the chain's first token; the value is the new name and the whole chain as text. For ``d =
    type(x)`` the chain is ``"type"``.
    """
    found = {}
    for begin, end in _statements(tokens):
        first = next((n for n in range(begin, end) if tokens[n][1] not in (":", "else", "try")), end)
        words = [word for _, word in tokens[first:end]]
        if len(words) > 2 and words[0].isidentifier() and words[1] == "=" and words[2].isidentifier():
            chain = _chain(tokens[first + 3 : end])
            if len(chain) == len(words) - 3:
                found[first + 2] = (words[0], "".join(words[2:]))
            elif words[2] == "type" and _call_length(tokens[first + 2 : end]) == len(words) - 3:
                found[first + 2] = (words[0], "type")
        elif words.count("=") == 1 and "," in words[1 : words.index("=")]:
            at = words.index("=")
            names, values = words[:at:2], _split_up(words[at + 1 :])
            if len(names) == len(values) and all(map(str.isidentifier, names)) and {*words[1:at:2]} == {","}:
                for name, (place, value) in zip(names, values, strict=True):
                    if value[0].isidentifier() and not value[1::2].count("(") and {*value[1::2]} <= {"."}:
                        found[first + at + 1 + place] = (name, "".join(value))
    return found


def _split_up(words: list[str]) -> list[tuple[int, list[str]]]:
    """The parts of ``words`` between commas outside of brackets, each with the index at which it begins.

    Empty if one part is empty.
    """
    found, depth = [(0, list[str]())], 0
    for n, word in enumerate(words, 1):
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if word == "," and depth == 0:
            found.append((n, []))
        else:
            found[-1][1].append(word)
    return found if all(each for _, each in found) else []


def _used(name: str, module: str, behind: list[Token], *, is_target: bool, is_alias: bool) -> Iterator[str]:
    """Yield what is reported where a library's ``name`` is used with the tokens ``behind`` it.

    That is a module in it that no exercise needs, an assignment to one of its attributes, or a module in it that is
    passed on as a value. ``type`` is reported for an assignment and for more than one argument.
    """
    if module == "type":
        if is_target or _arguments(behind) > 1:
            yield name
        return
    if is_target:
        yield name + "".join(_chain(behind))
    chain = _chain(behind)[1::2]
    for word in chain:
        module = f"{module}.{word}"
        if _is_unneeded_module(module):
            yield module
            return
    if chain and _called(module) and not is_alias:
        yield module


DEEPEST = 20
"""No library has modules nested deeper than this; a long chain of names would be looked for in the file system."""


@lru_cache(1000)
def _is_unneeded_module(name: str) -> bool:
    """Whether ``name`` is a module inside a library that no answer may use; nothing is imported to find out.

    Modules that are not loaded are searched for as files; False for a name without a dot.
    """
    first, *inner = name.split(".")
    if not inner:
        return False
    if (real := _called(name)) and not _is_allowed(real):
        return True
    is_whole = name not in _INNER and any(name.startswith(f"{whole}.") for whole in _WHOLE)
    if name in sys.modules if is_whole else _is_allowed(name):
        return False
    if first in sys.stdlib_module_names:
        return inner[0] in sys.stdlib_module_names and inner[0] not in _MODULES
    if len(inner) > DEEPEST:
        return False
    # A module that torch has not loaded by itself is for none of its users, and what is in it is not known.
    spec = importlib.util.find_spec(first)
    places = [Path(folder, *inner) for folder in (spec.submodule_search_locations if spec else None) or ()]
    with contextlib.suppress(OSError):  # a name that is too long for a file is no module's
        return any(place.is_dir() or place.with_suffix(".py").is_file() for place in places)
    return False


def _is_allowed(name: str) -> bool:
    """Whether an answer may use the module with this name."""
    return name in _MODULES or name in _INNER or any(name.startswith(f"{whole}.") for whole in _WHOLE)


def _called(name: str) -> str:
    """The own name of the module that another, loaded module has as the attribute ``name``: ``enum.bltns`` is
    ``builtins``.

    "" if there is no such attribute, or it is no module.
    """
    owner, _, last = name.rpartition(".")
    found = vars(sys.modules[owner]).get(last) if owner in sys.modules else None
    return found.__name__ if isinstance(found, ModuleType) else ""


def _is_reaching(name: str, owner: Token, behind: list[Token]) -> bool:
    """Whether reading the attribute ``name`` of ``owner`` may reach internals of Python by a name that is given as
    text.

    Such are ``"{0.__class__}".format(x)``, calls such as ``exec``, and calls that make a class.
    """
    if name == "format":
        return owner[0] != tokenize.STRING or reaches_inside(owner[1]) or reaches_inside(_meant(owner[1]))
    return (name in _CALLS and name not in ("eval", "compile")) or (
        name in _MAKING - {"type"} and _arguments(behind) > 1
    )


def reaches_inside(text: str) -> bool:
    """Whether a field in a format string reads an attribute or key that begins with an underscore; ``{_x}`` reads none.

    Each character is read once, since a text may be all braces; doubled braces are taken for fields.

    >>> reaches_inside("{0.__class__}"), reaches_inside("{0[_x]}"), reaches_inside("{0} ._x"), reaches_inside("{{ ._x")
    (True, True, False, True)
    """
    is_field = False
    for found in _IN_FIELD.finditer(text):
        if found[0] in "{}":
            is_field = found[0] == "{"
        elif is_field:
            return True
    return False


_IN_FIELD = re.compile(r"[{}]|[.\[]\s*_")


def _is_worked_out(name: str, behind: list[Token], scopes: Scopes) -> bool:
    """Whether the call of ``name`` reads or sets attributes under computed names, which the source does not show."""
    if name == "getattr":
        return not (_plain_name(behind) or _is_of_a_kind(behind, scopes))
    if name == "type" and (behind[:1] != [(tokenize.OP, "(")] or _is_called_again(behind) or _is_of_class(behind)):
        return True
    return name in _MAKING and _arguments(behind) > 1


_MAKING = frozenset({"type", "wraps", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"})
"""What makes a class, or attributes, under names that a program has worked out."""


def _is_of_class(tokens: list[Token]) -> bool:
    """Whether the brackets hold a class, judged by its name; the type of a class can make classes."""
    words = [word for _, word in tokens[1 : _call_length([(0, "type"), *tokens])]][:-1]
    last = words[-1] if words and all(word.isidentifier() or word == "." for word in words) else ""
    is_librarys = len(words) > 1 and words[0] in _MODULES | {*_LIBRARIES}
    # X and W1 are tensors, Box is a class
    is_class = last[:1].isupper() and (is_librarys or last[1:2].islower())
    return is_class or last in _CLASSES or words[:2] == ["type", "("]


class _Classes:
    """The classes that a cell defines, and which of them may be derived from ``dict``.

    NumPy takes an object that is a dict and of another class, too, for a description of memory. Names are bound in more
    ways than a reader of tokens can follow, so a class with several bases is reported unless each base is seen to be no
    dict: a library's, Python's own, or a class of the cell's.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._bound = _bound(tokens)
        self._known: set[str] = set()

    def reported(self, tokens: list[Token], libraries: dict[str, str]) -> Iterator[str]:
        """Yield ``"class … (dict)"`` if the statement defines a class with several bases of which one may be a dict.

        ``tokens`` are those of the statement, ``libraries`` the names under which the cell has imported modules.
        Whether the class itself is known to be no dict is remembered for later statements.
        """
        if tokens[0][1] != "class" or len(tokens) < 2:
            return
        behind = [*_head(tokens[2:])]
        if behind[:1] == [(tokenize.OP, "[")]:  # parameters of types
            behind = behind[_call_length([*tokens[1:]]) :]
        bases = [base for base in _bases(behind) if len(base) < 2 or base[1] != "="]
        known = all(self._is_known(base, libraries) for base in bases)
        (self._known.add if known else self._known.discard)(tokens[1][1])
        if not known and (len(bases) > 1 or bases[0][0] == "*"):
            yield "class … (dict)"

    def _is_known(self, base: list[str], libraries: dict[str, str]) -> bool:
        """Whether the words of a base are a class that is known to be no dict.

        Square brackets are read over only after ``Generic`` and ``Protocol``.
        """
        at = base.index("[") if "[" in base else len(base)
        words = base[:at] if base[at - 1 : at] in (["Generic"], ["Protocol"]) else base
        whole = "".join(words)
        if not whole.replace(".", "").isidentifier() or words[0] in self._bound:
            return False
        if words[0] in libraries:
            return not _is_dict("".join([libraries[words[0]], *words[1:]]))
        return whole in self._known or (whole in vars(builtins) and not _is_dict(f"builtins.{whole}"))


def _bases(tokens: list[Token]) -> list[list[str]]:
    """The words of each argument in the brackets at the beginning of ``tokens``; empty if there are no brackets."""
    found: list[list[str]] = []
    depth = 0
    for _, word in tokens if tokens[:1] and tokens[0][1] == "(" else ():
        closes = word in (")", "]", "}")
        depth += (word in ("(", "[", "{")) - closes
        if depth == 0:
            break
        if (depth == 1 and word == ",") or not found:
            found.append([])
        if not (depth == 1 and word in ("(", ",")):
            found[-1].append(word)
    return [words for words in found if words]


def _is_dict(name: str) -> bool:
    """Whether the loaded object with this full name is ``dict`` or derived from it.

    If it is not found, its last name decides: whether a dict may be called so.

    >>> _is_dict("collections.OrderedDict"), _is_dict("typing.Dict"), _is_dict("enum.Enum")
    (True, True, False)
    """
    first, *path = name.split(".")
    found: object = sys.modules.get(first)
    for word in path:
        found = vars(found).get(word, None) if isinstance(found, ModuleType | type) else None
    meant = getattr(found, "__origin__", found)
    if found is None or meant is None:  # a module that this process has not loaded
        return name.rpartition(".")[2] in _DICTS
    return isinstance(meant, type) and issubclass(meant, dict)


def _bound(tokens: list[Token]) -> set[str]:
    """The names that a cell binds as variables, parameters, functions or decorated classes.

    Plain classes and imports do not count.
    """
    found: set[str] = set()
    decorated = False
    for begin, end in _statements(tokens):
        words = [word for _, word in tokens[begin:end]]
        if words[:1] == ["class"] and decorated:
            found.update(words[1:2])
        decorated = words[:1] == ["@"] and not _DECORATORS & {*words}
        until = _last_assigning(tokens, begin, end) - begin
        taken, heads = words[:1] == ["case"], "def" in words[:2]
        for n, word in enumerate(words if words[:1] not in (["import"], ["from"]) else ()):
            before, after = words[n - 1] if n else "", tokens[begin + n + 1][1] if begin + n + 1 < len(tokens) else ""
            taken = word in ("for", "as", "lambda") or (taken and word not in ("in", ":"))
            binds = n < until or taken or after == ":=" or (heads and before in ("def", "(", ",", "*", "**"))
            if binds and word.isidentifier() and before != "." and (after not in (".", "(", "[") or before == "def"):
                found.add(word)
    return found


_DECORATORS = frozenset({"dataclass", "total_ordering", "unique", "final", "runtime_checkable"})
"""What leaves a class that class."""
_DICTS = frozenset({"dict", "OrderedDict", "defaultdict", "Counter", "Dict", "DefaultDict"})
"""What a dict may be called in a module that is not loaded."""
_CLASSES = frozenset(
    {"bool", "bytes", "complex", "dict", "float", "int", "list", "object", "set", "str", "tuple", "type"}
)


def _is_called_again(tokens: list[Token]) -> bool:
    """Whether what a call returns is called with several arguments: ``type(int)("Box", (), names)`` makes a class."""
    depth = 0
    for n, (_, word) in enumerate(tokens):
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if depth == 0:
            return _arguments(tokens[n + 1 :]) > 1
    return False


def _loading(name: str, behind: list[Token]) -> Iterator[str]:
    """Yield ``"load … (**)"`` where ``load`` is used without a call, or is called with ``**``.

    ``torch.load`` may be needed, but one of the keywords may be ``weights_only``.
    """
    inside = behind[: _call_length([(0, ""), *behind])]
    stars = any(word == "**" and before in ("(", ",") for (_, before), (_, word) in itertools.pairwise(inside))
    if name == "load" and (not inside or stars):
        yield "load … (**)"


def _arguments(tokens: list[Token]) -> int:
    """The number of arguments of the call at the beginning of ``tokens``; 1 if there are none, or no call.

    A starred argument counts as two, and a call that does not end here as one more.
    """
    depth, found, before = 0, 1, ""
    for _, word in tokens if tokens[:1] and tokens[0][1] == "(" else ():
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        found += depth == 1 and (word == "," or (word in ("*", "**") and before in ("(", ",")))
        before = word
        if depth == 0:
            return found
    return found + (depth > 0)


def _is_formatted(text: str) -> bool:
    return "f" in text.partition(text[-1])[0].lower()


def _codes(text: str) -> list[str]:
    """The expressions in the fields of an f-string, and in the fields of their format specifications.

    >>> _codes('f"{a[1:2]!r:{b}} {{c}} {d != 1:>3}"')
    ['a[1:2]', 'b', 'd != 1']
    """
    sign = text[-1]
    n = text.index(sign) + (3 if text.endswith(sign * 3) and text.count(sign) > 5 else 1)
    found: list[str] = []
    fields = 0
    while n < len(text):
        if text[n] == "{" and (fields or text[n + 1 : n + 2] != "{"):
            end = _end_of_code(text, n + 1)
            found.append(text[n + 1 : end])
            fields += text[end : end + 1] != "}"  # its format begins, and may have fields
            n = end
        elif text[n] == "}" and fields:
            fields -= 1
        elif text[n] == "{":
            n += 1
        n += 1
    return found


def _end_of_code(text: str, n: int) -> int:
    """The index at which the expression of an f-string's field that begins at ``n`` ends.

    That is the index of the closing brace, or of the ``:`` or ``!`` before its format.
    """
    depth, quote = 0, ""
    while n < len(text):
        sign, step = text[n], 1
        if quote:
            if text.startswith(quote, n):
                quote, step = "", len(quote)
        elif sign in "'\"":
            quote = sign * 3 if text.startswith(sign * 3, n) else sign
            step = len(quote)
        elif not depth and (sign in "}:" or (sign == "!" and text[n + 1 : n + 2] != "=")):
            break
        else:
            depth += (sign in "([{") - (sign in ")]}" and depth > 0)
        n += step
    return n


def _in_text(text: str) -> Iterator[str]:
    """Yield, in quotation marks, the first piece of code or hidden text in a string that no exercise needs; at most
    one.
    """
    if hidden := [word for word in _IN_TEXT.findall(f"{text} {_meant(text)}") if word not in _OWN]:
        yield f"'{hidden[0]}'"


def _meant(text: str) -> str:
    """The value of a string literal that has escapes, with the fields of an f-string as they are written.

    "" if the literal has no backslash, is bytes, or is no valid literal.
    """
    if "\\" not in text:
        return ""
    letters, sign, rest = text.partition(text[-1])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ast.literal_eval(f"{letters.lower().replace('f', '')}{sign}{rest}")
    except (SyntaxError, ValueError):
        return ""
    return found if isinstance(found, str) else ""


def _joined(before: Token, text: str, behind: Iterable[Token]) -> Iterator[str]:
    """Yield an internal name of Python that only joining several strings gives: ``"_" "_code_" + "_"``; at most one."""
    if before[0] == tokenize.STRING or before[1] == "+":
        return
    parts = [text]
    for kind, word in behind:
        if kind == tokenize.STRING:
            parts.append(word)
        elif word != "+":
            break
    whole = "".join(_meant(part) or part.lstrip("rbfuRBFU").strip("'\"") for part in parts)
    if len(parts) > 1 and (found := [word for word in _IN_TEXT.findall(whole) if word not in _OWN]):
        yield f"'{found[0]}'"


def _is_inside(name: str) -> bool:
    return name in _ATTRIBUTES or (name.startswith("_") and name not in _OWN)


def _imported(tokens: list[Token], libraries: dict[str, str]) -> Iterator[str]:
    """Yield the modules and names that an import statement takes and no exercise needs; ``from a import b`` is ``a.b``.

    The names that it gives to modules and classes of libraries are added to ``libraries``.
    """
    line = [word for kind, word in _until(tokens, ";") if kind in (tokenize.NAME, tokenize.OP)]
    start, _, names = (" ".join(line[1:]).partition(" import ")) if line[0] == "from" else ("", "", " ".join(line[1:]))
    start = start.replace(" ", "")
    for name in names.replace("(", "").replace(")", "").split(","):
        what, _, other = (part.replace(" ", "") for part in name.partition(" as "))
        whole = ".".join(filter(None, (start, what)))
        parts = whole.split(".")
        if (
            parts[-1] == "*"
            and (whole.count(".") > 1 or parts[0] in _HANDED_ON)
            and ".".join(parts[:-1]) not in ("torch.nn", "torch.nn.functional")
        ):
            yield whole
        elif parts[-1] == "*":
            held = _starred(whole[:-2])
            libraries.update((name, f"{whole[:-2]}.{name}") for name in held)
            if any(map(_is_unneeded_module, (f"{whole[:-2]}.{name}" for name in held))):
                yield whole
        inside = any(_is_inside(part) or part in _CALLS for part in parts[1:])
        inside = inside or not all(
            part == "*" or _is_known(part, set()) or _is_allowed(".".join(parts[: n + 1]))
            for n, part in enumerate(parts[1:], 1)
        )
        modules = itertools.accumulate(parts, "{}.{}".format)
        if parts[0] not in _MODULES or inside or any(map(_is_unneeded_module, modules)):
            yield whole
        elif other or start:
            libraries[other or what] = whole
        else:
            libraries[parts[0]] = parts[0]


def _starred(module: str) -> list[str]:
    """The names of the modules that ``from module import *`` takes from a loaded module; empty if it is not loaded."""
    inside = vars(sys.modules[module]) if module in sys.modules else {}
    names = inside.get("__all__") or [name for name in inside if name[:1] != "_"]
    return [name for name in names if isinstance(inside.get(name), ModuleType)]


def _until(tokens: Iterable[Token], end: str) -> Iterator[Token]:
    for kind, word in tokens:
        if kind == tokenize.NEWLINE or word == end:
            return
        yield kind, word


def _plain_name(tokens: list[Token]) -> str:
    """The second argument of ``getattr`` if it is a literal with an ordinary attribute name, else "".

    ``tokens`` begin with the bracket of the call. Keywords and internal names of Python are not ordinary.
    """
    first = _bases(tokens)[:1]
    n = 1 + len(first[0]) if first else 0
    if not n or "*" in first[0][:1] or len(tokens) < n + 3 or tokens[n][1] != "," or tokens[n + 2][1] not in (",", ")"):
        return ""
    kind, text = tokens[n + 1]
    name = text[1:-1]
    is_name = kind == tokenize.STRING and name.isidentifier() and not keyword.iskeyword(name)
    return name if is_name and not _is_inside(name) else ""


def _is_of_a_kind(tokens: list[Token], scopes: Scopes) -> bool:
    """Whether ``getattr`` asks ``self`` for a computed name that begins with four letters or digits, of which the first
    is a letter.

    ``getattr(self, "layer_" + kind)``, ``getattr(self, f"layer_{n}")``. No internal name of Python begins so, and an
    object of the cell's own class has no module under such a name.
    """
    if [word for _, word in tokens[:3]] != ["(", "self", ","] or len(tokens) < 6 or not scopes.is_self():
        return False
    (kind, text), (_, then), behind = tokens[3], tokens[4], tokens[5:]
    if kind == tokenize.STRING:
        letters, _, rest = text.partition(text[-1])
        is_formatted = "f" in letters.lower()
        begins = rest if letters.lower() in ("", "f") else ""
    else:  # from Python 3.12 on, a formatted text is several tokens
        is_formatted, begins = text in ("f'", 'f"'), then
    depth = 1
    for _, word in behind if then == "+" and not is_formatted else ():
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if depth < 1 or (depth == 1 and keyword.iskeyword(word)):
            return depth < 1 and _KIND.match(begins) is not None
    return is_formatted and (kind != tokenize.STRING or then in (",", ")")) and _KIND.match(begins) is not None


_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{3}")
"""Four letters, before any low line: those of Python's frames and codes have fewer (``gi_code``)."""
