"""Random programs as real Python source text: what a learner might write, and what nobody should.

Hypothesis draws *steps*, each a handful of small integers; :func:`render` turns them into statements. It runs every
statement on torch as it goes, and so knows the shape and type of every name without a model of its own, and which
statements raise: those are wrapped in ``try``, so that the program goes on. Because a step chooses among the names
that exist by counting back from the newest, a program from which Hypothesis has deleted a step is still a program:
that is what makes it shrink well.

There are two vocabularies. ``core`` is what people write: every construct below, with ordinary and with wrong
arguments, and the samples of the operations in :data:`CORE`. ``all`` adds the samples of every other entry of the
registry. The engines must agree on core programs without exception; what is left to do in the rest is counted.
"""

# ruff: noqa: SIM905 - programs and tables in one row each

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.ops.operands import MORE, OPERANDS, WAVES

DIGITS, HIGHEST = 14, 1023
MOST_ELEMENTS, MOST_DIMENSIONS, MOST_STATEMENTS = 200, 5, 60
IMPORTS = (
    ("copy.", "import copy"),
    ("np.", "import numpy as np"),
    ("torch", "import torch"),
    ("F.", "import torch.nn.functional as F"),
    ("nn.", "from torch import nn"),
)
RANDOM = re.compile(
    r"rand|dropout|normal|uniform|bernoulli|multinomial|empty|exponential_|geometric_|cauchy|poisson|Dropout|init\."
)

Step = tuple[int, tuple[int, ...]]
Maker = Callable[["Writer"], None]


def steps(length: int = MOST_STATEMENTS) -> st.SearchStrategy[list[Step]]:
    """Programs before they are written down. Kind 0 writes nothing: what a shrunk step ends as."""
    step = st.binary(min_size=2 * DIGITS + 2, max_size=2 * DIGITS + 2).map(as_step)
    return st.one_of(st.lists(step, min_size=6, max_size=length), st.lists(step, min_size=18, max_size=length))


def as_step(drawn: bytes) -> Step:
    """A step from the bytes of its numbers, two each: one draw, where a draw for each number takes as
    long as running the program.
    """
    kind, *digits = (int.from_bytes(drawn[k : k + 2]) for k in range(0, len(drawn), 2))
    return kind % len(kinds()), tuple(digit % (HIGHEST + 1) for digit in digits)


# ------------------------------------------------------------------ writing


@dataclass
class Block:
    """An open ``with`` block: how many steps it still takes, and whether it holds a statement yet."""

    room: int
    stack: contextlib.ExitStack
    filled: bool = False


@dataclass
class Writer:
    """A program being written, and the torch world it has made so far."""

    alone: bool = False
    """For the stand-alone engine: nothing random, since its numbers come from another generator."""
    vocabulary: str = "core"
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    digits: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    statements: int = 0

    @property
    def rare(self) -> bool:
        """Whether the program may hold what nobody writes."""
        return self.vocabulary == "all"

    # -- choosing

    def digit(self, below: int) -> int:
        """The next of the step's integers, below ``below``; zero when they are used up."""
        return (self.digits.pop(0) if self.digits else 0) % max(below, 1)

    def chance(self, percent: int) -> bool:
        """True in about ``percent`` of the programs; a shrunk program has False."""
        return self.digit(100) >= 100 - percent

    def one_of(self, *options: Any) -> Any:
        """One of the options; the first is the simplest."""
        return options[self.digit(len(options))]

    def kinds_of(self, kind: Any, fits: Callable[[Any], bool] = lambda _: True) -> list[str]:
        """Names of small things of a kind, newest first."""
        found = [n for n, v in self.names.items() if isinstance(v, kind) and not n.startswith("_") and small(v)]
        return [n for n in reversed(found) if fits(self.names[n])]

    def tensor(self, fits: Callable[[torch.Tensor], bool] = lambda _: True, strict: int = 92) -> str:
        """The name of a tensor, usually one that ``fits``; one is made when there is none."""
        if not self.chance(100 - strict):
            found = self.kinds_of(torch.Tensor, fits)
            if found:
                return found[self.digit(len(found))]
        found = self.kinds_of(torch.Tensor)
        return found[self.digit(len(found))] if found else self.make("t", literal(self, (3,), grad=True))

    def floating(self) -> str:
        """A floating-point tensor."""
        return self.tensor(lambda t: t.is_floating_point())

    def partner(self, name: str) -> str:
        """A tensor that broadcasts with another, most of the time."""
        shape = self.names[name].shape
        return self.tensor(lambda t: fits_with(t.shape, shape) and t.is_floating_point())

    def fresh(self, letter: str) -> str:
        """A name that is not in use."""
        self.counts[letter] = self.counts.get(letter, 0) + 1
        return f"{letter}{self.counts[letter]}"

    # -- writing

    @property
    def indent(self) -> str:
        """White space for the block we are in."""
        return "    " * len(self.blocks)

    def make(self, letter: str, expression: str) -> str:
        """Bind an expression to a fresh name and return it (or another name, when it could not be computed)."""
        name = self.fresh(letter)
        if self.write(f"{name} = {expression}"):
            return name
        self.counts[letter] -= 1
        found = self.kinds_of(torch.Tensor)
        return found[0] if found else self.make("t", literal(self, (3,), grad=True))

    def write(self, text: str) -> bool:
        """Add one statement (of one or several lines) and run it; False when it raised, and was put into a ``try``."""
        before = set(self.names)
        raised = attempt(text, self.names)
        text_lines = text.splitlines()
        if raised:
            for name in set(self.names) - before:
                del self.names[name]
            text_lines = ["try:", *("    " + line for line in text_lines), "except Exception as error:"]
            text_lines.append("    print(type(error).__name__, str(error).splitlines()[:1])")
        self.lines += [self.indent + line for line in text_lines]
        if self.blocks:
            self.blocks[-1].filled = True
        self.statements += 1
        return not raised

    def open(self, context: str, room: int) -> None:
        """Begin a ``with`` block around the next ``room`` steps."""
        block = Block(room, contextlib.ExitStack())
        with contextlib.suppress(Exception):
            block.stack.enter_context(eval(context, {"torch": torch}))
        self.lines.append(f"{self.indent}with {context}:")
        self.statements += 1
        self.blocks.append(block)

    def close(self) -> None:
        """End the innermost block."""
        if not self.blocks[-1].filled:
            self.lines.append(self.indent + "pass")
        self.blocks.pop().stack.close()
        if self.blocks:
            self.blocks[-1].filled = True

    def step(self, kind: Maker, digits: tuple[int, ...]) -> None:
        """Write one step."""
        depth = len(self.blocks)
        self.digits = list(digits)
        kind(self)
        if self.blocks and len(self.blocks) == depth:
            self.blocks[-1].room -= 1
            while self.blocks and self.blocks[-1].room <= 0:
                self.close()
                if self.blocks:
                    self.blocks[-1].room -= 1

    def text(self) -> str:
        """The program."""
        body = "\n".join(self.lines) + "\n"
        header = [line for word, line in IMPORTS if re.search(rf"(?<![\w.]){re.escape(word)}", body) or word == "torch"]
        if RANDOM.search(body) or "nn." in body:
            header.append("torch.manual_seed(0)")
        return "\n".join(header) + "\n" + body


