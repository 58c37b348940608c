"""Facts about a program's tensors after each statement, in any world: shared memory, the paths of gradients, what
backward needs. :func:`facts` returns them for the engine, :func:`real_facts` for torch.

The same questions are put to the real torch and to the engine under a belief: the reasons of a question are
the answers. A fact is a sentence about this very program (``after line 4, best and w share memory``); in
torch's world it holds or does not.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pitfall_lab import shadow
from pitfall_lab.lessons import worlds
from pitfall_lab.lessons.run_here import execute
from pitfall_lab.lessons.worlds import say
from pitfall_lab.trace import T

About = tuple[str, ...]
"""A question: its kind, then the names that it is about."""
State = dict[About, str]
MOST_LETTERS = 48
REFUSALS = {"modified by an inplace operation": "overwritten", "second time": "freed"}
_SAID: dict[str, dict[str, T]] = {
    "object": {
        "one": T(en="{0} and {1} are one tensor", zh="{0} 与 {1} 是同一个张量"),
        "two": T(en="{0} and {1} are two tensors", zh="{0} 与 {1} 是两个张量"),
    },
    "memory": {
        "shared": T(en="{0} and {1} share memory", zh="{0} 与 {1} 共享内存"),
        "separate": T(en="{0} and {1} do not share memory", zh="{0} 与 {1} 不共享内存"),
    },
    "path": {
        "open": T(en="gradients flow from {0} back to {1}", zh="梯度能从 {0} 流回 {1}"),
        "cut": T(en="no gradient flows from {0} back to {1}", zh="没有梯度从 {0} 流回 {1}"),
    },
    "needs": {
        "whole": T(en="backward from {0} finds everything it needs", zh="从 {0} 开始的 backward 能找到它需要的一切"),
        "overwritten": T(
            en="torch counted a write into a tensor saved for backward from {0}",
            zh="torch 记下了一次写入，写的是为从 {0} 开始的 backward 保存的张量",
        ),
        "freed": T(en="what backward from {0} needs is freed", zh="从 {0} 开始的 backward 所需的内容已被释放"),
    },
    "sum": {
        "None": T(en="{0}.grad is None", zh="{0}.grad 是 None"),
        "zeros": T(en="{0}.grad is a tensor of zeros", zh="{0}.grad 是全零的张量"),
        "": T(
            en="the number of backward passes added up in {0}.grad is {value}",
            zh="{0}.grad 里累加的 backward 次数是 {value}",
        ),
    },
    "held": {
        "in": T(en="{0} is a parameter of {1}", zh="{0} 是 {1} 的参数"),
        "out": T(en="{0} is not a parameter of {1}", zh="{0} 不是 {1} 的参数"),
    },
    "role": {
        "leaf": T(en="{0} is a leaf that requires grad", zh="{0} 是需要梯度的叶子张量"),
        "view": T(en="{0} is a view of a leaf that requires grad", zh="{0} 是需要梯度的叶子张量的视图"),
        "result": T(en="{0} is a result in the graph", zh="{0} 是计算图中的一个结果"),
        "constant": T(en="{0} does not require grad", zh="{0} 不需要梯度"),
    },
    "version": {"": T(en="the version of {0} is {value}", zh="{0} 的版本是 {value}")},
    "shape": {"": T(en="{0} has the shape {value}", zh="{0} 的形状是 {value}")},
    "elements": {"": T(en="the number of elements in {0} is {value}", zh="{0} 的元素个数是 {value}")},
    "type": {"": T(en="the elements of {0} are {value}", zh="{0} 的元素类型是 {value}")},
    "value": {"": T(en="{0} is {value}", zh="{0} 是 {value}")},
}
KINDS = tuple(_SAID)
"""The kinds of facts: the first say most about why, the last only what."""


@dataclass(frozen=True, slots=True)
class ProgramFact:
    """A fact that holds after the line with the number ``line`` has run.

    ``about`` is the kind of fact (``"memory"``, ``"version"``) and the names that it is about, ``value`` what was found
    (``"separate"``, ``"2"``).
    """

    line: int
    about: About
    value: str

    @property
    def text(self) -> T:
        """Return the fact as a sentence."""
        return self.said({})

    def said(self, loops: dict[int, int]) -> T:
        """The fact as a sentence about a program; ``loops`` has the first line of each of its loops, by the loop's last
        line.

        The last line of a loop runs in every iteration, so the sentence then speaks of the whole loop: "after line 4"
        could be read as after the first iteration.
        """
        forms = _SAID[self.about[0]]
        form = forms.get(self.value) or forms[""]
        return after(self.line, loops, *(text.format(*self.about[1:], value=self.value) for text in (form.en, form.zh)))


def after(line: int, loops: dict[int, int], en: str, zh: str) -> T:
    """The sentence ``en`` and ``zh`` with "after line 4" before it, or "after the loop of lines 2 to 4" at a loop's
    last line.
    """
    if line in loops:
        first = loops[line]
        return T(en=f"after the loop of lines {first} to {line}, {en}", zh=f"第 {first} 至 {line} 行的循环之后，{zh}")
    return T(en=f"after line {line}, {en}", zh=f"第 {line} 行之后，{zh}")


@dataclass(frozen=True, slots=True)
class Watched:
    """What was found on the real torch.

    ``states`` has, for each statement, its last line and the facts after it. ``passes`` has, by line, how many backward
    passes have reached a named leaf so far. ``also`` has further values of the same facts, as (line, kind and names,
    value): a ``.grad`` of zeros is also the sum of one pass if that pass computed zeros.
    """

    states: list[tuple[int, State]]
    passes: dict[int, int]
    also: frozenset[tuple[int, About, str]]


@dataclass(slots=True)
class _FactCollector:
    """Collects facts after each statement of a run. ``arrived`` are the gradients that reached each leaf, in order."""

    states: list[tuple[int, State]] = field(default_factory=list)
    arrived: dict[str, list[list[float]]] = field(default_factory=dict)
    passes: dict[int, int] = field(default_factory=dict)
    also: set[tuple[int, About, str]] = field(default_factory=set)
    counted: dict[str, int] = field(default_factory=dict)
    probing: bool = False

    def __call__(self, line: int, names: dict[str, Any], printed: str) -> None:
        """Store the facts that hold after this line; it is called after each statement."""
        known = {name: value for name, value in names.items() if not name.startswith("__")}
        shown = {name: value for name, value in known.items() if _is_number(value) or _address(value) is not None}
        self.probing = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            modules = {
                name: value
                for name, value in names.items()
                if hasattr(value, "parameters") and not isinstance(value, type)
            }
            tensors = {name: value for name, value in shown.items() if hasattr(value, "requires_grad")}
            self.states.append((line, dict((*self._facts(shown, names.get("torch")), *_held(shown, modules)))))
        self.probing = False
        new = (len(came) - self.counted.get(name, 0) for name, came in self.arrived.items())
        self.passes[line] = max(self.passes.values(), default=0) + max(new, default=0)
        self.counted = {name: len(came) for name, came in self.arrived.items()}
        for name in self.arrived.keys() & tensors.keys():
            with contextlib.suppress(RuntimeError):  # as above, of a view
                self.also.update((line, ("sum", name), value) for value in self._sums(name, tensors[name]))

    def _facts(self, shown: dict[str, Any], torch: Any) -> Iterator[tuple[About, str]]:
        numbers = {name: value for name, value in shown.items() if _is_number(value)}
        arrays = {name: value for name, value in shown.items() if name not in numbers}
        tensors = {name: value for name, value in shown.items() if hasattr(value, "requires_grad")}
        for (a, x), (b, y) in itertools.combinations(arrays.items(), 2):
            if a in tensors and b in tensors:
                yield ("object", a, b), "one" if x is y else "two"
            if x is not y:
                yield ("memory", a, b), "shared" if _overlap(x, y) else "separate"
        for name, value in shown.items():
            yield ("value", name), say(value)
            if name in numbers or (name in tensors and not value.requires_grad):
                yield from ((("path", name, other), "cut") for other, one in tensors.items() if one.requires_grad)
        for name, value in arrays.items():
            yield ("shape", name), say(tuple(value.shape))
            yield ("type", name), str(value.dtype).removeprefix("torch.")
        for name, value in tensors.items():
            yield ("version", name), str(value._version)  # noqa: SLF001 - the name that torch gives it
            yield ("elements", name), str(value.numel())
            with contextlib.suppress(RuntimeError):  # reading the grad_fn of this view raises
                yield ("role", name), _role(value)
                if value.requires_grad and value.is_leaf:
                    yield from self._sum(name, value)
                elif value.grad_fn is not None:
                    yield from _graph(name, value, tensors, torch)

    def _sum(self, name: str, leaf: Any) -> Iterator[tuple[About, str]]:
        """Yield the fact that says what a leaf's ``.grad`` is.

        Its value is "None", "zeros", or the number of the latest backward passes whose gradients add up to it. Nothing
        is yielded if no such number fits.
        """
        if name not in self.arrived:
            came = self.arrived.setdefault(name, [])
            leaf.register_hook(lambda gradient: None if self.probing else came.append(_flat(gradient)))
        if leaf.grad is None:
            yield ("sum", name), "None"
            return
        yield from ((("sum", name), value) for value in itertools.islice(self._sums(name, leaf), 1))

    def _sums(self, name: str, leaf: Any) -> Iterator[str]:
        """Yield all descriptions of a leaf's ``.grad`` that fit: "zeros", and numbers of the latest gradients that add
        up to it.

        Nothing is yielded without a ``.grad``, or if the tensor is no leaf any more.
        """
        if not leaf.is_leaf or leaf.grad is None:
            return
        total, held = [0.0] * leaf.grad.numel(), _flat(leaf.grad)
        if held == total:
            yield "zeros"
        for count, gradient in enumerate(reversed(self.arrived[name]), 1):
            if len(gradient) != len(total):
                return
            total = [a + b for a, b in zip(total, gradient, strict=True)]
            if all(abs(a - b) <= 1e-4 * max(1.0, abs(a)) for a, b in zip(total, held, strict=True)):
                yield str(count)


def _held(shown: dict[str, Any], modules: dict[str, Any]) -> Iterator[tuple[About, str]]:
    """Yield for each tensor and each module whether the tensor is one of the module's parameters: "in" or "out"."""
    for (name, module), (other, one) in itertools.product(modules.items(), shown.items()):
        if hasattr(one, "requires_grad"):
            yield ("held", other, name), "in" if any(one is parameter for parameter in module.parameters()) else "out"


