"""Lockstep: one program under observation, beside the same program unobserved and the same program
with every saved tensor cloned.

The trace must hold no disagreement, the recording must not have stopped, the program must not have noticed
it, every error must have been named before torch raised it, and every gradient that a silent write made
wrong must be told, with both numbers.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import random
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from pitfall_lab.trace import Event, Trace
from pitfall_lab.verify import trace_program
from pitfall_lab.verify.json_values import cells, equal

ADDRESS = re.compile(r"0x[0-9a-f]+")
ERROR = re.compile(r"^[A-Z]\w+(?:Error|Exception|Warning|StopIteration) \[.*$", re.MULTILINE)
"""What a program prints of an error that it has caught."""
MADE_BY = re.compile(r", which is output \d+ of \w+,")
"""Which node torch names as the maker of a changed tensor depends, for a view, on whether the node it had before is
still alive: the recorder keeps nodes until their tensors die, a program by itself does not.
"""


@dataclass
class Result:
    """What was found out about one program: ``problems`` (none, one hopes) and counts of what was looked at."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    trace: Trace | None = None


@dataclass
class Plain:
    """How a program ran without us: what it printed, how it ended, its names, and after each line what
    was printed and the gradients.
    """

    printed: str
    error: str
    names: dict[str, Any]
    warned: list[tuple[Any, ...]]
    """Category, first line, file and line of every warning."""
    random: tuple[str, ...]
    """What torch, Python and NumPy will draw next."""
    gradients: list[tuple[int, dict[str, Any], list[str]]]
    """After each statement that did not fail: its line, the gradients by name, and the
    errors that were caught so far.
    """


def check(text: str) -> Result:
    """Run a program in lockstep and look at everything."""
    result = Result()
    printed, names = io.StringIO(), {"__name__": "__main__"}
    with quiet(printed) as complaints:
        trace = trace_program(text, "program.py", names)
    failure = trace.outcome.failure
    error = f"{failure.type}: {failure.message}" if failure is not None else ""
    observed = Plain(printed.getvalue(), error, names, warned(complaints), drawn_next(), [])
    result.trace = trace
    plain = run(text)
    for d in trace.disagreements[:4]:
        result.problems.append(f"{line_of(trace, d.step)}: {d.path}: torch {d.observed!r}, shadow {d.modelled!r}")
    result.problems += [f"note: {n.en}" for n in trace.notes if n.kind == "stopped"]
    result.problems += noticed(observed, plain)
    a = trace.agreement
    result.counts["errors missed"] += sum(d.path == "outcome" for d in trace.disagreements)
    result.counts.update(
        programs=1,
        calls=a.checked + a.mirrored,
        modelled=a.checked,
        mirrored=a.mirrored,
        statements=len(plain.gradients),
    )
    if not result.problems:
        result.problems += audit_errors(trace, plain, result.counts)
        result.problems += audit_silence(text, trace, plain, result.counts)
    return result


@contextlib.contextmanager
def quiet(printed: io.StringIO) -> Any:
    """Catch what a program prints and every warning, which are handed out as they come, and leave torch as it was."""
    torch.default_generator.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the generator that all share
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # what torch says once in a process, the second run would not say
    with warnings.catch_warnings(record=True) as complaints, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            yield complaints
        finally:
            torch.set_warn_always(before)
            torch.set_grad_enabled(True)


def warned(complaints: list[warnings.WarningMessage]) -> list[tuple[Any, ...]]:
    """Warnings in a form that compares: the program has one name, whoever runs it. (Anomaly mode
    goes on with the whole stack.)
    """
    places = ((w, "the program" if "program.py" in w.filename else w.filename) for w in complaints)
    return [(w.category.__name__, anonymous(str(w.message).split("\n")[0]), place, w.lineno) for w, place in places]


def drawn_next() -> tuple[str, ...]:
    """Digests of the three random states."""
    states = (
        torch.get_rng_state().numpy().tobytes(),
        repr(random.getstate()).encode(),
        repr(np.random.get_state()).encode(),  # noqa: NPY002 - as above
    )
    return tuple(hashlib.sha256(state).hexdigest()[:12] for state in states)


