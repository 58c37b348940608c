"""Live bytes over the program's steps, by storage: what was allocated when, the peak, and what kept each storage alive.
:func:`project` returns it as plain data.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import cache
from typing import Any, TypedDict

from pitfall_lab.trace import T, Trace
from pitfall_lab.trace.text import shape_text
from pitfall_lab.trace.used_names import operand_names
from pitfall_lab.views.display_names import PLAIN
from pitfall_lab.views.encoding import cut
from pitfall_lab.views.label_history import Facts, at, gather
from pitfall_lab.views.tabs import Tab

TAB = Tab(5, T(en="Memory", zh="内存"))

BANDS = 60
"""The largest number of storages (the largest and longest-lived) with a band; the bytes of the others are only in
the total.
"""

COUNTED = (
    T(
        en="Counted: the program's tensors, their gradients, and what the graph saves. Not counted: what a call",
        zh="计入的是：程序的张量、它们的梯度，以及计算图保存的内容。不计入的是：一次调用在结束之前临时借用的内存，",
    ),
    T(
        en="borrows until it ends, such as gradients on their way through a backward. The true peak may be higher.",
        zh="例如 backward 途中的梯度。真实的峰值可能更高。",
    ),
)
"""What the bytes of a picture are, in two lines below it."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Band(TypedDict):
    """One storage; ``base`` is the lower edge of its band, as (step, bytes) from which it is at that height.

    ``born`` is the step at which it was made, ``died`` that at which it was found to be gone (None: it is alive at the
    end).
    """

    id: str
    nbytes: int
    born: int
    died: int | None
    base: list[tuple[int, int]]


class Peak(TypedDict):
    """The first step with the most live bytes."""

    step: int
    bytes: int


class MemoryScene(TypedDict):
    """The live bytes of the program's storages over its steps."""

    steps: int
    total: list[tuple[int, int]]
    peak: Peak | None
    bands: list[Band]
    others: int


def project(trace: Trace, facts: Facts | None = None, keep: Collection[str] = ()) -> MemoryScene:
    """The live bytes of storages over the steps, as plain data, with a band for at most ``BANDS`` storages.

    Storages in ``keep`` get a band first, then those with the most bytes times steps. ``total`` has the live bytes
    after each step that changed them, ``peak`` is the first step with the most. Each band is above those before it:
    ``base`` has the steps from which its lower edge is at so many bytes. ``others`` is the number of storages without a
    band, whose bytes are in ``total`` only. Storages count that tensors of the program use or the graph saved, with
    their size; not what torch's kernels borrow in between, nor what its allocator keeps in reserve.
    """
    facts = facts or gather(trace)
    lives = [life for label in facts.storages if (life := _life(facts, label))["nbytes"]]
    arrived = _arrived(facts)
    for life in lives:  # after their ends are known: what a backward frees and what it brings do not meet
        life["born"] = max(life["born"], arrived.get(life["id"], 0))
    lives.sort(key=_order)
    own = {
        life["id"]
        for life in sorted(
            lives, key=lambda life: (life["id"] not in keep, -_area(life, len(trace.events)), life["born"])
        )[:BANDS]
    }
    bands = [life for life in lives if life["id"] in own]
    rest = [life for life in lives if life["id"] not in own]
    total = _sum(lives)
    below: list[Band] = []
    for band in bands:
        band["base"] = _sum(below, band["born"], band["died"]) or [(band["born"], 0)]
        below.append(band)
    peak = max(total, key=lambda point: (point[1], -point[0]), default=None)
    return {
        "steps": len(trace.events),
        "total": total,
        "peak": {"step": peak[0], "bytes": peak[1]} if peak else None,
        "bands": bands,
        "others": len(rest),
    }


def _life(facts: Facts, label: str) -> Band:
    history = facts.storages[label]
    sizes = [int(r.get("nbytes") or 0) for _, r in history if r]
    died = next((s for s, r in history if r is None or r.get("alive") is False), None)
    born = next((s for s, r in history if r and r.get("alive") is not False), history[0][0])
    if (
        died is not None and died < born
    ):  # made and gone within one call, with which its end is recorded: what a checkpoint computes again
        died = max(born, _end(facts.trace, died))
    return {"id": label, "nbytes": max(sizes, default=0), "born": born, "died": died, "base": []}


def _arrived(facts: Facts) -> dict[str, int]:
    """For storages of gradients of leaves, the step at which the node that accumulates them ran.

    They are recorded with the call of backward, before its nodes. What a checkpoint computes again comes before any
    gradient is accumulated.
    """
    found: dict[str, int] = {}
    keeping = {
        record.get("output"): history
        for history in facts.nodes.values()
        if history and (record := history[-1][1]) and not record.get("next")
    }
    for label in keeping.keys() & facts.tensors.keys():
        ran = {(record or {}).get("ran") for _, record in keeping[label]}
        runs = sorted(at for at in ran if isinstance(at, int) and 0 <= at < len(facts.trace.events))
        had = None
        for step, record in facts.tensors[label]:
            grad = (record or {}).get("grad")
            if grad and grad != had:
                storage = facts.tensor(grad, step).get("storage")
                run = next((at for at in runs if facts.trace.events[at].parent == step), None)
                born = facts.storages.get(storage) if storage else None
                if storage and run is not None and born and born[0][0] == step:
                    found.setdefault(storage, run)
            had = grad
    return found