def _graph(name: str, value: Any, tensors: dict[str, Any], torch: Any) -> Iterator[tuple[About, str]]:
    """Yield facts on a backward from a tensor: whether it would work now, and which other tensors would get a gradient.

    If it would not work, only the reason is yielded.
    """
    others = {
        other: one for other, one in tensors.items() if one is not value and one.requires_grad and _has_history(one)
    }
    if torch is None or not others:
        return
    try:
        reached = torch.autograd.grad(value.sum(), list(others.values()), retain_graph=True, allow_unused=True)
    except RuntimeError as refused:
        found = [said for part, said in REFUSALS.items() if part in str(refused)]
        yield from ((("needs", name), said) for said in found)
        return
    yield ("needs", name), "whole"
    yield from (
        (("path", name, other), "cut" if gradient is None else "open")
        for other, gradient in zip(others, reached, strict=True)
    )


def _has_history(value: Any) -> bool:
    """Whether a tensor's grad_fn may be read: that of a view made under no_grad may not, once the view is written."""
    try:
        return value.grad_fn is not None or value.is_leaf
    except RuntimeError:
        return False


def _is_number(value: Any) -> bool:
    return type(value) is float


def _address(value: Any) -> int | None:
    """Return the address of a tensor's or an array's memory; for a view, that of its base. None for another value."""
    if isinstance(value, type):
        return None
    if hasattr(value, "untyped_storage"):
        return int(value.untyped_storage().data_ptr())
    if not hasattr(value, "__array_interface__"):
        return None
    while getattr(value, "base", None) is not None and hasattr(value.base, "__array_interface__"):
        value = value.base
    return int(value.__array_interface__["data"][0])


