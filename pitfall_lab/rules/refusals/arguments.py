"""A call that torch refused, prepared for sentences: its arguments by name, position and type, and their source."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pitfall_lab.rules.kit.call_stack import call_in
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number, snippet
from pitfall_lab.trace import Event, Failure, Given, Language, Span, T

TENSORS = ("Tensor", "Parameter", "ndarray")
BUILTINS = {"print", "len", "float", "int", "str", "list", "tuple", "sum", "max", "min", "abs", "isinstance"}
"""Python's own functions; the refused call may be an argument of one of them."""


@dataclass(frozen=True)
class Refused:
    """One error of a program, prepared for sentences: ``failure`` is the error, ``step`` the step of the event that
    raised it (of the last event if none did), ``story`` has the look-ups of the trace.
    """

    story: Story
    failure: Failure
    step: int

    @cached_property
    def span(self) -> Span | None:
        """Return the span of the call that was refused; None if neither the error nor an event of its step has one."""
        return self.failure.span or (self.story.span(self.step) if self.failure.step is not None else None)

    @cached_property
    def call(self) -> ast.Call | None:
        """The call on the program's own line, as a syntax node; None if it is an operator, an index, or unknown.

        Of ``print(layer(x))`` it is the call of the layer, if that was refused. If only the statement is known, as for
        a comprehension, it is the only call in it that has the name of the refused function.
        """
        node = self.story.program.at(self.span) if self.story.program.tree is not None else None
        node = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr) else node
        if isinstance(node, ast.Call) and call_name(node) in BUILTINS:
            return self._within_builtin(node) or node
        if isinstance(node, ast.Call) or node is None or hasattr(node, "body"):
            return node if isinstance(node, ast.Call) else None
        name = self.failure.op.rsplit(".", 1)[-1]
        same = [n for n in ast.walk(node) if isinstance(n, ast.Call) and call_name(n) == name]
        return same[0] if len(same) == 1 else None

    def _within_builtin(self, node: ast.Call) -> ast.Call | None:
        """The call of the refused layer inside a call of a builtin such as ``print(layer(x).shape)``; None if the
        source does not show exactly one.
        """
        names, program = set(self.failure.op.split(".")), self.story.program
        inner = [
            n for n in ast.walk(node) if isinstance(n, ast.Call) and n is not node and call_name(n) not in BUILTINS
        ]
        made = [
            n for n in inner if any(isinstance(o, ast.Call) and call_name(o) in names for o in origins(program, n.func))
        ]
        return made[0] if len(made) == 1 else None

    @cached_property
    def given(self) -> tuple[Given, ...]:
        """The arguments of the refused call (:class:`Given`), without the ``self`` of an object that is no tensor: the
        program does not write it.
        """
        return tuple(self._as_written(g) for g in self.failure.given if g.name != "self" or g.kind in TENSORS)

    def _as_written(self, given: Given) -> Given:
        """The argument ``given``; for a tensor that the line does not write, with the source of the expression that
        passed it: a call that returned it, or a keyword argument.

        For a keyword argument, label, shape and dtype become those of that expression's tensor. Unchanged if no such
        expression is found.
        """
        program = self.story.program
        node = program.at(self.span) if program.tree is not None else None
        if node is None or given.text or given.kind not in TENSORS:
            return given
        if (call := self._returned_by(node, given)) is not None:
            return replace(given, text=" ".join(program.segment(call).split()))
        if not given.name:
            return given
        keywords = [k for call in ast.walk(node) if isinstance(call, ast.Call) for k in call.keywords]
        value = next((k.value for k in keywords if k.arg and f"_{k.arg}".endswith(f"_{given.name}")), None)
        if value is None:
            return given
        text, inside = program.segment(value), [e for e in self.story.within(value) if e.step < self.step and e.results]
        labels = [label for label in self.story.tensors if self.story.name(label, self.step) == text]
        label = inside[-1].results[0] if inside else labels[-1] if labels else None
        record = self.story.tensor(label, self.step) or {}
        if record.get("shape") is None:
            return replace(given, text=text, label=None)
        return replace(given, text=text, label=label, shape=tuple(record["shape"]), dtype=str(record.get("dtype")))

    def _returned_by(self, node: ast.AST, given: Given) -> ast.Call | None:
        """The call inside the refused expression that returned the tensor: ``model(x)``, for a tensor that a line of
        ``forward`` made; None if there is none.
        """
        event = (
            self.story.event((self.story.tensor(given.label, self.step) or {}).get("born"))
            if given.label is not None
            else None
        )
        here = self.story.event(self.step)
        if event is None or here is None or self.failure.step is None or not self._is_returned(event, given):
            return None
        call = call_in(self.story, here.scope, event)
        return call if call is not None and call is not node and node in self.story.program.ancestors(call) else None

    def _is_returned(self, event: Event, given: Given) -> bool:
        """Whether the function that made a tensor returns it: directly, or by its name."""
        program = self.story.program
        statement, name = program.statement_at(event.span), self.story.name(given.label, self.step)
        function = program.function(statement) if statement is not None else None
        if isinstance(statement, ast.Return) and statement.value is not None and event.span is not None:
            return program.at(event.span) is statement.value
        returned = (
            [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
            if function
            else []
        )
        return name is not None and any(program.segment(each) == name for each in returned)

    @cached_property
    def tensors(self) -> tuple[Given, ...]:
        """The arguments that are tensors or arrays."""
        return tuple(g for g in self.given if g.kind in TENSORS)

    @property
    def message(self) -> str:
        """The error message."""
        return self.failure.message

    def argument(self, names: tuple[str, ...]) -> Given | None:
        """Return the first argument that a selector in ``names`` finds, tried in order: a parameter's name, ``#2`` for
        the second tensor, ``@2`` for the second argument (both counted from 1).

        None if there is none. An argument whose value is None is found only by ``@``, or if it is an element of another
        argument.
        """
        for name in names:
            if name[:1] in ("#", "@"):
                among = self.tensors if name[0] == "#" else self.given
                if int(name[1:]) <= len(among):
                    return among[int(name[1:]) - 1]
            found = next((g for g in self.given if g.name == name and (g.kind != "NoneType" or g.part_of)), None)
            if found is not None:
                return found
        return None

    @cached_property
    def written(self) -> str:
        """The source of the refused expression, on one line of at most 400 characters; empty if unknown."""
        return snippet(self.story, self.span, 400)

    @property
    def code(self) -> str:
        """The source of the refused expression; of a statement with a body, its condition or its iterable."""
        node = self.story.program.at(self.span) if self.story.program.tree is not None else None
        node = getattr(node, "test", None) or getattr(node, "iter", None) or node
        return " ".join(self.story.program.segment(node).split()) if isinstance(node, ast.expr) else self.written

    @property
    def called(self) -> str:
        """The refused function as a program writes it: ``F.linear``, ``torch.gather``, ``view``; ``torch`` if
        unknown.
        """
        op = self.failure.op.removesuffix(".__get__").removesuffix(".__set__")
        short = op.replace("torch.nn.functional.", "F.").replace("torch._C._nn.", "F.").replace("torch._C.", "torch.")
        return short.removeprefix("torch.Tensor.") or "torch"

    def words(self, language: Language) -> dict[str, Any]:
        """Return the values for the placeholders of a sentence in ``language``, by name: ``Line`` and ``line`` (the
        line in words), ``call`` (the function), and each argument under its parameter's name.

        The first three tensors are also there as ``first``, ``second`` and ``third``.
        """
        line = at_line(self.story, self.span)
        words: dict[str, Any] = {g.name: self.word(g, language) for g in reversed(self.given) if g.name.isidentifier()}
        for place, given in enumerate(self.tensors[:3], start=1):
            words[("first", "second", "third")[place - 1]] = self.word(given, language)
        return {**words, "Line": capital(line.say(language)), "line": line.say(language), "call": f"`{self.called}`"}

    def word(self, given: Given, language: Language) -> Word:
        """One argument as part of a sentence."""
        return Word(given, self.name(given).say(language), language)

    def name(self, given: Given) -> T:
        """Return the words for the argument ``given`` in a sentence: its source on the line, else the expression that
        made it, else its parameter's name.

        An argument that is no tensor and not written on the line is named by its value, if that is known.
        """
        if given.text:
            return _code(given.text)
        if given.label is not None and (call := self.inside(given)) is not None:
            code = " ".join(self.story.program.segment(call).split())
            return T(en=f"a result inside `{code}`", zh=f"`{code}` 内部的一个结果")
        if given.label is not None:
            return expression(self.story, given.label, self.step)
        if given.value and given.kind not in TENSORS:
            return _code(given.value)
        return (
            T(en=f"the argument `{given.name}`", zh=f"参数 `{given.name}`")
            if given.name
            else T(en="the argument", zh="这个参数")
        )

    def inside(self, given: Given) -> ast.Call | None:
        """Return the call of a model during which an earlier layer made the nameless tensor ``given``, which a later
        layer refused; None if there is none.

        If no call was recorded for the error, also a call on the refused line that made the tensor, unless it is an
        argument of another call.
        """
        record = self.story.tensor(given.label, self.step) or {}
        program = self.story.program
        node, made = program.at(self.span), program.at(self.story.span(record.get("born")))
        if not isinstance(made, ast.Call) or node is None or self.story.name(given.label, self.step) is not None:
            return None
        if made is self.call or made is node:
            return made
        parent = program.parents.get(made)
        is_argument = isinstance(parent, ast.Call) and made in parent.args and call_name(parent) not in BUILTINS
        return made if self.failure.step is None and node in program.ancestors(made) and not is_argument else None


class Word:
    """The argument ``given`` in a format string: ``{x}`` is its name, ``{x.shape}`` 2×3, ``{x.size[-1]}`` 3,
    ``{x.type}`` float32.

    ``name`` is the text for ``{x}``, ``language`` the language of the sentence.
    """

    def __init__(self, given: Given, name: str, language: Language) -> None:
        self._name, self._given = name, given
        if given.shape is not None:
            self.shape, self.size = shape_text(given.shape, language), _Sizes(given.shape)
        self.type, self.value, self.param = given.dtype, given.value, given.name
        self.ndim, self.device, self.kind = len(given.shape or ()), given.device, given.kind
        self.low, self.high = (number(n) for n in (given.low, given.high))
        self.numel = _count(given.shape or ())

    def __str__(self) -> str:
        return self._name


class _Sizes:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def __getitem__(self, at: int | str) -> int:
        return self._shape[int(at)]


def shape_text(shape: tuple[int, ...] | None, language: Language = "en") -> str:
    """Return a shape in words: ``2×3``, ``(3,)``, ``() (one number)``; ``?`` for None."""
    if shape is None:
        return "?"
    return (
        "×".join(map(str, shape))
        if len(shape) > 1
        else f"({shape[0]},)"
        if shape
        else {"en": "() (one number)", "zh": "()（单个数）"}[language]
    )


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def _code(text: str) -> T:
    shown = text if len(text) <= 48 else text[:47] + "…"
    return T(en=f"`{shown}`", zh=f"`{shown}`")


def first_sentence(message: str) -> str:
    """Return the first non-empty line of the error message ``message``, without additions for torch's developers,
    shortened to 240 characters; empty if there is no such line.
    """
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    text = lines[0] if lines else ""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(
        r"\s*\(?(Could this error message be improved|Exception raised from|Triggered internally|TorchDynamo).*",
        "",
        text,
    )
    return text if len(text) <= 240 else text[:239] + "…"
