"""Lists all operations of torch by name: those that the shadow models (:func:`modelled`), with their samples, and the
others (:func:`mirrored`), with a call that works.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch

from pitfall_lab.observe.torch_names import is_quiet, name_of
from pitfall_lab.shadow.ops import ENTRIES, Op
from pitfall_lab.shadow.ops.operands import named
from pitfall_lab.verify.experiments.saved_tensors import CannotRun, ExperimentRun, Study, study

VERSION = str(torch.__version__)
PREFIXES = (
    "",
    "torch.",
    "torch.Tensor.",
    "torch.nn.functional.",
    "torch.functional.",
    "torch.linalg.",
    "torch.special.",
    "torch.fft.",
)
#: Operands to try on an operation without samples, the simplest first; ``h`` replaces ``a`` where
#: the operation writes in place.
CALLS = (
    "a", "a, b", "s", "img", "a, w", "a, 2", "a, 0", "a, 0, 1", "c, c", "s, c", "s, s", "a, b, b", "s, w, w", "img, 2",
    "s, 2", "a, m", "a, i", "a, 0, i", "a, (2, 3)", "n", "n, n", "n, 1", "w", "2, a", "(a, b)", "[s, s]", "seq, seq",
    "s, c, c", "c, s, c", "s, s, s", "seq, seq, seq", "a, a.detach()",
    "torch.stack([s, s]), torch.stack([s, s]), torch.stack([s, s])", "a, m, b", "a, 0, n - n, b", "a, b, 0",
    "a, b, 0, 0", "a, c, 0, 0", "a, p, p", "a, c, (3,), (1,)", "a, 0, i, b, 'amax'", "a, 0, n - n, b, 'sum'",
    "a, 2, 0, 1.0", "a, i, torch.ones(2)", "a, [1, 1]", "a, [1, 1], 0", "img, img[..., :2]",
    "img, img[..., :2], 0, 0, False", "(2, 3)", "3", "0.0, p", "a, (2, 2)", "img, (2, 2)", "d4.abs(), 1",
    "a, b, torch.ones(2)", "torch.complex(a, b)",
)  # fmt: skip
ELSEWHERE = re.compile(
    r"^_|^grad$|cudnn|miopen|mkldnn|fbgemm|quantize|fake_quant|q_(per|scale|zero)|sparse|autocast|sym_|int_repr|choose"
    r"_qparams|batch_norm_|record_stream|from_file|is_vulkan|fused_moving|[ct]s[cr]_|bs[cr]_|crow|ccol|col_indices|row"
    r"_indices|smm|_copy$|cuda|xpu|ipu|mtia|pin_memory|module_load|conv_tbc|register_|set_|apply_$|map2?_$|share_memor"
    r"y|rnn|lstm|gru|as_subclass|reinforce|resize|lobpcg|symeig|grouped_mm|scaled_mm|to_padded|nonzero_static"
)
"""Names that are not tried: they need other hardware, other layouts or callbacks, are private to torch, or no longer
exist.
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of torch: ``names`` are its qualified names, ``topic`` is its topic (of an operation that is not
    modelled: the part of the name before its last dot), ``entry`` its entry in the shadow (None if it has no model).
    """

    names: tuple[str, ...]
    topic: str
    entry: Op | None = None

    def studies(self) -> list[Study]:
        """Return one study for each sample that creates other nodes than the samples before it, at most four; an empty
        list if no call is known.

        Samples in which other operations are used are left out, if there are others; without samples, calls are
        guessed. If no sample creates a node, one study of the first that runs.
        """
        samples = self.entry.samples if self.entry else ()
        calls = [code for code in samples if direct(code)]
        if not any("inplace" not in code for code in calls):
            calls = [*guesses(self.names[0]), *calls] or list(samples)
        runs = {code: nodes for code in calls if (nodes := made(code)) is not None}
        # a sample that creates a node shows most
        first = {nodes: code for code, nodes in reversed(runs.items()) if nodes}
        chosen = [code for code in runs if code in first.values()] or list(runs)[:1]
        return [study(code) for code in chosen[:4]]


def direct(code: str) -> bool:
    """Whether an expression applies a single operation directly to operands (the names that samples use), so that every
    node it creates belongs to that operation.

    >>> direct("torch.add(a, b, alpha=2)"), direct("a[i]"), direct("torch.exp(a * 3)"), direct("h[0].mul_(2)")
    (True, True, False, False)
    """
    whole = ast.parse(code, mode="eval").body
    inside = [part for part in ast.walk(whole) if part not in (whole, getattr(whole, "func", None))]
    return not any(
        isinstance(part, ast.Call | ast.BinOp | ast.Subscript | ast.Attribute) and named(ast.unparse(part))
        for part in inside
    )


def made(code: str) -> tuple[str, ...] | None:
    """Return the names of the graph nodes that an expression creates, nearest to the result first; empty if it creates
    none, None if it raises or returns no tensor.
    """
    try:
        run = ExperimentRun(torch, code)
        return tuple(node.name for node in run.nodes()) if run.results else None
    except (CannotRun, RuntimeError):
        return None


def guesses(name: str) -> Iterator[str]:
    """Yield at most one call, as an expression, of the operation ``name`` that torch accepts: the first of
    :data:`CALLS` that creates a node, else the first that runs.

    Nothing for the operations of :data:`ELSEWHERE`.
    """
    found = None
    if ELSEWHERE.search(name.rsplit(".", maxsplit=1)[-1]):
        return
    for operands in CALLS:
        code = called(name, re.sub(r"\ba\b", "h", operands) if name.endswith("_") else operands)
        nodes = None if code is None else made(code)
        if code is not None and nodes:
            yield code
            return
        if found is None and nodes is not None:
            found = code
    if found is not None:
        yield found


def called(name: str, operands: str) -> str | None:
    """Return an expression that calls the function or method with the qualified name ``name``; None if it is a method
    and the first operand is no name, or a property and there are several operands.

    >>> called("torch.Tensor.copysign", "a, b"), called("torch.Tensor.H.__get__", "a")
    ('a.copysign(b)', 'a.H')
    """
    if not name.startswith("torch.Tensor."):
        return f"{name.replace('torch.nn.functional.', 'F.').replace('torch.functional.', 'torch.')}({operands})"
    first, _, rest = operands.partition(", ")
    if not first.isidentifier():
        return None
    method = name.removeprefix("torch.Tensor.")
    if method.endswith(".__get__"):
        return None if rest else f"{first}.{method.removesuffix('.__get__')}"
    return f"{first}.{method}({rest})"


@cache
def modelled() -> tuple[Operation, ...]:
    """Return the operations that the shadow models, sorted by topic (the file that contains their entry)."""
    entries = {id(entry): entry for entry in ENTRIES.values()}.values()
    found = [Operation(entry.names, entry.run.__module__.rsplit(".", maxsplit=1)[-1], entry) for entry in entries]
    return tuple(sorted(found, key=lambda operation: operation.topic))


@cache
def mirrored() -> tuple[Operation, ...]:
    """Return the public functions and methods of torch of which the shadow has no model, so that it uses torch's
    results; without those whose calls are not recorded (:func:`is_quiet`).

    A function and the method with its name count as one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions = torch.overrides.get_testing_overrides()
    names = {name_of(function) for function in functions}
    public = {
        n for n in names if n.startswith("torch.") and "._" not in n.removesuffix(".__get__") and "distributed" not in n
    }
    public = {n for n in public if n not in ENTRIES and not is_quiet(n)}
    found = []
    for name in sorted(public, key=lambda n: (n.rpartition(".")[0], n)):
        function = name.replace("torch.Tensor.", "torch.")
        if name != function and function in public:
            continue
        method = name.replace("torch.", "torch.Tensor.", 1)
        both = (name, method) if method in public and name != method else (name,)
        found.append(Operation(both, name.removesuffix(".__get__").rpartition(".")[0]))
    return tuple(found)


