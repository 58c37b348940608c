"""One line, one picture: ``show_storage(t, v)``, ``show_graph(loss)``, ``show_broadcast(a, b)``,
``show_versions(t)``, ``show_memory(f)``.

The first four look at live tensors as they are now; nothing has to be recorded before, and nothing is changed. Each
returns a :class:`~pitfall_lab.views.picture.Picture`: a notebook draws it, ``print`` gives its words, ``save`` writes
it to a file. What cannot be drawn is said in one sentence in its place; none of the first four raises for what it is
given.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pitfall_lab.trace import Effect, Event, Language, Note, Trace

if TYPE_CHECKING:
    from pitfall_lab.observe.edit import EditedTensors
    from pitfall_lab.views.picture import Picture
    from pitfall_lab.widgets import Look

NAME = 40
OPERANDS = 4
MOST = 64
"""The largest number of tensors in one picture."""


def show_storage(*tensors: Any, language: Language = "en", **named: Any) -> Picture:
    """The memory under tensors and NumPy arrays: its cells, which index of which tensor reads each,
    and which of them share memory.

    While a kernel runs, a number can be written to a cell in the notebook: every live
    tensor over that cell then has it.

    ``show_storage(x, x.t(), a=array)``: what has no keyword is called what the call calls it.
    """
    from pitfall_lab.observe.edit import EditedTensors
    from pitfall_lab.views import moment

    benches: list[EditedTensors] = []

    def look(values: Sequence[tuple[str, Any]]) -> Trace:
        benches.append(EditedTensors(values))
        return benches[0].trace

    picture = moment.storage(_looked(look, tensors, named, _caller()), language)
    if benches and picture.svg:
        picture.live = lambda: _bench_widget(benches[0], language)
    return picture


def _bench_widget(bench: EditedTensors, language: Language) -> Look:
    """The storages of live tensors as a widget whose cells can be written to."""
    from pitfall_lab.views import moment
    from pitfall_lab.widgets import Look

    def put(label: str, index: list[int], text: str) -> tuple[Trace, dict[str, Any]]:
        bench.put(label, index, text)
        return bench.trace, moment.scene(bench.trace, "storage")

    return Look("storage", bench.trace, moment.scene(bench.trace, "storage"), put=put, language=language)


def show_graph(*tensors: Any, language: Language = "en", **named: Any) -> Picture:
    """The autograd graph behind a loss (or several tensors): torch's nodes, what each saved at which version, and
    whether its version has changed since, so that torch would refuse it.

    The picture can be saved as ``.svg``, ``.html``, ``.dot``, and, where graphviz's program ``dot`` is installed,
    ``.pdf`` and ``.png``.
    """
    from pitfall_lab.observe.snapshot import graph
    from pitfall_lab.views import moment

    frame = _caller()
    return moment.graph(_looked(lambda values: graph(values, frame), tensors, named, frame), language)


def show_broadcast(*operands: Any, language: Language = "en", **named: Any) -> Picture:
    """Two to four operands (tensors, arrays, or shapes as tuples), aligned from the right: what
    stretches, or where sizes do not meet.

    Of more operands the first four are drawn, and a note counts the others.
    """
    from pitfall_lab.observe.snapshot import snapshot
    from pitfall_lab.views import moment

    values = _called(operands, named, _caller())
    drawn = values[:OPERANDS]
    trace = _drawn(lambda: snapshot([(name, value) for name, value in drawn if not _is_shape(value)]))
    shapes = [(name, tuple(value)) for name, value in drawn if _is_shape(value)]
    names = [name for name, _ in drawn]
    notes = trace.notes
    if len(values) < 2:
        notes += (Note("limit", "Broadcasting takes at least two operands.", "广播至少需要两个操作数。"),)
    if len(values) > OPERANDS:
        more = len(values) - OPERANDS
        notes += (Note("limit", f"{more} more operands are not drawn.", f"另有 {more} 个操作数未画出。"),)
    effects = tuple(Effect(f"tensors.s{i}", _of_shape(name, shape)) for i, (name, shape) in enumerate(shapes, 1))
    events = (*trace.events, Event(len(trace.events), "write", "now", effects=effects))
    looked = Trace((), events, notes=notes)
    picture = moment.broadcast(looked, names, language)
    if picture.svg:
        picture.live = lambda: _shapes_widget(looked, names, language)
    return picture


def _shapes_widget(trace: Trace, names: list[str], language: Language) -> Look:
    """Shapes that meet, as a widget with a slider for each size."""
    from pitfall_lab.views import moment
    from pitfall_lab.widgets import Look

    return Look(
        "broadcast", trace, {"broadcast": {**moment.broadcast_scene(trace, names), "play": True}}, language=language
    )


def show_versions(*tensors: Any, language: Language = "en", **named: Any) -> Picture:
    """The version counters of tensors: which tensors share one, and which write to the same memory under another
    counter.
    """
    from pitfall_lab.observe.snapshot import snapshot
    from pitfall_lab.views import moment

    return moment.versions(_looked(snapshot, tensors, named, _caller()), language)


def show_memory(
    source: Trace | str | Callable[[], Any] | None = None,
    *,
    language: Language = "en",
    **programs: Trace | str | Callable[[], Any],
) -> Picture:
    """The live bytes of a program over its steps, by storage, with the peak and what kept it alive.

    A program (``source``: its text, or a function without arguments) is run; a trace is not. ``show_memory(before=old,
    after=new)`` draws several programs below one another, on one scale.

    Raises:
        TypeError: a program is neither a trace nor text nor a function, or none is given.
    """
    from pitfall_lab.api import record
    from pitfall_lab.views import moment

    given = {**({} if source is None else {"": source}), **programs}
    traces = {name: one if isinstance(one, Trace) else record(one) for name, one in given.items()}
    if not traces:
        raise TypeError("show_memory takes a program: its text, a function without arguments, or a trace.")
    if list(traces) == [""]:
        return moment.memory(traces[""], language)
    return moment.memories({name.replace("_", " "): one for name, one in traces.items()}, language)


def show_allocator(
    experiment: str = "allocator_cache", *, file: Path | str | None = None, language: Language = "en"
) -> Picture:
    """PyTorch's caching allocator on a GPU: what it has reserved against what tensors have allocated.

    ``experiment`` is ``"allocator_cache"``, ``"allocator_events"`` or ``"memory_timeline"`` (in place, out of
    place and checkpointed, side by side). Where torch sees a CUDA device it runs now; elsewhere a recording is
    replayed and says on which device, with which torch and on which day it was made: the one that comes with
    the package, or ``file``, made by ``python -m pitfall_lab.lessons.gpu.record FILE``. Where there is neither,
    the picture is a sentence that says so.

    Raises:
        KeyError: there is no such experiment.
    """
    from pitfall_lab.lessons import gpu
    from pitfall_lab.views import moment
    from pitfall_lab.views.memory import allocator

    zh = language == "zh"
    try:
        found = gpu.experiment(experiment, file=file)
    except gpu.NotRecorded as error:
        sentence = f"{experiment} 需要 CUDA 设备：这里没有，而且还没有随附录制。" if zh else str(error)
        return moment.allocator([], sentence, language)
    except gpu.ExperimentFailed as error:
        return moment.allocator([], str(error), language)
    runs = allocator.runs(found.result)
    if not runs:
        sentence = (
            f"{experiment} 没有记录分配器的数字。" if zh else f"{experiment} counts no allocated and reserved bytes."
        )
        return moment.allocator([], sentence, language)
    return moment.allocator(runs, found.label.say(language), language)


def _caller() -> FrameType:
    """The frame of the program that called one of this module's public functions."""
    frame = sys._getframe()  # noqa: SLF001 - inspect.currentframe() may be None by its type
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