def render(program: list[Step], *, alone: bool = False, vocabulary: str = "core") -> str:
    """The text of the steps as a program."""
    return written(program, alone=alone, vocabulary=vocabulary).text()


def written(program: list[Step], *, alone: bool = False, vocabulary: str = "core") -> Writer:
    """Write the steps as a program."""
    writer = Writer(alone, vocabulary)
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)
        try:
            for kind, digits in program:
                if writer.statements < MOST_STATEMENTS:
                    writer.step(kinds()[kind], digits)
        finally:
            while writer.blocks:
                writer.close()
    return writer


def attempt(text: str, names: dict[str, Any]) -> bool:
    """Run one statement on torch; True when it raised."""
    names.update(SCOPE)
    try:
        exec(text, names)
    except Exception:
        return True
    finally:
        for name in ("__builtins__", *SCOPE):
            names.pop(name, None)
    return False


def _scope() -> dict[str, Any]:
    import copy

    return {"torch": torch, "np": np, "F": torch.nn.functional, "nn": torch.nn, "copy": copy}


SCOPE = _scope()


def small(value: Any) -> bool:
    """Whether a value is small enough to go on with."""
    if isinstance(value, torch.Tensor):
        plain = (
            value.layout is torch.strided
            and value.device.type == "cpu"
            and not value.is_quantized
            and not value.is_nested
        )
        return plain and value.numel() <= MOST_ELEMENTS and value.ndim <= MOST_DIMENSIONS
    return not isinstance(value, np.ndarray) or value.size <= MOST_ELEMENTS


def fits_with(one: Any, other: Any) -> bool:
    """Whether two shapes broadcast."""
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))


# ------------------------------------------------------------------ numbers, shapes and indices

SHAPES = (
    (3,),
    (2, 3),
    (),
    (3, 1),
    (1, 3),
    (2, 2),
    (3, 2),
    (4,),
    (1,),
    (2, 3, 2),
    (0,),
    (2, 0),
    (1, 1),
    (6,),
    (4, 4),
    (5,),
    (5, 2),
)
DTYPES = ("float32", "float64", "int64", "bool", "float16", "int32", "uint8", "bfloat16")
RARE_DTYPES = (*DTYPES, "complex64")
POOL = (0.5, -1.0, 2.0, 1.5, 0.25, -0.75, 3.0, 0.0, -2.0, 1.25, 0.125, -0.5, 4.0, 1.0, -1.5, 0.75)


def literal(w: Writer, shape: tuple[int, ...], dtype: str = "float32", *, grad: bool = False) -> str:
    """``torch.tensor([...])`` of some shape with plain numbers."""
    start, size = w.digit(len(POOL)), int(np.prod(shape, dtype=int))
    flat: Any = [POOL[(start + k * 5) % len(POOL)] for k in range(size)]
    if dtype == "bool":
        flat = [x > 0 for x in flat]
    elif "int" in dtype:
        flat = [int(abs(x) * 4) % 3 for x in flat]
    for count in reversed(shape[1:]):
        flat = [flat[k : k + count] for k in range(0, len(flat), count)] if count else [[]] * (shape[0] or 0)
    data = flat if shape else flat[0]
    words = [str(data)] + ([f"dtype=torch.{dtype}"] if dtype not in {"float32", "bool", "int64"} or not size else [])
    return f"torch.tensor({', '.join(words + ['requires_grad=True'] * grad)})"


def number(w: Writer) -> str:
    """A plain number."""
    odd = ("2", "0.5", "-1", "1", "0", "3.0", "-0.25", "True", "1e-3", "float('inf')", *["2j"] * w.rare)
    return w.one_of(*odd) if w.chance(30) else w.one_of("2", "0.5", "-1.5")


def dim(w: Writer, t: torch.Tensor) -> str:
    """A dimension of ``t``; now and then one that it does not have."""
    return (
        str(t.ndim + 1)
        if w.chance(3)
        else str(w.digit(2 * max(t.ndim, 1)) - max(t.ndim, 1) if w.chance(50) else w.digit(max(t.ndim, 1)))
    )


def place(w: Writer, size: int) -> str:
    """A place in a dimension of this size, counted from the front or the end; now and then one behind it."""
    return str(w.digit(max(size, 1)) - size * w.chance(25) + size * w.chance(3))