def topic_words(topic: str) -> str:
    """Return the description of a ``topic`` of modelled operations (:func:`modelled`): the first paragraph of its
    file's docstring. KeyError is raised for any other topic.
    """
    said = sys.modules[f"pitfall_lab.shadow.ops.{topic}"].__doc__ or topic
    return " ".join(said.split("\n\n", maxsplit=1)[0].split())


def find(word: str) -> list[Operation]:
    """Return the operations with the name ``word``, as users write it: ``exp``, ``mul_``, ``Tensor.view``,
    ``F.layer_norm``, ``torch.cdist``.

    An empty list if there are none.
    """
    known = {name: operation for operation in (*modelled(), *mirrored()) for name in operation.names}
    spelled = re.sub(
        r"^nn\.", "torch.nn.", re.sub(r"^Tensor\.", "torch.Tensor.", re.sub(r"^F\.", "torch.nn.functional.", word))
    )
    short = (
        spelled.removeprefix("torch.").removeprefix("functional.") if not spelled.startswith("torch.nn") else spelled
    )
    hits = [known[name] for name in (spelled, f"{spelled}.__get__") if name in known]
    hits = hits or [
        known[n + end] for n in (p + short for p in PREFIXES) for end in ("", ".__get__") if n + end in known
    ]
    return list({id(hit): hit for hit in hits}.values())


def is_module(word: str) -> bool:
    """Whether a name is that of a module class of ``torch.nn`` (``nn.Linear``)."""
    name = word.rsplit(".", maxsplit=1)[-1]
    found = getattr(torch.nn, name, None)
    return isinstance(found, type) and issubclass(found, torch.nn.Module)


def near(word: str) -> list[str]:
    """Return up to three short names of operations (``softmax``) that are similar to the last part of ``word``, the
    most similar first; an empty list if none is.
    """
    last = {}
    for operation in (*mirrored(), *modelled()):
        for name in operation.names:
            last[name.removesuffix(".__get__").rsplit(".", maxsplit=1)[-1]] = name
    return difflib.get_close_matches(word.rsplit(".", maxsplit=1)[-1], last, 3, 0.7)