def _looked(
    look: Callable[[Sequence[tuple[str, Any]]], Trace], given: Sequence[Any], named: dict[str, Any], frame: FrameType
) -> Trace:
    values = _called(given, named, frame)
    if not values:
        return Trace(notes=(Note("limit", "There is nothing to look at.", "没有可看的对象。"),))
    trace = _drawn(lambda: look(values[:MOST]))
    if len(values) > MOST:
        more = len(values) - MOST
        left = Note("limit", f"{more} more tensors are not drawn.", f"另有 {more} 个张量未画出。")
        trace = Trace(trace.sources, trace.events, notes=(*trace.notes, left))
    return trace


def _drawn(look: Callable[[], Trace]) -> Trace:
    """The trace that reading live tensors has given; if reading fails, an empty trace with a note that says so.

    Nothing is raised.
    """
    try:
        return look()
    except Exception as error:
        kind = type(error).__name__
        return Trace(notes=(Note("limit", f"This could not be looked at ({kind}).", f"无法查看（{kind}）。"),))


def _is_shape(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(type(n) is int and n >= 0 for n in value)


def _of_shape(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """The record of a tensor that is nothing but a shape, contiguous."""
    stride, step = [], 1
    for n in reversed(shape):
        stride.append(step)
        step *= max(n, 1)
    return {"name": name, "shape": list(shape), "stride": stride[::-1], "offset": 0, "storage": None, "counter": None}


def _called(given: Sequence[Any], named: dict[str, Any], frame: FrameType) -> list[tuple[str, Any]]:
    """Name and value of every argument, each name once.

    A keyword argument has its keyword for a name; a positional one its expression in the calling program, or else the
    name of a variable that holds it, or else ``#1`` and so on. A name that comes again gets its number too.
    """
    texts = _expressions(frame, len(given)) or [_variable(value, frame) for value in given]
    out: dict[str, Any] = {}
    for i, (text, value) in enumerate([*zip(texts, given, strict=True), *named.items()], 1):
        name = text or f"#{i}"
        out[name if name not in out else f"{name} #{i}"] = value
    return list(out.items())


def _expressions(frame: FrameType, count: int) -> list[str]:
    """The source of each argument of the call that ``frame`` is making, shortened to ``NAME`` characters;
    empty where it is not known.

    Empty too if the call has ``*arguments``.
    """
    positions = list(frame.f_code.co_positions())
    at = frame.f_lasti // 2
    first, last, start, end = positions[at] if at < len(positions) else (None, None, None, None)
    if first is None or last is None or start is None or end is None:
        return []
    lines = [linecache.getline(frame.f_code.co_filename, n, frame.f_globals).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]  # columns count bytes; the last line is cut first, for it may be the first line too
    lines[0] = lines[0][start:]
    try:
        call = ast.parse(b"".join(lines).decode(errors="replace").strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return []
    if not isinstance(call, ast.Call) or len(call.args) != count or any(isinstance(a, ast.Starred) for a in call.args):
        return []
    return [text if len(text := ast.unparse(argument)) <= NAME else text[: NAME - 1] + "…" for argument in call.args]


def _variable(value: object, frame: FrameType) -> str:
    """The name of a variable of the calling program whose value is this object; empty if there is none."""
    for variables in (frame.f_locals, frame.f_globals):
        for name, known in list(variables.items()):
            if known is value and not name.startswith("_"):
                return name
    return ""