def _overlap(one: Any, other: Any) -> bool:
    """Whether the memory of two tensors or arrays overlaps, by address and size; a tensor's may begin inside an
    array's.
    """
    (a, first), (b, second) = ((_address(value) or 0, _size(value)) for value in (one, other))
    return a == b or a < b < a + first or b < a < b + second


def _size(value: Any) -> int:
    """Return the size in bytes of a tensor's whole storage, or of the array that a view is based on."""
    if hasattr(value, "untyped_storage"):
        return int(value.untyped_storage().nbytes())
    while getattr(value, "base", None) is not None and hasattr(value.base, "__array_interface__"):
        value = value.base
    return int(value.nbytes)


def _role(value: Any) -> str:
    base = value._base  # noqa: SLF001 - the name that torch gives it
    if base is not None and base.is_leaf and base.requires_grad and value.requires_grad:
        return "view"
    return "constant" if not value.requires_grad else "leaf" if value.is_leaf else "result"


def _flat(gradient: Any) -> list[float]:
    return [float(n) for n in gradient.detach().flatten().tolist()]


def watched(program: str) -> Watched:
    """Run ``program`` on the real torch, and return the facts after each statement."""
    look = _FactCollector()
    execute(program, worlds.NAME, look)
    return Watched(look.states, look.passes, frozenset(look.also))


def real_facts(program: str) -> list[tuple[int, State]]:
    """For each statement its last line, and the facts after it on the real torch."""
    return watched(program).states


def loops(program: str) -> dict[int, int]:
    """The first line of each loop on the program's outermost level, by the loop's last line."""
    return {
        node.end_lineno or node.lineno: node.lineno
        for node in ast.parse(program).body
        if isinstance(node, (ast.For, ast.While))
    }


def facts(program: str, policy: shadow.Policy) -> list[tuple[int, State]]:
    """For each statement of ``program`` its last line, and the facts after it on the shadow engine under ``policy``.

    Empty if the engine has no model of something in the program.
    """
    look = _FactCollector()
    return look.states if worlds.run(program, policy, look) is not None else []