def _end(trace: Trace, step: int) -> int:
    """The last step of the call at ``step``: that of the last event inside it."""
    return next((event.step for event in trace.events[step + 1 :] if event.parent is None), len(trace.events)) - 1


def _order(life: Band) -> tuple[Any, ...]:
    """The sort key of a band: storages that live longest are drawn lowest, so that bands seldom move."""
    return (
        life["died"] is not None,
        life["born"] if life["died"] is None else -life["died"] + life["born"],
        life["born"],
    )


def _area(life: Band, steps: int) -> int:
    end = steps if life["died"] is None else life["died"]
    return int(life["nbytes"] * max(1, end - life["born"]))


def _sum(lives: list[Band], start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """``(step, bytes)`` for each step from ``start`` to before ``end`` at which the sum of the bands changes.

    Without ``end``, up to the last change.
    """
    moves: dict[int, int] = {start: 0}
    for life in lives:
        moves[max(life["born"], start)] = moves.get(max(life["born"], start), 0) + life["nbytes"]
        if life["died"] is not None:
            moves[max(life["died"], start)] = moves.get(max(life["died"], start), 0) - life["nbytes"]
    out: list[tuple[int, int]] = []
    total = 0
    for step in sorted(moves):
        total += moves[step]
        if end is not None and step >= end:
            break
        if not out or out[-1][1] != total:
            out.append((step, total))
    return out


def keepers(facts: Facts, storage: str, step: int | None = None) -> list[T]:
    """What keeps a storage alive after ``step`` (None: at the end of the trace), as a text for each keeper.

    Keepers are variables, gradients, views, and the graph with the nodes that saved the storage and are not freed.
    Empty if none is known. A view without a known name is "a view": a variable may hold it that was not seen to get it
    (that of a ``for``, or of an assignment that takes a result apart).
    """
    out: list[T] = []
    held = {r.get("grad"): label for label in facts.tensors if (r := facts.tensor(label, step)) and r.get("grad")}
    used = _used(facts, facts.of_storage(storage), step)
    owners = _owners(facts, step)
    for label in facts.of_storage(storage):
        record = facts.tensor(label, step)
        if record.get("storage") != storage or not record.get("alive", True):
            continue
        name = record.get("name") or used.get(label)
        if label in held:
            name = f"{facts.tensor(held[label]).get('name') or facts.called(held[label])}.grad"
            out.append(T(name, name))
        elif name and owners.get(name, label) == label and not _deleted(facts, str(name), label, step):
            out.append(T(str(name), str(name)))
        elif not name and record.get("base"):
            out.append(T("a view", "一个视图"))
    saving = []
    for history in facts.nodes.values():
        record = at(history, step) or {}
        if (
            record
            and not record.get("freed")
            and any(slot.get("storage") == storage for slot in record.get("saved", ()))
        ):
            saving.append(str(record.get("name")))
    if saving:
        several = [*dict.fromkeys(saving)]
        out.append(T(f"the graph ({', '.join(several)})", f"计算图（{'、'.join(several)}）"))
    return out


def _used(facts: Facts, labels: Collection[str], step: int | None) -> dict[str, str]:
    """Variables, by label, that hold tensors of ``labels`` for which no name was recorded.

    ``rows`` is found if the program ran ``rows.chunk(4)`` up to ``step``. Only a variable counts that certainly still
    holds the tensor: it is bound in one line of its function, outside loops, and never deleted, and the function has
    not returned since.
    """
    trace, found = facts.trace, {}
    nameless = {label for label in labels if not facts.tensor(label, step).get("name")}
    end = len(trace.events) if step is None else step + 1
    for event in trace.events[:end] if nameless else ():
        span, depth = event.span, len(event.scope)
        if event.kind != "call" or span is None or not 0 <= span.source < len(trace.sources):
            continue
        if not any(operand.label in nameless for operand in event.operands):
            continue
        after = (later for later in trace.events[event.step + 1 : end] if later.kind == "call")  # a node has no scope
        if any(later.scope[:depth] != event.scope for later in after):
            continue
        lasting = _lasting(trace.sources[span.source].text, span.line)
        written = operand_names(trace, event)
        for place, operand in enumerate(event.operands):
            name = written.get(operand.name or place)
            if operand.label in nameless and name in lasting:
                found[str(operand.label)] = name
    return found


@cache
def _lasting(source: str, line: int) -> frozenset[str]:
    """The variables that are bound only once, outside loops, and never deleted, in the innermost function around a
    line.

    Without a function, those of the module. Empty if the source is not valid Python.
    """
    try:
        inner: ast.AST = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    for node in ast.walk(inner):  # outer functions come before those inside them
        if isinstance(node, FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0):
            inner = node
    counts: dict[str, int] = {}
    work = [(one, 1) for one in ast.iter_child_nodes(inner)]
    while work:
        node, times = work.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                counts[name] = counts.get(name, 0) + times
            case ast.Name(id=name, ctx=ast.Del()):
                counts[name] = 2
            case ast.Global(names=several) | ast.Nonlocal(names=several):
                counts |= dict.fromkeys(several, 2)
        if isinstance(node, FUNCTIONS):
            # what a function inside binds is its own, unless it says otherwise
            said = (part.names for part in ast.walk(node) if isinstance(part, ast.Global | ast.Nonlocal))
            outside = (name for several in said for name in several)
            counts |= dict.fromkeys(outside, 2)
            continue
        many = 2 if isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.comprehension) else times
        work += [(one, many) for one in ast.iter_child_nodes(node)]
    return frozenset(name for name, times in counts.items() if times == 1)