def part(w: Writer, size: int) -> str:
    """A slice of a dimension of this size, half of the time with a step."""
    places, form, size = w.digit(HIGHEST + 1), w.digit(HIGHEST + 1), max(size, 1)
    first, last = places % size, places // size % (size + 1)
    first, last = ("", first, first - size, "")[form % 4], ("", last, last - size, "")[form // 4 % 4]
    return f"{first}:{last}" + ("", ":2", ":3", "")[form // 16 % 4]


def index(w: Writer, name: str) -> str:
    """What may stand in brackets behind ``name``."""
    t = w.names[name]
    if not isinstance(t, torch.Tensor):
        return "0"
    if t.ndim and w.chance(35):
        return ", ".join(
            w.one_of(part, part, place, lambda *_: "None")(w, size) for size in t.shape[: 1 + w.digit(t.ndim)]
        )
    general = [
        "...",
        "None",
        ":",
        "..., None",
        f"{name} > 0",
        "[0]",
        "torch.tensor([0])",
        "torch.tensor(0)",
        f"{name} > 5",
        "True",
    ]
    if t.ndim == 0:
        return str(w.one_of("...", "None", f"{name} > 0", "True", "0"))
    rows = t.shape[0]
    one = [
        "0",
        "-1",
        "1:",
        ":1",
        "::2",
        ":-1",
        "1:2",
        "[0, 0]",
        "[-1]",
        "2:",
        "5:",
        str(rows),
        "torch.tensor([0, 1])",
        "[True] + [False] * " + str(max(rows - 1, 0)),
        *general,
    ]
    if t.ndim == 1:
        return str(w.one_of(*one))
    two = [
        "0",
        ":, 0",
        "0, 1",
        ":, 1:",
        "..., -1",
        "0, 1:",
        ":, None",
        "1:, :1",
        ":, ::2",
        ":, [0, 1]",
        "[0, 1], [1, 0]",
        "[0, 0]",
        "0, [0]",
        "..., 0:1",
        "torch.tensor([[0, 1], [1, 0]])",
        f":, {name}[0] > 0",
        "[1, 0], 1:",
        "None, 0",
        "(0, 0)",
        ":, torch.tensor(1)",
    ]
    return str(w.one_of(*two, *one))


# ------------------------------------------------------------------ kinds of steps


def nothing(w: Writer) -> None:
    """Write nothing."""


def create(w: Writer) -> None:
    """A new tensor."""
    shape, way = SHAPES[w.digit(len(SHAPES))], w.digit(12)
    dtype = w.one_of(*(RARE_DTYPES if w.rare else DTYPES)) if w.chance(25) else "float32"
    grad = not w.chance(45) and dtype in {"float32", "float64", "float16", "bfloat16"}
    flag = ", requires_grad=True" if grad else ""
    if way < 6:
        text = literal(w, shape, dtype, grad=grad)
    elif way == 6:
        text = f"torch.{w.one_of('ones', 'zeros')}({', '.join(map(str, shape)) or '()'}, dtype=torch.{dtype}{flag})"
    elif way == 7:
        text = (
            "torch."
            f"{w.one_of('arange(6.0', 'linspace(-1, 1, 4', 'eye(3', 'full((2, 3), 0.5', 'arange(4.0', 'full((3,), -2.0')}"  # noqa: E501
            f"{flag})"
        )
    elif way == 8:
        text = (
            f"nn.Parameter({w.floating()}{w.one_of('.detach()', '.data', '.detach()[:1]')})"
            if w.chance(60)
            else f"nn.Parameter({literal(w, shape, dtype)})"
        )
    elif way == 9:
        other = w.tensor()
        text = w.one_of(
            f"torch.zeros_like({other})",
            f"torch.ones_like({other})",
            f"torch.full_like({other}, 2)",
            f"{other}.new_zeros(3)",
            f"torch.tensor({other}.tolist())",
            f"torch.ones_like({other}, requires_grad=True)",
        )
    elif way == 10 and not w.alone:
        text = w.one_of(
            "torch.randn(2, 3)",
            "torch.rand(3, requires_grad=True)",
            "torch.randn(3, 3, requires_grad=True)",
            "torch.randint(0, 3, (3,))",
            "torch.empty(2, 3).fill_(1.5)",
        )
    else:
        text = literal(w, shape, dtype, grad=grad)
    w.make("t", text)


VIEWS = (
    *["{x}[{i}]"] * 9,
    "{x}.t()",
    "{x}.view(-1)",
    "{x}.reshape(-1)",
    "{x}[None]",
    "{x}.expand(2, *{x}.shape)",
    "{x}.detach()",
    "{x}.data",
    "{x}.flatten()",
    "{x}.T",
    "{x}.mT",
    "{x}.unbind({d})[-1]",
    "{x}.split(1, {d})[0]",
    "{x}.chunk(2, {d})[-1]",
    "{x}.squeeze()",
    "{x}.squeeze({d})",
    "{x}.unsqueeze({d})",
    "{x}.transpose(0, {d})",
    "{x}.narrow({d}, {p}, 1)",
    "{x}.select({d}, {p})",
    "{x}.unfold({d}, 2, {s})",
    "{x}.diagonal({p})",
    "{x}.as_strided((2,), (2,))",
    "{x}.as_strided((2, 2), (1, 1), 0)",
    "{x}.permute(*reversed(range({x}.ndim)))",
    "{x}.view({x}.shape)",
    "{x}.expand({x}.shape)",
    "{x}.view_as({y})",
    "{x}.expand_as({y})",
    "{x}.swapaxes(0, {d})",
    "{x}.movedim(0, {d})",
    "{x}.reshape({x}.shape[::-1])",
    "{x}.view(1, -1)",
    "{x}.view(-1, 1).expand(-1, 3)",
    "{x}.expand(3, *{x}.shape)",
    "torch.broadcast_to({x}, (2, *{x}.shape))",
    "list({x})[0]",
    "{x}[:1].expand(3, *{x}.shape[1:])",
    "{x}.tensor_split(2, {d})[0]",
    "next(iter({x}))",
    "{x}.contiguous()",
    "{x}.unflatten({d}, (1, -1))",
    "{x}.real",
    "{x}.ravel()",
    "{x}.hsplit(1)[0]",
    "{x}.adjoint()",
)
RARE_VIEWS = (*VIEWS, "{x}.view(torch.int32)")
PURE = (
    "{x} + {y}", "{x} * {y}", "{x} - {y}", "{x} / {y}", "{x} * {k}", "{k} - {x}", "{x} ** 2", "{x}.exp()",
    "torch.sigmoid({x})", "{x}.tanh()", "torch.relu({x})", "{x}.sin()", "{x}.sum()", "{x}.sum({d})", "{x}.mean({d})",
    "{x}.mean()", "{x}.sum({d}, keepdim=True)", "{x}.max()", "{x}.max({d})[0]", "{x}.min({d}).values", "{x}.clone()",
    "{x} @ {y}", "{x}.clamp(-1, 1)", "{x}.clamp(min={y})", "torch.cat([{x}, {y}])", "torch.cat([{x}, {x}], {d})",
    "torch.stack([{x}, {y}])", "torch.where({x} > 0, {x}, {y})", "{x}.softmax({d})", "F.mse_loss({x}, {y})",
    "{x}.abs()", "{x}.double()", "{x}.half()", "{x}.long()", "{x}.to(torch.float64)", "{x}.masked_fill({x} > 0, 0.5)",
    "{x}.cumsum({d})", "torch.maximum({x}, {y})", "{x}.norm()", "F.leaky_relu({x})", "{x}.t() @ {x}",
    "{x}.log_softmax({d})", "{x}.std()", "{x}.var({d})", "{x}.prod()", "{x}.sqrt()", "{x}.argmax()", "{x} > {y}",
    "{x} == {y}", "{x}.sort({d})[0]", "{x}.flip(0)", "{x}.roll(1)", "{x}.repeat(2, 1)",
    "{x}.index_select({d}, torch.tensor([{p}]))", "{x}.gather({d}, torch.zeros_like({x}, dtype=torch.long))",
    "torch.outer({x}, {y})", "{x}.tril()", "F.gelu({x})", "F.elu({x})", "{x}.logsumexp({d})", "{x}.float()", "{x} // 2",
    "{x} % 2", "-{x}", "{x} / {k}", "{x} + {k}", "{x}.bool()", "{x}.any()", "~({x} > 0)", "torch.dot({x}, {y})",
    "torch.matmul({x}, {x})", "{x}.amax({d})", "{x}.median()", "{x}.log()", "{x}.pow({y})", "{x}.topk(1)[0]",
    "F.layer_norm({x}, {x}.shape[-1:])", "F.normalize({x}, dim={d})", "{x}.type_as({y})", "F.l1_loss({x}, {y})",
    "F.smooth_l1_loss({x}, {y})", "F.binary_cross_entropy_with_logits({x}, ({y} > 0).float())",
    "F.cross_entropy({x}, torch.zeros({x}.shape[0], dtype=torch.long))", "{x}.lerp({y}, 0.5)",
    "torch.addmm({x}, {x}, {x})", "{x}.sum() * {y}", "{x} * {x}", "{x}[{x} > 0]", "torch.einsum('i,i->', {x}, {y})",
    "{x}.nan_to_num()", "{x}.square().sum()", "{x}.requires_grad_().exp()", "torch.atleast_2d({x})",
)  # fmt: skip
WRITES = (
    "{x}.add_({y})",
    "{x}.mul_(2)",
    "{x}.mul_({y})",
    "{x}.exp_()",
    "{x}.sigmoid_()",
    "{x}.relu_()",
    "{x}.zero_()",
    "{x}.fill_(0.5)",
    "{x}.copy_({y})",
    "{x}.sub_({y}, alpha=2)",
    "{x}.tanh_()",
    "{x}.clamp_(-1, 1)",
    *["{x}[{i}] = {k}", "{x}[{i}] = {y}"] * 4,
    *["{x}[{i}] += {k}", "{x}[{i}] *= {y}"] * 2,
    "{x}.div_({y})",
    "{x} += {y}",
    "{x} *= {k}",
    "{x} -= {y}",
    "{x} /= {k}",
    "{x} += {k}",
    "{x} **= 2",
    "{x}.detach_()",
    "{x}.masked_fill_({x} > 1, 0.5)",
    "{x}.pow_(2)",
    "{x}.t_()",
    "{x}.squeeze_()",
    "{x}.unsqueeze_({d})",
    "{x}.sqrt_()",
    "{x}.sin_()",
    "{x}.abs_()",
    "{x}.neg_()",
    "{x}.lerp_({y}, 0.5)",
    "{x}.log_()",
    "{x}.view(-1).add_({k})",
    "{x}.view(-1)[0] = {k}",
    "{x}.detach().mul_({k})",
    "{x}.index_fill_({d}, torch.tensor([{p}]), 1.5)",
    "{x}.index_add_({d}, torch.tensor([{p}]), {x}.narrow({d}, 0, 1))",
    "{x}.transpose(0, {d}).add_({y})",
    "{x}.scatter_({d}, torch.zeros_like({x}, dtype=torch.long), 0.5)",
    "{x}.index_put_((torch.tensor([{p}]),), torch.tensor(2.0))",
    "F.relu({x}, inplace=True)",
    "{x}.addcmul_({y}, {y})",
    "{x}.fill_({y}.sum())",
    "{x}.copy_({x})",
    "torch.add({x}, {y}, out={x})",
    "torch.mul({y}, 2, out={x})",
    "torch.exp({y}, out={x})",
    "{x}.requires_grad_({b})",
    "{x}.requires_grad = {b}",
    "torch._foreach_mul_([{x}, {y}], 2)",
    "{x}.mul_({x}.sum())",
    "{x}.div_({x}.norm())",
    "{x}.transpose_(0, {d})",
    "{x}.resize_({x}.shape)",
    "{x}.random_(0, 3)",
    "torch.autograd.graph.increment_version({x})",
    "{x}.masked_scatter_({x} > 0, {y})",
    "{x}.sub_({y})",
    "{x}.mul_({y}.detach())",
)
SILENT = (
    "{x}.data.mul_({k})", "{x}.data.zero_()", "{x}.data[{i}] = {k}", "{x}.data.copy_({y}.data)", "{x}.data = {y}.data",
    "{x}.data = {x}.data * 2", "{x}.data += {k}", "{x}.data = {y}.detach().clone()", "{x}.data.add_({y}.data)",
    "{x}.detach().numpy()[...] = {k}", "{x}.detach().numpy().reshape(-1)[:1] = {k}",
    "np.asarray({x}.detach())[...] *= 2", "{x}.numpy()[...] = {k}", "{x}.data = torch.ones_like({x})",
    "{x}.data.sub_({y}.data * 0.5)", "torch._foreach_add_([{x}.data], 1.0)", "{x}.untyped_storage().fill_(0)",
)  # fmt: skip
# A product saves its factors: of a sum that cancels, rounding is left, so the factors have names, and
# torch's numbers are taken over.
BACKWARDS = (
    "{x}.sum().backward()", "{x}.sum().backward()", "{x}.backward()", "{x}.sum().backward(retain_graph=True)",
    "({x} * {y}).sum().backward()", "{x}.mean().backward()", "{x}.backward(torch.ones_like({x}))",
    "{x}.backward(gradient={y}.detach())", "({x}.sum() + {y}.sum()).backward()", "{x}.pow(2).sum().backward()",
    "{x}.sum().backward(create_graph=True)", "torch.autograd.backward([{x}.sum(), {y}.sum()])",
    "{x}.sum().backward(inputs=[{y}])", "s, m = {x}.sum(), {y}.mean()\n(s * m).backward(retain_graph=True)",
    "({x}.exp() + {y}).sum().backward()", "for _ in range(2):\n    {x}.sum().backward(retain_graph=True)",
)  # fmt: skip
GRADS = (
    "torch.autograd.grad({x}.sum(), {y})[0]", "torch.autograd.grad({x}.sum(), {y}, allow_unused=True)[0]",
    "torch.autograd.grad({x}.sum(), [{y}, {x}], retain_graph=True)[0]",
    "torch.autograd.grad({x}, {y}, torch.ones_like({x}))[0]", "torch.autograd.grad(({x} * {y}).sum(), {x})[0]",
    "torch.autograd.grad({x}.pow(3).sum(), {x}, create_graph=True)[0]",
    "torch.autograd.grad({x}.sum(), {y}, materialize_grads=True)[0]", "{x}.grad", "{x}.grad.clone()", "{x}.grad * 2",
    "torch.autograd.grad({x}.exp().sum(), {y}, retain_graph=True, allow_unused=True)[0]",
)  # fmt: skip
# Given a hook, a view whose base has got a history since makes torch (2.13) crash, unless it was asked for its own.
LEAVES = (
    "{x}.retain_grad()", "{x}.grad = None", "{x}.grad.zero_()", "{x}.grad = torch.ones_like({x})", "{x}.grad = {y}",
    "{x}.grad += 1", "{x}.grad.mul_(0.5)", "{x}.grad.detach_()", "{x}.grad = {y}.detach()", "del {x}.grad",
    "{x}.is_leaf; {x}.register_hook(lambda g: g * 2)", "{x}.is_leaf; {x}.register_hook(lambda g: None)",
    "{x}.is_leaf; {x}.register_hook(lambda g: print(tuple(g.shape)))",
    "{x}.is_leaf; {x}.register_hook(lambda g: g.clamp(-1, 1))", "{x}.requires_grad_()", "{x}.requires_grad_(False)",
    "{x}.is_leaf; {x}.register_hook(lambda g: g * 2); {x}.register_hook(lambda g: g + 1)",
    ("{x}.is_leaf; {x}.register_hook(lambda g: print('one')); {x}.retain_grad(); {x}.register_hook(lambda g: "
    "g.abs()); {x}.register_hook(lambda g: g - 0.5)"),
    "{x}.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', None))", "{x}.grad.data.zero_()", "del {x}",
)  # fmt: skip
# 0.1, not 0: whether a sum of which nothing is left but rounding is above zero is decided by the
# order in which it is added up.
LOOKS = (
    "print({x}._version, {x}.requires_grad, {x}.is_leaf, tuple({x}.shape))",
    "print({x}.stride(), {x}.storage_offset(), {x}.dtype, {x}.is_contiguous())",
    "print({x}.data_ptr() == {y}.data_ptr())", "print({x}.grad is None)", "print({x}.sum().item())",
    "print({x}.tolist())", "print({x}.grad_fn.name() if {x}.grad_fn else None)", "print(bool(({x} == {x}).all()))",
    "print(torch.equal({x}, {y}), torch.allclose({x}, {y}))", "print({x}.max().item(), len({x}))",
    "print({x}._is_view(), {x}._base is None)", "assert {x}.shape == {y}.shape, 'shapes differ'",
    "print(torch.is_grad_enabled(), torch.is_tensor({x}))", "if {x}.sum() > 0.1:\n    {x}.mul_(0.5)",
    "print({x}.size(), {x}.dim(), {x}.numel())",
)  # fmt: skip
UNMODELLED = (
    "torch.linalg.qr({x})[0]", "torch.fft.fft({x}).real", "{x}.to_sparse()", "{x}.bfloat16() * 2",
    "torch.complex({x}, {x}).abs()", "torch.linalg.svdvals({x})", "{x}.to('meta')", "torch.special.i0({x})",
    "torch.vmap(torch.sin)({x})", "torch.func.grad(lambda u: u.sin().sum())({x})", "{x}.kthvalue(1)[0]",
    "torch.cdist({x}, {x})", "torch.quantize_per_tensor({x}, 0.1, 0, torch.quint8).dequantize()", "{x}.digamma_()",
    "torch.cummax({x}, 0)[0]", "{x}.erfinv_()", "torch.nested.nested_tensor([{x}])", "F.dropout({x}, 0.5)",
    "torch.utils.checkpoint.checkpoint(torch.sin, {x}, use_reentrant=False)", "{x}.bernoulli_(0.5)",
    "{x}.renorm_(2, 0, 1.0)", "torch.searchsorted({x}, {x})", "{x}.igamma({x}.abs())",
)  # fmt: skip
MODES = (
    "torch.no_grad()",
    "torch.no_grad()",
    "torch.inference_mode()",
    "torch.enable_grad()",
    "torch.set_grad_enabled(False)",
    "torch.set_grad_enabled(True)",
    "torch.inference_mode(False)",
    "torch.autograd.set_grad_enabled(False)",
    "torch.autograd.detect_anomaly()",
)
PLACES = re.compile(r"\{([xyikdpsb])\}")


def filled(w: Writer, template: str, x: str | None = None) -> str:
    """A template with its places filled: ``x``, ``y`` tensors, ``i`` an index, ``k`` a number, ``d`` a dimension, ``p``
    a place in the one before (or the first), ``s`` a step, ``b`` a flag.
    """
    first = x or w.floating()
    second = w.partner(first) if "{y}" in template else ""
    along = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal along
        what = found[1]
        if what == "x":
            return first
        if what == "y":
            return second
        if what == "i":
            return index(w, first)
        if what == "d":
            along = int(dim(w, w.names[first]))
            return str(along)
        if what == "p":
            sizes = w.names[first].shape
            return place(w, sizes[along] if -len(sizes) <= along < len(sizes) else 1)
        if what == "s":
            return str(1 + w.digit(3))
        return number(w) if what == "k" else str(w.one_of("True", "False"))

    return PLACES.sub(fill, template)


def bound(letter: str, templates: tuple[str, ...], rare: tuple[str, ...] = (), wide: int = 8) -> Maker:
    """Steps that bind the value of a template to a new name (now and then to an old one)."""

    def run(w: Writer) -> None:
        template = w.one_of(*(rare if rare and w.rare else templates))
        x = w.tensor() if w.chance(wide) else None
        if "as_strided" in template:  # only where all of it is the program's: what lies behind a tensor is nobody's
            large = w.kinds_of(torch.Tensor, lambda t: t.numel() > 2 and t.is_contiguous())
            if not large:
                return
            x = large[w.digit(len(large))]
        text = filled(w, template, x)
        if w.chance(4):
            w.write(f"{w.tensor()} = {text}")
        else:
            w.make(letter, text)

    run.__name__ = letter
    return run


def done(templates: tuple[str, ...], wide: int = 8) -> Maker:
    """Steps that are statements."""

    def run(w: Writer) -> None:
        usable = [t for t in templates if not (w.alone and RANDOM.search(t))]
        template = usable[w.digit(len(usable))]
        x = w.tensor() if w.chance(wide) else None
        if "hook" in template:
            x = w.tensor(lambda t: t.requires_grad and not t._is_view())
            if w.names[x]._is_view():  # torch crashes on a hook of a view that was made under no_grad
                return
        text = filled(w, template, x)
        if w.rare or (
            (".data = " not in text or keeps_its_kind(w, text)) and ("out=" not in text or keeps_its_size(w, text))
        ):
            w.write(text)

    return run


def keeps_its_size(w: Writer, text: str) -> bool:
    """Whether ``out=`` is a tensor of the result's shape, or one without elements: torch warns of anything else, and of
    memory that may not grow too late.
    """
    *given, target = [t for word in re.findall(r"\w+", text) if isinstance(t := w.names.get(word), torch.Tensor)]
    return not target.numel() or all(t.shape == target.shape for t in given)


def keeps_its_kind(w: Writer, text: str) -> bool:
    """Whether ``x.data = …`` gives memory of the same shape and type, and none from inference mode:
    nobody writes anything else.
    """
    if torch.is_inference_mode_enabled():
        return False
    named = [t for word in re.findall(r"\w+", text) if isinstance(t := w.names.get(word), torch.Tensor)]
    return all(t.shape == named[0].shape and t.dtype == named[0].dtype and not t.is_inference() for t in named)


def backward(w: Writer) -> None:
    """A backward from something that has a history, most of the time."""
    name = w.tensor(lambda t: t.requires_grad and t.numel() > 0, strict=95)
    w.write(filled(w, BACKWARDS[w.digit(len(BACKWARDS))], name))


def gradients(w: Writer) -> None:
    """``torch.autograd.grad`` and ``.grad``, bound to a name."""
    name = w.tensor(lambda t: t.requires_grad)
    w.make("g", filled(w, GRADS[w.digit(len(GRADS))], name))


def mode(w: Writer) -> None:
    """A ``with`` block around the next statements."""
    if len(w.blocks) < 3:
        w.open(MODES[w.digit(len(MODES))], 1 + w.digit(4))


def arrays(w: Writer) -> None:
    """NumPy arrays on the memory of tensors."""
    name = w.tensor(lambda t: not t.requires_grad and t.dtype in {torch.float32, torch.float64})
    held = w.kinds_of(np.ndarray)
    way = w.digit(5)
    if way == 0:
        w.make("a", f"{name}.detach().numpy()")
    elif way == 1:
        array = w.make(
            "a",
            w.one_of(
                "np.arange(6.0).reshape(2, 3)",
                "np.ones(3, dtype=np.float32)",
                "np.array([1, 2, 3])",
                "np.zeros((2, 2))",
            ),
        )
        w.make("t", f"torch.{w.one_of('from_numpy', 'as_tensor', 'tensor')}({array})")
    elif held:
        array = held[w.digit(len(held))]
        w.write(
            w.one_of(
                f"{array} *= 2",
                f"{array}[...] = 0.5",
                f"{array}.reshape(-1)[:1] = 3",
                f"{array}[0] = -1.0",
                f"np.add({array}, 1, out={array})",
            )
        )
    else:
        w.make("a", f"{name}.numpy()")


CORE = frozenset(
    """
    torch.add .__radd__ .add_ torch.sub .sub_ .__rsub__ torch.mul .mul_ torch.div .div_ .__rdiv__ torch.pow .pow_ .__rpow__ .__floordiv__ torch.fmod .fmod_
    torch.remainder .remainder_ torch.exp .exp_ torch.exp2 .exp2_ torch.expm1 .expm1_ torch.log .log_ torch.log2 .log2_ torch.log10 .log10_ torch.log1p
    .log1p_ torch.sqrt .sqrt_ torch.rsqrt .rsqrt_ torch.reciprocal .reciprocal_ torch.square .square_ torch.sin .sin_ torch.cos .cos_ torch.tan .tan_ torch.asin
    .asin_ torch.acos .acos_ torch.atan .atan_ torch.sinh .sinh_ torch.cosh .cosh_ torch.tanh .tanh_ torch.sigmoid .sigmoid_ torch.relu .relu_ torch.abs .abs_
    torch.neg .neg_ torch.sign .sign_ torch.sgn torch.floor .floor_ torch.ceil .ceil_ torch.trunc .trunc_ torch.round .round_ torch.frac .frac_ torch.erf .erf_
    torch.erfc .erfc_ torch.absolute torch.negative torch.positive torch.atan2 .atan2_ torch.hypot .hypot_ torch.special.expit torch.nan_to_num .nan_to_num_
    torch.clamp .clamp_ torch.clamp_min .clamp_min_ torch.clamp_max .clamp_max_ torch.lerp .lerp_ torch.addcmul .addcmul_ torch.addcdiv .addcdiv_ torch.where
    torch.masked_fill .masked_fill_ torch.maximum torch.minimum torch.gt torch.lt torch.ge torch.le torch.eq torch.ne torch.bitwise_and torch.bitwise_or
    torch.bitwise_xor torch.bitwise_not torch.logical_and torch.logical_or torch.logical_xor torch.logical_not torch.isnan torch.isfinite torch.isinf torch.isclose
    F.relu F.leaky_relu F.leaky_relu_ F.elu F.elu_ F.selu F.silu F.gelu F.mish F.softplus F.hardtanh F.hardtanh_ F.relu6 F.hardswish F.hardsigmoid F.logsigmoid F.glu F.prelu
    F.softsign F.dropout
    torch.sum torch.mean torch.prod torch.max torch.amax torch.argmax torch.min torch.amin torch.argmin torch.var torch.std .norm torch.all torch.any torch.cumsum
    .cumsum_ torch.cumprod torch.logcumsumexp F.softmax torch.softmax F.log_softmax torch.log_softmax torch.logsumexp torch.median torch.topk torch.sort torch.argsort
    torch.count_nonzero torch.nonzero torch.functional.unique torch.linalg.norm
    torch.cat torch.stack torch.hstack torch.vstack torch.repeat_interleave torch.diag torch.trace torch.flip torch.roll torch.tile torch.tril torch.triu .tril_ .triu_
    .repeat torch.clone .contiguous .to .float .double .half .long .int .bool .cpu .type_as .item .tolist
    .view .view_as torch.reshape torch.flatten torch.ravel torch.permute torch.transpose torch.t .T.__get__ .mT.__get__ .adjoint torch.unflatten
    torch.functional.atleast_1d torch.functional.atleast_2d torch.movedim torch.unsqueeze torch.squeeze .expand .expand_as torch.functional.broadcast_tensors
    torch.select torch.narrow torch.diagonal torch.as_strided .unfold torch.unbind .split torch.chunk torch.tensor_split torch.detach .data.__get__ .real.__get__
    .squeeze_ .unsqueeze_ .t_ .transpose_
    .zero_ .fill_ .copy_
    .__getitem__ .__setitem__ torch.index_select torch.gather torch.take torch.masked_select torch.scatter .scatter_ torch.scatter_add .scatter_add_ torch.index_add
    .index_add_ torch.index_copy .index_copy_ torch.index_fill .index_fill_ .index_put_ torch.index_put .masked_scatter_ torch.masked_scatter torch.take_along_dim
    torch.mm torch.mv torch.dot torch.bmm torch.matmul torch.addmm .addmm_ torch.outer torch.kron torch.inner torch.functional.einsum torch.functional.tensordot torch.baddbmm
    F.linear F.cosine_similarity torch.functional.cdist F.pairwise_distance torch.linalg.inv torch.linalg.det torch.linalg.solve torch.linalg.cholesky torch.cross
    F.scaled_dot_product_attention F.conv1d F.conv2d F.conv_transpose2d F.unfold F.pad F.interpolate F.pixel_shuffle F.max_pool1d F.max_pool2d F.avg_pool1d F.avg_pool2d
    F.adaptive_avg_pool1d F.adaptive_avg_pool2d F.adaptive_max_pool2d F.layer_norm F.batch_norm F.group_norm F.normalize F.rms_norm F.embedding F.one_hot
    F.mse_loss F.l1_loss F.smooth_l1_loss F.huber_loss F.nll_loss F.cross_entropy F.binary_cross_entropy F.binary_cross_entropy_with_logits F.kl_div
    F.margin_ranking_loss F.cosine_embedding_loss F.triplet_margin_loss F.hinge_embedding_loss
    torch.zeros torch.zeros_like .new_zeros torch.ones torch.ones_like .new_ones torch.full torch.full_like torch.arange torch.linspace torch.eye torch.rand torch.rand_like
    torch.randn torch.randn_like .new_tensor torch.tensor torch.as_tensor
""".split()  # noqa: E501
)
"""The operations of ``core``: those whose saved tensors the fact sheet lists, those of the chapters and
claims, and those in everyday use.
"""


@cache
def samples(vocabulary: str = "core") -> tuple[tuple[str, str], ...]:
    """The samples of a vocabulary, with the kind of their entry: in ``all``, a new entry is
    fuzzed without editing this file.
    """
    entries = ENTRIES.values() if vocabulary == "all" else [ENTRIES[registered(name)] for name in sorted(CORE)]
    found = {
        with_positive_weights(sample): entry.kind
        for entry in entries
        for sample in entry.samples
        if "empty" not in sample
    }
    return tuple(sorted(found.items()))


def with_positive_weights(sample: str) -> str:
    """A weighted mean is divided by the sum of its weights: where they cancel, rounding
    alone would decide what it is.
    """
    return re.sub(r"(_loss\(a, \w, weight=)([abcp])\b", r"\1(\2.square() + 1)", sample)


def registered(name: str) -> str:
    """The full name behind ``F.relu`` or ``.add_``."""
    return (
        f"torch.Tensor{name}"
        if name.startswith(".")
        else f"torch.nn.functional.{name[2:]}"
        if name.startswith("F.")
        else name
    )


@cache
def parsed(sample: str) -> tuple[tuple[str, int, int], ...]:
    """Where the operands of a sample stand: (letter, start, end), from the last to the first."""
    tree = ast.parse(sample, mode="eval")
    letters = set(operands())
    inner = {a.arg for node in ast.walk(tree) if isinstance(node, ast.Lambda) for a in node.args.args}
    bound_names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | inner
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in letters - bound_names]
    return tuple(sorted(((n.id, n.col_offset, n.col_offset + len(n.id)) for n in names), key=lambda n: -n[1]))


@cache
def operands() -> dict[str, torch.Tensor]:
    """The operands that samples are written for."""
    scope: dict[str, Any] = {"torch": torch}
    exec(OPERANDS + WAVES, scope)
    for name, text in MORE.items():
        scope[name] = eval(text, scope)
    return {name: value for name, value in scope.items() if isinstance(value, torch.Tensor)}


def sample(w: Writer) -> None:
    """A sample of the registry with its operands replaced by the program's tensors."""
    known = samples(w.vocabulary)
    text, kind = known[w.digit(len(known))]
    if w.alone and RANDOM.search(text):
        return
    chosen: dict[str, str] = {}
    places = parsed(text)
    letters = list(dict.fromkeys(letter for letter, _, _ in places))
    # Of two mistakes in one call torch tells the one that its code happens to look for
    # first: people make one at a time.
    free = set() if not letters or not w.chance(25) else set(letters) if w.rare else {letters[w.digit(len(letters))]}
    if "waves(" in text:
        waves(w)
    for letter, start, end in places:
        if letter not in chosen:
            chosen[letter] = operand(w, letter, free=letter in free)
        text = text[:start] + chosen[letter] + text[end:]
    if "group_norm" in text and any(
        w.names[name].ndim == 4 and not w.names[name].is_contiguous() for name in chosen.values()
    ):
        return  # in channels_last, a backward that does not need the input's gradient ends torch's process
    if kind in ("pure", "view"):
        w.make("t", text)
    else:
        w.write(text)


def waves(w: Writer) -> None:
    """The function that larger operands are made with."""
    if "waves" not in w.names:
        w.write(WAVES.partition("\n\n")[2].strip())


def operand(w: Writer, letter: str, *, free: bool) -> str:
    """A tensor of the program for one operand of a sample; one of the right shape and type,
    unless the choice is ``free``.
    """
    wanted = operands()[letter]
    found = w.kinds_of(
        torch.Tensor,
        lambda t: (
            (t.shape == wanted.shape or (free and t.ndim == wanted.ndim))
            and (t.dtype == wanted.dtype or (free and t.is_floating_point() == wanted.is_floating_point()))
        ),
    )
    if found:
        return found[w.digit(len(found))]
    if letter in MORE:
        waves(w)
        return w.make("t", MORE[letter])
    dtype = str(wanted.dtype).removeprefix("torch.")
    text = str(wanted.tolist())
    grad = ", requires_grad=True" if wanted.requires_grad and wanted.is_leaf else ""
    if letter == "h":
        return w.make("t", f"torch.tensor({text}, requires_grad=True) * 1")
    return w.make(
        "t",
        f"torch.tensor({text}{grad})"
        if dtype in {"float32", "int64", "bool"}
        else literal(w, tuple(wanted.shape), dtype),
    )


# -- modules, optimizers, functions

NETS = ("nn.Linear(3, 2)", "nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))",
        "nn.Sequential(nn.Linear(3, 3), nn.Tanh())", "nn.Linear(3, 1, bias=False)",
        "nn.Sequential(nn.Linear(3, 2), nn.ReLU(inplace=True), nn.Linear(2, 2))", "nn.LayerNorm(3)",
        "nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))", "nn.BatchNorm1d(3)", "nn.Embedding(4, 3)",
        "nn.GRU(3, 2, batch_first=True)", "nn.MultiheadAttention(3, 1, batch_first=True)")  # fmt: skip
OPTIMIZERS = ("SGD({p}, lr=0.1)", "SGD({p}, lr=0.1, momentum=0.9)", "Adam({p}, lr=0.1)", "AdamW({p}, lr=0.1)",
              "RMSprop({p}, lr=0.1)", "Adagrad({p}, lr=0.1)",
              "SGD({p}, lr=0.1, weight_decay=0.1, nesterov=True, momentum=0.9)", "Adam({p}, lr=0.1, foreach=True)",
              "SGD({p}, lr=0.1, fused=True)", "Adam({p}, lr=0.1, fused=True)", "AdamW({p}, lr=0.1, amsgrad=True)",
              "SGD({p}, lr=0.1, foreach=False)", "Adadelta({p})", "NAdam({p})")  # fmt: skip
SETTLED = """def settled(net):
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.linspace(-0.93, 0.71, p.numel()).view(p.shape))
    return net"""


def net(w: Writer) -> None:
    """A small module; for two engines with different random numbers its weights are set by hand."""
    name, module = w.fresh("net"), NETS[w.digit(len(NETS))]
    if w.alone:
        if "settled" not in w.names:
            w.write(SETTLED)
        module = f"settled({module.replace('nn.Dropout(0.5)', 'nn.Sigmoid()')})"
    w.write(f"{name} = {module}")


def forward(w: Writer) -> None:
    """Pass something through a module."""
    nets = w.kinds_of(torch.nn.Module)
    if not nets:
        return net(w)
    name = nets[w.digit(len(nets))]
    x = w.tensor(lambda t: t.is_floating_point() and t.ndim > 0 and t.shape[-1] == 3)
    if w.names[x].ndim == 0 or w.names[x].shape[-1] != 3:
        x = w.make("t", literal(w, (2, 3)))
    module = w.names[name]
    if isinstance(module, torch.nn.Embedding):
        return void(w.make("t", f"{name}(torch.tensor([0, 2]))"))
    call = {torch.nn.GRU: "{n}({x})[0]", torch.nn.MultiheadAttention: "{n}({x}, {x}, {x})[0]"}.get(
        type(module), "{n}({x})"
    )
    way = w.digit(5)
    if way == 3:
        w.write(
            f"{name}."
            f"{w.one_of('zero_grad()', 'eval()', 'train()', 'zero_grad(set_to_none=False)', 'double()', 'requires_grad_(False)', 'requires_grad_()', f'load_state_dict({name}.state_dict())')}"  # noqa: E501
        )
    elif way == 4:
        w.write(f"{call.format(n=name, x=x)}.pow(2).mean().backward()")
    else:
        w.make("t", call.format(n=name, x=x))
    return None


def void(_: object) -> None:
    """Drop a value."""


def optimizer(w: Writer) -> None:
    """An optimizer, its steps, and training loops."""
    opts = w.kinds_of(torch.optim.Optimizer)
    nets = w.kinds_of(torch.nn.Module)
    if not opts or w.chance(25):
        leaves = w.kinds_of(torch.Tensor, lambda t: t.requires_grad and t.is_floating_point())
        params = (
            f"{nets[w.digit(len(nets))]}.parameters()"
            if nets and w.chance(70)
            else f"[{leaves[w.digit(len(leaves))] if leaves else w.make('t', literal(w, (3,), grad=True))}]"
        )
        name = w.fresh("opt")
        w.write(f"{name} = torch.optim.{OPTIMIZERS[w.digit(len(OPTIMIZERS))].format(p=params)}")
        return
    name = opts[w.digit(len(opts))]
    way = w.digit(7)
    if way < 4:
        w.write(f"{name}.step()")
    elif way == 4:
        w.write(f"{name}.zero_grad({w.one_of('', 'set_to_none=False')})")
    elif nets:
        model = nets[w.digit(len(nets))]
        w.write(
            "for _ in range(2):\n"
            f"    {name}.zero_grad()\n"
            f"    loss = {model}(torch.ones(2, 3)).pow(2).mean()\n"
            "    loss.backward()\n"
            f"    {name}.step()"
        )
    else:
        x = w.floating()
        w.write(
            "for _ in range(2):\n"
            f"    {name}.zero_grad()\n"
            f"    loss = {x}.pow(2).sum()\n"
            "    loss.backward()\n"
            f"    {name}.step()"
        )


def compound(w: Writer) -> None:
    """Loops and small functions."""
    x = w.floating()
    y = w.partner(x)
    way = w.digit(9)
    one, two = (
        PURE[w.digit(12)].format(x="u", y="v", k="2", d="0"),
        WRITES[w.digit(12)].format(x="s", y="v", k="2", d="0", i="0"),
    )
    name = w.fresh("f")
    if way == 0:
        w.write(f"for _ in range(3):\n    {x} = {x} * {y} + 1")
    elif way == 1:
        w.write(f"for _ in range(2):\n    {x}.mul_({number(w)})")
    elif way == 2:
        w.write(f"def {name}(u, v):\n    s = {one}\n    {two}\n    return s.sum()")
        w.make("t", f"{name}({x}, {y})")
    elif way == 3:
        w.write(f"for row in {x}:\n    row.{w.one_of('add_(1)', 'mul_(2)', 'zero_()')}")
    elif way == 4:
        w.make("t", f"sum(row * {number(w)} for row in {x})")
    elif way == 5:
        w.write(f"@torch.no_grad()\ndef {name}(u, v):\n    s = {one}\n    {two}\n    return s")
        w.make("t", f"{name}({x}, {y})")
    elif way == 6:
        w.make("t", f"copy.deepcopy({x})")
    elif way == 7:
        w.make("t", f"[{x} * k for k in range(3)][1]")
    else:
        w.write(f"{x}, {y} = {y}, {x}")


def resized(w: Writer) -> None:
    """Tensors whose window or memory is exchanged: nothing that people write."""
    if not w.rare:
        return
    plain = w.kinds_of(torch.Tensor, lambda t: not t.requires_grad and not t._is_view())
    # No growing (an array on the old memory would point to nothing: NumPy writes would crash), and no set_ on a view of
    # a tensor with a history (torch hangs when its is_leaf is read).
    if not plain:
        return
    x = plain[w.digit(len(plain))]
    sized = [f"{x}.resize_({min(w.names[x].numel(), 2)})", f"{x}.resize_({x}.shape)", f"{x}.resize_(0)"]
    given = [f"{x}.set_({plain[w.digit(len(plain))]})", f"{x}.set_()", f"{x}.set_({x}.clone())"]
    w.write(w.one_of(*sized, *given))


def unmodelled(w: Writer) -> None:
    """Operations, types and layouts for which the shadow has no model."""
    if not w.alone:
        w.make("t", filled(w, UNMODELLED[w.digit(len(UNMODELLED))]))


@cache
def kinds() -> tuple[Maker, ...]:
    """All kinds of steps, as often as they shall be drawn; the first writes nothing."""
    weights: tuple[tuple[Maker, int], ...] = (
        (create, 7),
        (bound("t", VIEWS, RARE_VIEWS), 13),
        (bound("t", PURE), 18),
        (done(WRITES), 18),
        (sample, 20),
        (backward, 8),
        (gradients, 3),
        (done(LEAVES), 4),
        (mode, 5),
        (done(SILENT), 3),
        (arrays, 3),
        (done(LOOKS), 3),
        (forward, 5),
        (net, 2),
        (optimizer, 4),
        (compound, 4),
        (resized, 1),
        (unmodelled, 1),
    )
    return (nothing, *(kind for kind, weight in weights for _ in range(weight)))