def run(text: str, *, cloned: bool = False) -> Plain:
    """Run a program without us; ``cloned`` saves a clone of every tensor that is saved, so that
    no later write can reach it.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    seen: list[tuple[int, dict[str, Any], list[str]]] = []
    printed, error = io.StringIO(), ""

    def look(line: int) -> None:
        caught = ERROR.findall(printed.getvalue())
        with warnings.catch_warnings(action="ignore"):
            seen.append(
                (
                    line,
                    {name: gradient_of(value) for name, value in names.items() if isinstance(value, torch.Tensor)},
                    caught,
                )
            )

    names["__look__"] = look
    hooks = (
        torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)
        if cloned
        else contextlib.nullcontext()
    )
    code = compile(ast.fix_missing_locations(Looks().visit(ast.parse(text))), "program.py", "exec")
    with quiet(printed) as complaints, hooks:
        try:
            exec(code, names)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    del names["__look__"]
    return Plain(printed.getvalue(), error, names, warned(complaints), drawn_next(), seen)


class Looks(ast.NodeTransformer):
    """Adds a look at the gradients after every statement outside of functions and loops."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        node.body = self.watched(node.body)
        return node

    def watched(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, ast.With | ast.Try):
                statement.body = self.watched(statement.body)
                found.append(statement)
            else:
                line = statement.end_lineno or statement.lineno
                found += [statement, ast.Expr(ast.Call(ast.Name("__look__", ast.Load()), [ast.Constant(line)], []))]
        return found


def gradient_of(tensor: torch.Tensor) -> Any:
    """The numbers of ``.grad``, flat, or None."""
    with contextlib.suppress(RuntimeError, NotImplementedError):
        # Asked whether it is a leaf, a view whose base has got a history since would get its own; left alone it passes
        # for a leaf with torch (2.13), which then refuses to write it. So nobody asks; of a tensor that is none, the
        # gradient is None, with a warning.
        gradient = tensor.grad
        if (
            gradient is not None
            and not gradient.is_nested
            and gradient.layout is torch.strided
            and gradient.dtype is not torch.bfloat16
            and not gradient.is_meta
        ):
            return gradient.detach().resolve_conj().numpy().reshape(-1).copy()
    return None


# ------------------------------------------------------------------ the program has not noticed


def noticed(observed: Plain, plain: Plain) -> list[str]:
    """Differences between the run under observation and the plain one."""
    found = []
    if anonymous(observed.printed) != anonymous(plain.printed):
        found.append(f"observed, it prints {first_difference(observed.printed, plain.printed)}")
    if anonymous(observed.error) != anonymous(plain.error):
        found.append(f"observed, it ends with {observed.error!r}, otherwise with {plain.error!r}")
    if observed.warned != plain.warned:
        pairs = zip_longest(observed.warned, plain.warned)
        found.append(f"observed, it warns {next(f'{one} instead of {other}' for one, other in pairs if one != other)}")
    if observed.random != plain.random:
        found.append(f"observed, it leaves other random numbers: {observed.random} instead of {plain.random}")
    with warnings.catch_warnings(action="ignore"):
        if any(isinstance(x, torch.Tensor) and has_numbers(x) and reaches_beyond(x) for x in plain.names.values()):
            return found  # what lies behind the end of a memory is anybody's, and so is what was computed from it
        for name in plain.names:
            one, other = facts(observed.names.get(name)), facts(plain.names[name])
            if one != other:
                found.append(f"observed, {name} is {one}, otherwise {other}")
    return found[:3]


def anonymous(text: str) -> str:
    """A text without addresses, and without the maker of a changed tensor."""
    return MADE_BY.sub("", ADDRESS.sub("0x", text))


def first_difference(one: str, other: str) -> str:
    """The first line in which two texts differ."""
    pairs = zip([*one.splitlines(), ""], [*other.splitlines(), ""], strict=False)
    return next((f"{a!r} instead of {b!r}" for a, b in pairs if anonymous(a) != anonymous(b)), "")


