"""Stand-alone: the same text on torch and on ``pitfall_lab.shadow.facade``, with everything that can be seen
compared after each statement.

The shadow runs each statement first. Where it has no model the statement is left out on both sides, if nothing has
changed by then. After a comparison that came out equal up to rounding, the shadow goes on with torch's numbers: a
difference in the last place must not grow into one that is seen.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import io
import math
import re
import warnings
from collections import Counter
from types import CodeType
from typing import Any
from weakref import WeakSet

import numpy as np
import torch

from pitfall_lab.observe.release import RUNNING
from pitfall_lab.shadow import Node, ShadowError, ShadowTensor
from pitfall_lab.shadow import facade as shadow_torch
from pitfall_lab.shadow.errors import Unmodelled
from pitfall_lab.shadow.facade.tensors import engine
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.rounding import Rounding
from pitfall_lab.verify.compare_memory import PRECISE
from pitfall_lab.verify.json_values import equal, near
from tests.fuzz.lockstep import ADDRESS, Result
from tests.shadow.side_by_side import saved_names, short, state

PRODUCTS = {name.rpartition(".")[2] for name, entry in ENTRIES.items() if "products" in entry.traits}
MULTIPLIES = re.compile(rf"@|\b({'|'.join(sorted(PRODUCTS))})\b")
LEFT_OUT = re.compile(
    r"^the shadow engine has no |^module 'pitfall_lab\.shadow\.facade\.nn' has no attribute "
    r"'(GRU|LSTM|RNN|MultiheadAttention)'$|^'_Memory' object has no attribute|object has no "
    r"attribute 'register_prehook'$"
)
"""What the stand-alone shadow says itself that it has no model of, and what it does not have: layers with flat weights,
a storage that can be written, hooks that run before a node. Anything else that it lacks is a difference.
"""


class Difference(Exception):
    """The two engines differ."""


class Declined(Exception):
    """The shadow has no model for a statement that had already changed something."""


def check(text: str) -> Result:
    """Run a program on both engines, statement by statement."""
    result = Result(counts=Counter(programs=1))
    pair = Pair(result.counts)
    torch.default_generator.manual_seed(0)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            pair.block(ast.parse(text).body)
            pair.compare_saved()
        except Difference as difference:
            result.problems.append(str(difference))
        except Declined:
            result.counts["programs cut short by a declined statement"] += 1
        finally:
            torch.set_grad_enabled(True)
    return result


class Pair:
    """Two worlds that run one program."""

    def __init__(self, counts: Counter[str]) -> None:
        shadow_torch.reset(release=RUNNING)
        self.counts = counts
        self.scale = 0.0
        self.coarsest = "float64"
        """The least precise type among the tensors that the statement names: what goes
        through it is rounded like it.
        """
        self.rounding = Rounding()
        """What rounding can have done to the gradients of the last backward."""
        self.torch: dict[str, Any] = {"__name__": "__main__"}
        self.shadow: dict[str, Any] = {
            "__name__": "__main__",
            "__builtins__": {**vars(builtins), "__import__": shadow_import},
        }
        self.nodes: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
        self.seen: WeakSet[ShadowTensor] = WeakSet()
        self.rows: tuple[list[Any], list[Any]] = ([], [])

    def block(self, body: list[ast.stmt]) -> None:
        """Run statements; blocks that set a mode, ``try`` and counted loops are entered so that their
        statements are compared one by one.
        """
        for statement in body:
            if isinstance(statement, ast.With) and statement.items[0].optional_vars is None:
                self.block_with(statement)
            elif isinstance(statement, ast.Try):
                self.block(statement.body)
            elif (
                isinstance(statement, ast.For)
                and isinstance(statement.iter, ast.Call)
                and ast.unparse(statement.iter.func) == "range"
            ):
                # An optimizer divides gradients by their size: the rounding of one that
                # cancels must not reach its step.
                for _ in eval(ast.unparse(statement.iter)):
                    self.block(statement.body)
            else:
                self.statement(statement)

    def block_with(self, statement: ast.With) -> None:
        """A ``with`` block around a mode."""
        code = compile(ast.Expression(statement.items[0].context_expr), "program.py", "eval")
        with eval(code, self.shadow), eval(code, self.torch):
            self.block(statement.body)

    def statement(self, statement: ast.stmt) -> None:
        """Run one statement on the shadow, then on torch, and compare."""
        text = ast.unparse(statement)
        code = compile(ast.Module([statement], []), "program.py", "exec")
        before = self.largest(statement)
        if re.search(
            r"\.sum\(\)(?!$|\.backward)", text
        ):  # a sum inside the statement is rounded relative to all that it adds up, which may cancel
            before *= max(1.0, self.total(statement))
        if MULTIPLIES.search(text):  # so is what a product of matrices adds up
            before *= max(1.0, self.total(statement))
        mine = attempt(code, self.shadow)
        if mine is not None and is_unknown(mine):
            self.counts["statements declined"] += 1
            try:
                self.compare(text)
                self.compare_saved()
            except Difference:
                raise Declined from None
            return
        theirs = attempt(code, self.torch)
        self.counts["statements"] += 1
        self.counts["statements compared"] += 1
        if (theirs is None) != (mine is None) or (theirs is not None and said(theirs) != said(mine)):
            self.counts["errors missed"] += 1
            raise Difference(f"{text}\n torch  {theirs!r}\n shadow {mine!r}")
        self.counts["errors predicted"] += theirs is not None
        self.scale = max(before, self.largest(statement))
        self.rounding = Rounding(engine().arrived)
        self.compare(text)

    # -- comparing

    def largest(self, statement: ast.stmt) -> float:
        """The largest number in the tensors that a statement names: rounding errors are relative to it."""
        named = [self.torch.get(node.id) for node in ast.walk(statement) if isinstance(node, ast.Name)]
        values = [tensor for value in named for tensor in held_by(value)]
        # What an optimizer keeps of its steps stays as it is when the parameters become doubles.
        kept = [
            t
            for value in named
            if isinstance(value, torch.optim.Optimizer)
            for p in value.state.values()
            for key, t in p.items()
            if key != "step"
        ]
        types = {t.dtype for t in (*values, *kept) if isinstance(t, torch.Tensor)}
        self.coarsest = next(
            (name for name in ("bfloat16", "float16", "float32") if getattr(torch, name) in types), "float64"
        )
        floats = [t.detach() for t in values if isinstance(t, torch.Tensor) and t.is_floating_point()]
        arrays = [(t.float() if t.dtype is torch.bfloat16 else t).numpy() for t in floats if t.numel()]
        return max((float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in arrays), default=0.0)

    def total(self, statement: ast.stmt) -> float:
        """The sum of the sizes of the tensors that a statement names."""
        named = {
            self.torch.get(node.id)
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(self.torch.get(node.id), torch.Tensor)
        }
        sizes = [
            t.detach().double().abs().nan_to_num(posinf=0).sum().item()
            for t in named
            if t is not None and t.is_floating_point()
        ]
        return max(sizes, default=0.0)

    def compare(self, text: str) -> None:
        """Compare everything the program has names for."""
        given, mine = ({name for name in names if not name.startswith("__")} for names in (self.torch, self.shadow))
        if given != mine:
            raise Difference(f"{text}\n torch has the names {sorted(given)}\n shadow {sorted(mine)}")
        homes: tuple[dict[int, Any], dict[Any, int]] = ({}, {})
        for name, theirs in list(self.torch.items()):
            for label, u, v in parts(name, theirs, self.shadow.get(name)):
                self.compare_tensor(f"{text}\n{label}", u, v, homes)

    def compare_tensor(self, what: str, u: Any, v: Any, homes: tuple[dict[int, Any], dict[Any, int]]) -> None:
        """Compare two tensors, with their gradients."""
        if not isinstance(u, torch.Tensor) or not isinstance(v, shadow_torch.Tensor):
            if isinstance(u, np.ndarray) and isinstance(v, np.ndarray):
                self.compare_numbers(what, u, v, None)
            elif type(u) is not type(v) or (
                isinstance(u, int | float | str) and u != v and not (isinstance(u, float) and is_near(u, v))
            ):
                raise Difference(f"{what}: torch {u!r}, shadow {v!r}")
            return
        mine = v.shadow
        if mine.loose and (mine.stride, mine.offset) != (
            u.stride(),
            u.storage_offset(),
        ):  # how it lies in memory is not predicted
            mine.lay_out(u.stride(), u.storage_offset(), u.untyped_storage().nbytes() // u.element_size())
        if mine.loose and mine not in self.seen and mine.counter is not None and not u.is_inference():
            mine.counter.version = u._version
        self.seen.add(mine)
        one = self.facts(u)
        other = self.shadow_facts(mine)
        if not mine.loose:
            memory, own = u.untyped_storage()._cdata, mine.storage
            if homes[0].setdefault(memory, own) is not own or homes[1].setdefault(own, memory) != memory:
                raise Difference(f"{what}: only one of them shares its memory with another tensor")
        if one != other:
            if one["is_view"] and mine.received:
                # Whether a gradient from autograd.grad is a view of another one is not modelled.
                one["is_view"] = other["is_view"]
            if what.endswith(".grad") and mine.window() is None:
                one["version"] = other["version"]  # so is, for an unknown gradient, whether it was copied
            wrong = [f"{k}: torch {one[k]}, shadow {other[k]}" for k in one if one[k] != other[k]]
            if wrong:
                raise Difference(f"{what}\n " + "\n ".join(wrong))
        if mine.window() is not None:  # of bfloat16 the shadow follows none
            with torch.no_grad():
                seen = u.detach().resolve_conj().resolve_neg()
                # Memory that an array looks at may not be resized any more: an empty result of out= would feel our
                # look. So may zeros without memory of their own not be turned into an array.
                self.compare_numbers(
                    what,
                    (seen if seen.numel() and not seen._is_zerotensor() else seen.clone()).numpy(),
                    mine.window(),
                    mine,
                    self.scale,
                )
        if isinstance(one["is_leaf"], bool) and (u.is_leaf or u.retains_grad):
            theirs, gradient = u.grad, mine.gradient
            if (theirs is None) != (gradient is None):
                raise Difference(f"{what}.grad: torch {theirs}, shadow {gradient}")
            if theirs is not None and gradient is not None and theirs is not u:
                self.compare_tensor(what + ".grad", theirs, shadow_torch.Tensor.of(gradient), homes)

    def compare_numbers(
        self, what: str, theirs: np.ndarray, mine: np.ndarray | None, shadow: ShadowTensor | None, scale: float = 0
    ) -> None:
        """Equal up to rounding, relative to the largest number involved; then the shadow takes torch's."""
        if mine is None:
            return
        if theirs.dtype != mine.dtype or theirs.shape != mine.shape:
            raise Difference(f"{what}: torch has {theirs.dtype} {theirs.shape}, shadow {mine.dtype} {mine.shape}")
        if theirs.tobytes() == mine.tobytes():
            return
        finite = np.abs(theirs[np.isfinite(theirs)])
        scale = max(scale, float(finite.max(initial=0)))
        through = next((name for name in PRECISE.get(theirs.dtype.name, ()) if name == self.coarsest), None)
        coarse = theirs.dtype.name if shadow is None or through is None else through
        if shadow is not None and self.rounding.knows(shadow.storage):
            same = near(theirs, mine, theirs.dtype.name) or near(
                theirs, mine, theirs.dtype.name, self.rounding.within(shadow)
            )
        else:
            same = equal(theirs, mine, coarse, scale)
        if not same:
            raise Difference(f"{what}\n torch  {theirs.tolist()}\n shadow {mine.tolist()}")
        if shadow is not None:
            mine[...] = theirs

    def facts(self, t: torch.Tensor) -> dict[str, Any]:
        """What can be seen of a tensor of torch's."""
        fn = attempted(lambda: t.grad_fn)
        return {
            "shape": tuple(t.shape),
            "stride": tuple(t.stride()),
            "offset": t.storage_offset(),
            "dtype": str(t.dtype),
            "requires_grad": t.requires_grad,
            "version": None if t.is_inference() else t._version,
            "is_view": t._is_view(),
            "inference": t.is_inference(),
            "is_leaf": fn if isinstance(fn, str) else fn is None,
            "grad_fn": fn if isinstance(fn, str) else self.graph(fn, 0),
            "output_nr": None if isinstance(fn, str) else t.output_nr,
        }

    def shadow_facts(self, t: ShadowTensor) -> dict[str, Any]:
        """The same of a tensor of the shadow's."""
        try:
            fn = attempted(lambda: t.grad_fn)
        except Unmodelled:  # a history about which torch itself stumbles
            raise Declined from None
        return {
            "shape": t.shape,
            "stride": t.stride,
            "offset": t.offset,
            "dtype": str(t.dtype),
            "requires_grad": t.requires_grad,
            "version": None if t.inference else t.version,
            "is_view": t.view is not None,
            "inference": t.inference,
            "is_leaf": fn if isinstance(fn, str) else fn is None,
            "grad_fn": fn if isinstance(fn, str) else self.graph(fn, 1),
            "output_nr": None if isinstance(fn, str) else t.output_nr,
        }

    def graph(self, fn: Any, side: int) -> Any:
        """The number of a node; what is new behind it is numbered and described, in one order on both sides."""
        if fn is None:
            return None
        known, rows = self.nodes[side], self.rows[side]
        first = len(rows)
        stack = [fn]
        while stack:
            node = stack.pop()
            if node in known:
                continue
            known[node] = len(known)
            edges = node.next if side else node.next_functions
            name = node.name if side else node.name()
            rows.append(
                (
                    short(name),
                    [(None if c is None else short(c.name if side else c.name()), k) for c, k in edges],
                    kept(node, side),
                )
            )
            stack.extend(c for c, _ in reversed(edges) if c is not None)
        return known[fn], rows[first:]

    def compare_saved(self) -> None:
        """At the end: what each node still holds, and what it says of it."""
        for (u, number), (v, _) in zip(self.nodes[0].items(), self.nodes[1].items(), strict=True):
            # Reading a saved input that was detached in place is allowed (only backward refuses),
            # and then its version is told.
            detached = {s.name for s in v.saved if s.has_node and s.tensor is not None and s.tensor.node is None}
            one, other = (
                [row for row in kept(x, side) if row.split(":")[0] not in detached] for side, x in enumerate((u, v))
            )
            if one != other:
                raise Difference(f"at the end, node {number} ({u.name()}) holds\n torch  {one}\n shadow {other}")