def _owners(facts: Facts, step: int | None) -> dict[str, str]:
    """For each name, the tensor that had it last.

    In a loop a name moves on to the next tensor; then something else keeps the earlier one alive.
    """
    bound: dict[str, tuple[int, str]] = {}
    for label, history in facts.tensors.items():
        name = facts.tensor(label, step).get("name")
        if name:
            since = next(s for s, record in history if record and record.get("name") == name)
            bound[name] = max(bound.get(name, (-1, "")), (since, label))
    return {name: label for name, (_, label) in bound.items()}


def _deleted(facts: Facts, name: str, label: str, step: int | None) -> bool:
    """Whether the program has run ``del name`` since the tensor was made, up to ``step`` (None: the end).

    A trace has no event for ``del``: it has run if the program has passed its line. A ``del`` in a branch may not have
    run, and does not count.
    """
    born = facts.tensors[label][0][0]
    made = facts.trace.events[born].span if 0 <= born < len(facts.trace.events) else None
    if made is None or not 0 <= made.source < len(facts.trace.sources):
        return False
    run = facts.trace.events[born : None if step is None else step + 1]
    passed = [event.span.line for event in run if event.span and event.span.source == made.source]
    lines = _deletions(facts.trace.sources[made.source].text).get(name, ())
    return any(made.line < line < max(passed, default=0) for line in lines)


@cache
def _deletions(source: str) -> dict[str, list[int]]:
    """The lines of a program that delete a name, by name; those in branches and functions are left out."""
    try:
        work: list[ast.stmt] = list(ast.parse(source).body)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, list[int]] = {}
    while work:
        node = work.pop()
        if isinstance(node, (ast.With, ast.For)):
            work += node.body
        for target in node.targets if isinstance(node, ast.Delete) else ():
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(node.lineno)
    return found


def show_largest(scene: MemoryScene, facts: Facts) -> None:
    """Replace ``facts.palette`` by the six storages with the most bytes that have a band, in order of creation.

    In a picture of memory alone, size is what matters.
    """
    largest = {band["id"] for band in sorted(scene["bands"], key=lambda band: -band["nbytes"])[:6]}
    facts.palette[:] = [label for label in facts.storages if label in largest]


def counted(language: str = "en") -> str:
    """What is counted, and what is not, as one line of text."""
    return ("" if language == "zh" else " ").join(line.zh if language == "zh" else line.en for line in COUNTED)


def bytes_text(count: float) -> str:
    """A number of bytes for people, in B, KiB, MiB or GiB, with at most one digit after the point.

    >>> bytes_text(512), bytes_text(32768), bytes_text(3 * 2**20)
    ('512 B', '32 KiB', '3 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count == int(count) else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def names(facts: Facts, storage: str) -> str:
    """Up to three names that the program gives to tensors on a storage, as one text.

    If no tensor on it has a name, the expression that made the first one, with its shape and line (without these if the
    expression is a plain name). If no tensor was on it, the storage's label.
    """
    labels = facts.of_storage(storage)
    known = dict.fromkeys(str(n) for t in labels if (n := facts.tensor(t).get("name")))
    if known or not labels:
        return ", ".join(list(known)[:3]) or storage
    called = facts.called(storage)
    if PLAIN.fullmatch(called):
        return called
    line, shape = facts.line(facts.tensors[labels[0]][0][0]), shape_text(facts.tensor(labels[0]).get("shape"))
    return f"{cut(called, 18)} {shape}" + (f", L{line}" if line else "")


def spans(points: list[tuple[int, int]], end: int) -> list[tuple[int, int, int]]:
    """``(step, value, next step)`` for each of a list of ``(step, value)``: the value holds until the next step.

    For the last one the next step is ``end``.
    """
    following = [s for s, _ in points[1:]] + [end]
    return [(s, value, after) for (s, value), after in zip(points, following, strict=True)]
