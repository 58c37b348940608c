"""Finds by experiment what an operation saves for backward, and which later in-place write makes backward raise
(:func:`study`).

No table is used: the operation runs, one of its tensors is overwritten, and backward runs; it raises or it does not.
This is repeated for each of its tensors and each choice of operands that require gradients. The same experiments run on
torch and, if the operation is modelled, on the shadow; :func:`study` compares the two.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from pitfall_lab.observe.release import RUNNING
from pitfall_lab.shadow import facade as shadow_torch
from pitfall_lab.shadow.facade.tensors import GradFn
from pitfall_lab.shadow.facade.tensors import Tensor as ShadowFacade
from pitfall_lab.shadow.ops.operands import definitions, named

MODIFIED = "has been modified by an inplace operation"
Tensors = dict[str, Any]


class CannotRun(Exception):
    """Raised if the expression raises an error or returns no tensor, or the shadow has no model for it; the text is the
    reason.
    """


@dataclass(frozen=True, slots=True)
class CreatedNode:
    """One node that the operation created: its ``name``, and in ``slots``, for each saved tensor, the slot (torch's
    name for it, ``result``) and the owner of its memory.

    The owner is ``"a"`` (an operand), ``"result"``, ``"view of a"``, ``"inside"`` (a leaf created inside the
    expression), ``"own"`` (memory of no operand or result), or ``"lost"`` if the operation itself has overwritten what
    it had saved.
    """

    name: str
    slots: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """The experiments in which the operands in ``wanting`` (names) require gradients; ``nodes`` are the nodes that the
    operation then created.

    ``results`` has for each result whether it is ``"new"``, ``"same a"`` (the tensor itself), ``"view a"``, ``"memory
    a"`` (same storage and version counter) or ``"memory a, own counter"``. ``bumps`` are the operands whose version
    increased, and by how much. ``writes`` has, for each tensor, the first sentence of the error that backward raised
    after that tensor was overwritten, or None; ``alone`` is the error that backward raises with nothing overwritten, or
    None. ``writes`` is empty if there is such an error, or no node was created.
    """

    wanting: frozenset[str]
    results: dict[str, str]
    bumps: dict[str, int]
    nodes: tuple[CreatedNode, ...] = ()
    writes: dict[str, str | None] = field(default_factory=dict)
    alone: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """When something holds: always (no names), or if any of the operands ``names`` (all of them, with ``together``)
    requires gradients. ``unclear``: it holds in some cases that neither describes.
    """

    names: tuple[str, ...] = ()
    together: bool = False
    unclear: bool = False


Rows = list[tuple[str, Condition]]


@dataclass(frozen=True, slots=True)
class Study:
    """The results for the expression ``code``: ``trials`` are its experiments, the first with every operand requiring
    gradients that can.

    ``missing``: why the shadow has no model (None: it has one); ``differences``: one sentence for each point in which
    the model is wrong.
    """

    code: str
    trials: tuple[Experiment, ...]
    missing: str | None = None
    differences: tuple[str, ...] = ()

    @property
    def main(self) -> Experiment:
        """The experiment in which every operand that can require gradients does."""
        return self.trials[0]

    def saved(self) -> list[tuple[str, Rows]]:
        """Return, for each name of a node, nearest to the result first: the name, and what nodes of this name save (in
        the terms of :class:`CreatedNode`), each with the condition under which they do.
        """
        rows = []
        for name in dict.fromkeys(node.name for trial in self.trials for node in trial.nodes):
            kept = [
                {what for node in trial.nodes if node.name == name for _, what in node.slots} for trial in self.trials
            ]
            every = dict.fromkeys(what for k in kept for what in sorted(k))
            found = [(what, self._when([what in k for k in kept], self.trials)) for what in every]
            rows.append((name, [(what, condition) for what, condition in found if condition is not None]))
        return rows

    def breaking(self) -> Rows:
        """Return the tensors that must not be overwritten before backward, as torch's version check raises, each with
        the condition under which it does; an empty list if there are none.
        """
        return self._written(lambda text: MODIFIED in text)

    def refused(self) -> Rows:
        """Return the tensors whose overwriting makes backward raise another error than that of the version check, each
        with the condition under which it does; an empty list if there are none.
        """
        return self._written(lambda text: MODIFIED not in text)

    def harmless(self) -> list[str]:
        """Return the tensors (expressions) whose overwriting before backward raised no error in any experiment; an
        empty list if there are none.
        """
        every = dict.fromkeys(name for trial in self.trials for name in trial.writes)
        return [name for name in every if all(trial.writes.get(name) is None for trial in self.trials)]

    def alone(self) -> tuple[str, Condition] | None:
        """Return the error that backward raises although no tensor was overwritten, and under which condition; None if
        it raises none.
        """
        condition = self._when([t.alone is not None for t in self.trials], self.trials)
        return None if condition is None else (next(t.alone for t in self.trials if t.alone), condition)

    def _written(self, holds: Callable[[str], bool]) -> Rows:
        rows = []
        sound = [t for t in self.trials if t.alone is None]
        for name in dict.fromkeys(name for t in sound for name in t.writes):
            errors = [t.writes.get(name) for t in sound]
            condition = self._when([text is not None and holds(text) for text in errors], sound)
            if condition is not None:
                rows.append((name, condition))
        return rows

    def _when(self, holds: list[bool], trials: Sequence[Experiment]) -> Condition | None:
        """The simplest condition on the operands under which ``holds`` (one value for each experiment) is true; None if
        it never is.
        """
        everywhere = [t.wanting for t in trials if t.nodes]
        hits = [t.wanting for t, true in zip(trials, holds, strict=True) if t.nodes and true]
        if not hits:
            return None
        if hits == everywhere:
            return Condition()
        operands = sorted(self.main.wanting)
        choices = [c for size in range(1, len(operands) + 1) for c in itertools.combinations(operands, size)]
        for chosen in choices:
            if [w for w in everywhere if w & set(chosen)] == hits:
                return Condition(chosen)
        for chosen in choices:
            if [w for w in everywhere if w >= set(chosen)] == hits:
                return Condition(chosen, together=True)
        return Condition(unclear=True)


def study(code: str, *, conditions: bool = True) -> Study:
    """Run the experiments for the expression ``code`` over the operands of the samples; raises :class:`CannotRun` if
    torch raises an error or returns no tensor.

    Without ``conditions``, only the experiment is run in which every operand that can require gradients does.
    """
    trials = tuple(_trials(torch, code, conditions))
    try:
        models = tuple(_trials(shadow_torch, code, conditions))
    except CannotRun as reason:
        return Study(code, trials, missing=str(reason.__cause__ or reason))
    return Study(code, trials, differences=tuple(_differences(trials, models)))


def _differences(real: tuple[Experiment, ...], model: tuple[Experiment, ...]) -> Iterator[str]:
    if len(real) != len(model):
        yield f"torch makes {'a' if real[0].nodes else 'no'} node, the shadow {'one' if model[0].nodes else 'none'}"
        return
    for one, two in zip(real, model, strict=True):
        for part in Experiment.__slots__:
            x, y = getattr(one, part), getattr(two, part)
            if x != y:
                yield (
                    f"{part} with {', '.join(sorted(one.wanting)) or 'nothing'} requiring a gradient: "
                    f"torch {x}, shadow {y}"
                )


def demonstration(of: Study) -> tuple[str, str] | None:
    """Return a program in which a later write makes backward raise, and torch's error message; None if no write does.
    Raises ``AssertionError`` if the program raises no error.
    """
    name = next((name for name, _ in of.breaking()), None)
    if name is None:
        return None
    trial = next(t for t in of.trials if MODIFIED in (t.writes.get(name) or ""))
    run = ExperimentRun(torch, of.code, of.main.wanting - trial.wanting)
    losses = [f"{label}.real.sum()" if t.is_complex() else f"{label}.sum()" for label, t in run.flowing().items()]
    lines = [
        "import torch",
        *(["import torch.nn.functional as F"] if re.search(r"\bF\.", of.code) else []),
        "",
        definitions(of.code),
        *(f"{operand} = {operand}.detach()" for operand in sorted(of.main.wanting - trial.wanting)),
        f"result = {of.code}" if run.value is not None else of.code,
        "with torch.no_grad():",
        f"    {name}.zero_()",
        f"{losses[0]}.backward()" if len(losses) == 1 else f"({' + '.join(losses)}).backward()",
    ]
    program = "\n".join(lines) + "\n"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(program, "<demonstration>", "exec"), {})  # noqa: S102 - our own lines around an expression that has just been run
    except RuntimeError as error:
        return program, str(error)
    raise AssertionError(f"no error from\n{program}")


# -- one engine


def _trials(module: ModuleType, code: str, conditions: bool) -> Iterator[Experiment]:
    run = ExperimentRun(module, code)
    if not run.results:
        raise CannotRun("it returns no tensor")
    wanting = frozenset(name for name, (_, requires_grad, _) in run.before.items() if requires_grad)
    first = _trial(module, code, wanting, wanting)
    yield first
    if first.nodes and conditions:
        yield from (_trial(module, code, wanting, fewer) for fewer in _fewer(wanting))


def _fewer(wanting: frozenset[str]) -> Iterator[frozenset[str]]:
    """Other choices of operands that require gradients: all for up to three operands, else each one alone and all but
    one.
    """
    names = sorted(wanting)
    sizes = range(1, len(names)) if len(names) < 4 else (1, len(names) - 1)
    for size in sizes:
        yield from map(frozenset, itertools.combinations(names, size))


class ExperimentRun:
    """One run of the expression ``code`` on new operands, in ``module`` (torch or the shadow's counterpart); the
    operands named in ``plain`` do not require gradients. Raises :class:`CannotRun` if it raises an error.

    ``value`` is what the expression returned, ``made`` the tensors in it by the expressions for them, ``bumps`` the
    operands whose version increased, and by how much.
    """

    def __init__(self, module: ModuleType, code: str, plain: frozenset[str] = frozenset()) -> None:
        if module is shadow_torch:
            shadow_torch.reset(release=RUNNING)
        names: dict[str, Any] = {"torch": module, "F": module.nn.functional}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(definitions(code), names)  # noqa: S102 - our own operands
                names |= {name: names[name].detach() for name in plain}
                self.operands: Tensors = {name: names[name] for name in named(code)}
                self.before = {name: (t._version, t.requires_grad, t.grad_fn) for name, t in self.operands.items()}
                self.value = eval(code, names)  # noqa: S307 - a sample, or the expression that the user typed
            except Exception as problem:
                first = (str(problem).strip() or "no message").splitlines()[0]
                raise CannotRun(f"{type(problem).__name__}: {first}") from problem
        self.made = dict(_labelled(self.value))
        self.bumps = {
            k: t._version - self.before[k][0] for k, t in self.operands.items() if t._version != self.before[k][0]
        }
        known = list(self.made.values())
        #: The tensors that the operation returned, and the operands that it wrote.
        self.results = self.made | {
            k: self.operands[k] for k in self.bumps if not any(t is self.operands[k] for t in known)
        }

    def flowing(self) -> Tensors:
        """Return the results that require gradients, each once, by the expressions for them."""
        return dict({id(t): (k, t) for k, t in reversed(self.results.items()) if t.requires_grad}.values())

    def targets(self) -> Tensors:
        """Return every tensor that an experiment can overwrite: the operands, and the results that are not operands."""
        return self.operands | {
            k: t for k, t in self.results.items() if not any(t is o for o in self.operands.values())
        }

    def nodes(self) -> Iterator[CreatedNode]:
        """Yield the nodes that the operation created, nearest to the result first; AccumulateGrad nodes are left
        out.
        """
        # the dictionary holds the nodes, so that no id is used again
        seen = {id(fn): fn for _, _, fn in self.before.values() if fn is not None}
        todo = [t.grad_fn for t in self.results.values() if t.requires_grad]
        while todo:
            fn = todo.pop(0)
            if fn is None or id(fn) in seen or fn.name().endswith("AccumulateGrad"):
                continue
            seen[id(fn)] = fn
            kept = sorted({(slot, _whose(slot, t, self)) for slot, t in _slots(fn)})
            yield CreatedNode(fn.name().rsplit("::", maxsplit=1)[-1], tuple(kept))
            todo += [child for child, _ in fn.next_functions]


def _trial(module: ModuleType, code: str, able: frozenset[str], wanting: frozenset[str]) -> Experiment:
    run = ExperimentRun(module, code, able - wanting)
    nodes = tuple(run.nodes())
    plain = able - wanting
    alone = _backward(module, code, plain) if nodes else None
    writes = (
        {target: _backward(module, code, plain, target) for target in run.targets()} if nodes and alone is None else {}
    )
    # last, because _relation increments versions
    kinds = {label: _relation(t, run.operands, module) for label, t in run.made.items()}
    return Experiment(wanting, kinds, run.bumps, nodes, writes, alone)


def _backward(module: ModuleType, code: str, plain: frozenset[str], target: str | None = None) -> str | None:
    """Run the expression, overwrite ``target`` (nothing, if None), run backward; return the first sentence of the
    error, or None.

    Raises :class:`CannotRun` if the shadow has no model for the backward.
    """
    run = ExperimentRun(module, code, plain)
    flowing = list(run.flowing().values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if target is not None:
                with module.no_grad():
                    run.targets()[target].zero_()
            module.autograd.backward(flowing, [module.ones_like(t) for t in flowing])
        except RuntimeError as error:
            if isinstance(error, NotImplementedError) and module is shadow_torch and not hasattr(error, "shadow"):
                raise CannotRun(str(error)) from error
            return str(error).split("Hint:")[0].split("\n")[0].strip()
    return None


def _labelled(value: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a result, each after the expression that gets it from ``result``."""
    if isinstance(value, torch.Tensor | ShadowFacade):
        yield "result", value
    elif isinstance(value, tuple | list):
        fields: tuple[str, ...] = getattr(value, "__match_args__", ()) if isinstance(value, tuple) else ()
        for index, part in enumerate(value):
            for label, t in _labelled(part):
                yield label.replace("result", f"result.{fields[index]}" if fields else f"result[{index}]", 1), t


def _slots(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yield (slot, tensor) for each saved tensor of a node, by torch's names; None as the tensor if it was
    overwritten.
    """
    if isinstance(fn, GradFn):
        # torch does not show what the operation inside CopySlices has saved
        names = [saved.name for saved in fn.node.saved] if fn.node.name != "CopySlices" else []
    else:
        names = [attribute.removeprefix("_saved_") for attribute in dir(fn) if attribute.startswith("_saved_")]
    for name in names:
        slot = name.rstrip("0123456789") if name.startswith("indices") else name
        try:
            value = getattr(fn, f"_saved_{name}")
        except RuntimeError:
            yield slot, None
            continue
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, torch.Tensor | ShadowFacade):
                yield slot, part


def _whose(slot: str, saved: Any, run: ExperimentRun) -> str:
    """Return the owner of a saved tensor's memory, in the terms of :class:`CreatedNode`: an operand, a result, a leaf
    inside the expression, or the tensor itself.
    """
    if saved is None:
        return "lost"
    results_first = slot.startswith("result") or slot in {"values", "indices"}
    known = run.results | run.operands if results_first else run.operands | run.results
    for test, words in ((_same_window, "{}"), (_shares, "view of {}")):
        for name, t in known.items():
            if test(saved, t):
                return words.format(name)
    base = saved if saved._base is None else saved._base
    return "inside" if base.is_leaf and base.requires_grad else "own"


def _relation(result: Any, operands: Tensors, module: ModuleType) -> str:
    for name, t in operands.items():
        if result is t:
            return f"same {name}"
    for name, t in operands.items():
        if _shares(result, t):
            if result._is_view():
                return f"view {name}"
            before = t._version
            module.autograd.graph.increment_version(result)
            return f"memory {name}" if t._version != before else f"memory {name}, own counter"
    return "new"


def _same_window(x: Any, y: Any) -> bool:
    return x is y or (
        x.numel() > 0 and x.data_ptr() == y.data_ptr() and (*x.shape, *x.stride()) == (*y.shape, *y.stride())
    )


def _shares(x: Any, y: Any) -> bool:
    return bool(x.numel() > 0 and y.numel() > 0 and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr())