def facts(value: Any) -> Any:
    """What a program can see of a value, in a form that compares; of a tensor with its gradient."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, torch.nn.Module):
        return [facts(p) for p in (*value.parameters(), *value.buffers())]
    if isinstance(value, torch.optim.Optimizer):
        return [facts(t) for state in value.state.values() for t in state.values()]
    if not isinstance(value, torch.Tensor):
        return value if isinstance(value, int | str) else None
    # Asked before anything else: a view whose base has got a history since would get its own,
    # and then be no leaf any more.
    gradient = attempted(lambda: value.grad)
    return facts_of(value), facts_of(gradient) if isinstance(
        gradient, torch.Tensor
    ) and gradient is not value else gradient is None


def facts_of(tensor: torch.Tensor) -> Any:
    """The same of a tensor alone."""
    if not has_numbers(tensor):
        return str(tensor.layout), tensor.requires_grad
    version = attempted(lambda: -1 if tensor.is_inference() else tensor._version)
    with contextlib.suppress(RuntimeError), torch.no_grad():
        if reaches_beyond(
            tensor
        ):  # torch changes the shape before it finds that the memory may not grow: what lies there is anybody's
            return tuple(tensor.shape), tensor.stride(), str(tensor.dtype), version
        flat = tensor.detach().reshape(-1)
        numbers = flat.resolve_conj().resolve_neg().view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        graph = attempted(lambda: None if tensor.grad_fn is None else tensor.grad_fn.name())
        return tuple(tensor.shape), tensor.stride(), str(tensor.dtype), version, tensor.requires_grad, graph, numbers
    return tuple(tensor.shape), str(tensor.dtype), version


def has_numbers(tensor: torch.Tensor) -> bool:
    """Whether a tensor has strided memory with plain numbers in it."""
    return tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def reaches_beyond(tensor: torch.Tensor) -> bool:
    """Whether a tensor's last element lies outside of its memory."""
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() > 0 and (last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes()


def attempted(function: Any) -> Any:
    """A value, or the text of the error it raises."""
    try:
        return function()
    except RuntimeError as error:
        return str(error)


# ------------------------------------------------------------------ every error was named before torch raised it


def audit_errors(trace: Trace, plain: Plain, counts: Counter[str]) -> list[str]:
    """Count the errors that were predicted, that were declined (with a reason), and that no call of
    torch's raised but Python itself.
    """
    failed = [event for event in trace.events if event.error is not None and event.kind == "call"]
    lines = ERROR.findall(plain.printed)
    predicted = sum(event.by == "agreed" for event in failed)
    declined = sum(event.by != "agreed" and bool(event.reason) for event in failed)
    counts["errors predicted"] += predicted
    counts["errors declined"] += declined
    counts["errors missed"] += len(failed) - predicted - declined
    counts["errors of Python's own"] += max(len(lines) + bool(plain.error) - len(failed), 0)
    found = [
        f"{where(event)}: {event.op} raised {event.error}, which was neither predicted nor mirrored"
        for event in failed
        if event.by != "agreed" and not event.reason
    ]
    for event in failed:
        failure = event.error
        if failure is None or failure.kind != "saved-tensor-modified" or event.by != "agreed":
            continue
        counts["version errors predicted"] += 1
        told = [f for f in trace.forecasts if f.came_true == event.step]
        counts["version errors forecast at the write"] += bool(told)
        if any(f.step >= event.step for f in told):
            found.append(f"{where(event)}: the forecast was made after the error")
    return found


def where(event: Event) -> str:
    """The line of an event."""
    return f"line {event.span.line}" if event.span else "somewhere"


def line_of(trace: Trace, step: int) -> str:
    """The line of a step, with its operation."""
    event = trace.events[step]
    return f"{where(event)} ({event.op})"


# ------------------------------------------------------------------ every silent harm is told


def audit_silence(text: str, trace: Trace, plain: Plain, counts: Counter[str]) -> list[str]:
    """Compare each harm with torch's own two numbers, and look for harms that were not told."""
    if not trace.harms and not re.search(
        r"\.data\b|numpy|\[\.\.\.\]|set_\(|fused|BatchNorm|untyped_storage|a\d+", text
    ):
        return []
    meant = run(text, cloned=True)
    on_leaves = [
        h for h in trace.harms if trace.events[h.step].op != "torch.autograd.grad"
    ]  # that hands its gradients out: no ``.grad``
    harms = {
        (trace.events[h.step].span.line if trace.events[h.step].span else 0, name): h
        for h in on_leaves
        for name in names_of(trace, h.leaf, h.step)
    }
    counts["silent harms"] += len(trace.harms)
    last = 0
    for (line, given, caught), (other, wanted, errors) in zip(plain.gradients, meant.gradients, strict=False):
        if line != other or caught != errors:
            return []  # with clones an error is gone (or another one comes later), and the two runs went different ways
        new = {
            name: h for (at, name), h in harms.items() if last < at <= line
        }  # a statement that failed was not looked at
        last = line
        for name, value in given.items():
            right = wanted.get(name)
            # without a gradient, what has this name now is another tensor than the one that was harmed
            told = new.get(name) if value is not None or right is not None else None
            if told is None and not same(
                value, right
            ):  # ``a, b = b, a`` passes no torch function: then its numbers tell which harm it is
                told = next((h for h in new.values() if close(h.torch, value, flowed(trace, h.step))), None)
            if told is None and same(value, right):
                continue
            if told is None:
                # What a hook that hands on another gradient would have made of the meant ones nobody
                # knows: then no harm is told.
                missed = no_excuse(trace, line) and not re.search(r"register_hook\(lambda g: g\b", text)
                counts["harms in mirrored backwards"] += not missed
                return (
                    [f"line {line}: {name}.grad is {value}, meant was {right}, and no harm was told"] if missed else []
                )
            counts["silent harms compared"] += 1
            # What adds up in a gradient may cancel: its rounding is relative to what flowed in the backward.
            scale = flowed(trace, told.step)
            found = (
                [f"line {line}: the harm says torch gives {name} {told.torch}, it gives {cells(value)}"]
                if not close(told.torch, value, scale)
                else []
            )
            if not close(told.meant, right, scale):
                found.append(
                    f"line {line}: the harm says that {told.meant} was meant for {name}, torch with "
                    f"clones says {cells(right)}"
                )
            return found  # what follows a harm is another story: gradients add up
    return []


def no_excuse(trace: Trace, line: int) -> bool:
    """Whether everything up to a line was modelled; the numbers of a mirrored backward are not known, nor those of
    a gradient that is declined.
    """
    before = [e for e in trace.events if e.span is None or e.span.line <= line]
    unknown = any(
        effect.value is None
        for e in before
        if e.kind == "node"
        for effect in e.effects
        if effect.path.endswith(".gradient")
    )
    return not unknown and not any(e.reason for e in before)


def names_of(trace: Trace, label: str, step: int) -> list[str]:
    """The names that a tensor has at a step, without those that another tensor has got since."""
    had: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    for event in trace.events[: step + 1]:
        for effect in event.effects:
            parts = effect.path.split(".")
            if parts[0] != "tensors" or not (len(parts) == 2 or parts[2:] == ["names"]):
                continue
            names = (
                effect.value.get("names") if isinstance(effect.value, dict) else effect.value if len(parts) == 3 else []
            )
            owner.update((name, parts[1]) for name in names or () if name not in had.get(parts[1], ()))
            had[parts[1]] = names or []
    return [name for name in had.get(label, ()) if owner[name] == label]


def same(one: Any, other: Any) -> bool:
    """Equal numbers, or none on both sides."""
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and equal(one, other, one.dtype.name)


def flowed(trace: Trace, step: int) -> float:
    """The largest number among the gradients that the nodes of a backward received."""
    received = [
        effect.value
        for event in trace.events
        if event.parent == step
        for effect in event.effects
        if effect.path.endswith(".gradient")
    ]
    cells_of = [
        [cell for _, cell in v["shown"]] if isinstance(v, dict) else v if isinstance(v, list) else [] for v in received
    ]
    sizes = np.abs(numbers([cell for found in cells_of for cell in found]))
    return float(sizes[np.isfinite(sizes)].max(initial=0))


def close(told: Any, value: Any, scale: float) -> bool:
    """Whether a trace's cells are those of an array."""
    if value is None:
        return False
    mine = cells(value)
    if isinstance(told, dict):
        return isinstance(mine, dict) and told["count"] == mine["count"]
    return (
        isinstance(mine, list)
        and len(mine) == len(told)
        and equal(
            numbers(mine),
            numbers(told),
            value.dtype.name,
            max(scale, float(np.nan_to_num(np.abs(value), posinf=0).max(initial=0))),
        )
    )


def numbers(values: list[Any]) -> np.ndarray:
    """Cells as an array."""
    return np.array([complex(v) if isinstance(v, str) and v.endswith("j") else float(v) for v in values])