def kept(node: Any, side: int) -> list[str]:
    """Which tensors a node has saved, and the error that reading them gives."""
    if not side:
        return saved_names(node) if short(node.name()) != "CopySlices" else []
    assert isinstance(node, Node)
    if node.name == "CopySlices":
        return []
    return sorted(
        {
            f"{re.sub('[0-9]+$', '', s.name) if s.name.startswith('indices') else s.name}{state(node, s)}"
            for s in node.saved
        }
    )


def is_near(one: float, other: float) -> bool:
    """Whether two plain numbers are the same up to rounding."""
    return (math.isnan(one) and math.isnan(other)) or abs(one - other) <= 1e-5 * abs(one)


def held_by(value: Any) -> list[Any]:
    """A value; of an optimizer the parameters that its steps may bring close to zero, of a module
    those that it multiplies by.
    """
    if isinstance(value, torch.nn.Module):
        return list(value.parameters())
    return (
        [p for group in value.param_groups for p in group["params"]]
        if isinstance(value, torch.optim.Optimizer)
        else [value]
    )


def parts(name: str, theirs: Any, mine: Any) -> list[tuple[str, Any, Any]]:
    """The things behind a name that are compared."""
    if isinstance(theirs, torch.nn.Module):
        return [
            (f"{name}.{key}", p, q)
            for (key, p), (_, q) in zip(theirs.named_parameters(), mine.named_parameters(), strict=True)
        ]
    if isinstance(theirs, torch.Tensor | np.ndarray | int | float | str):
        return [(name, theirs, mine)]
    return []


def attempt(code: CodeType, names: dict[str, Any]) -> Exception | None:
    """Run a statement; the error it raised, without its frames."""
    try:
        exec(code, names)
    except Exception as error:
        return error.with_traceback(None)
    return None


def is_unknown(error: Exception) -> bool:
    """Whether the shadow said that it does not know."""
    if hasattr(error, "shadow"):
        return False  # a prediction, of whatever type
    return isinstance(error, NotImplementedError) or (
        isinstance(error, AttributeError) and LEFT_OUT.search(str(error)) is not None
    )


def said(error: Exception | None) -> tuple[str, str]:
    """The type and the first sentence of an error."""
    return type(error).__name__, ADDRESS.sub("0x", str(error).split("\n")[0].split(" Hint:")[0])


def attempted(function: Any) -> Any:
    """A value, or the first line of the error."""
    try:
        return function()
    except RuntimeError as error:
        return str(error).split("\n")[0]
    except ShadowError as error:
        return error.message.split("\n")[0]


STAND_INS = {**shadow_torch.modules(), "copy": copy}


def shadow_import(module: str, names: Any = None, local: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """``import`` in the shadow's world."""
    if module in STAND_INS and module.startswith("torch"):
        return STAND_INS[module if fromlist else "torch"]
    if module == "torch.nn.functional":
        return shadow_torch.nn.functional
    return builtins.__import__(module, names, local, fromlist, level)
