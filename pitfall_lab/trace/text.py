"""One plain sentence for each event of a trace, in English and Chinese (:func:`sentences` yields them).

The sentences are read out by screen readers while stepping, and are the text version of every picture. They contain
only facts of the trace, such as names, labels, versions and shapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import Any

from pitfall_lab.trace.event_log import Trace
from pitfall_lab.trace.model import Event, Failure, Span
from pitfall_lab.trace.part_names import written as written_part
from pitfall_lab.trace.replay import State, advance, empty_state
from pitfall_lab.trace.words import T

EXCERPT_LIMIT = 60
_GRAD = "torch.autograd.grad"


@lru_cache(maxsize=8)
def source_lines(text: str) -> tuple[str, ...]:
    r"""The lines as Python counts them: ``str.splitlines`` would also split at form feeds and Unicode separators.

    >>> source_lines("a\x0c = 1\r\nb = 2\n")
    ('a\x0c = 1', 'b = 2')
    """
    lines = re.split("\r\n|\r|\n", text)
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def place(trace: Trace, line: int, source: int = 0) -> T:
    """A line as users find it: ``line 6``, with the cell if the program has several, with the
    file if it is not the program's.

    >>> from pitfall_lab.trace import Part, Source
    >>> two = Source("In [4]", "", (Part("In [3]", 2, 27), Part("In [4]", 9)))
    >>> place(Trace((two,)), 3).en, place(Trace((two,)), 9).zh, place(Trace(), 3).en
    ('In [3], line 28', 'In [4] 第 1 行', 'line 3')
    """
    if not 0 <= source < len(trace.sources):
        return T(en=f"line {line}", zh=f"第 {line} 行")
    found = trace.sources[source]
    part = found.part(line) if len(found.parts) > 1 else None
    if part is not None:
        own = line - part.line + part.own
        return T(en=f"{part.name}, line {own}", zh=f"{part.name} 第 {own} 行")
    if source and found.name.startswith("In ["):
        return T(en=f"{found.name}, line {line}", zh=f"{found.name} 第 {line} 行")
    if source:
        return T(en=f"line {line} of {found.name}", zh=f"{found.name} 第 {line} 行")
    return T(en=f"line {line}", zh=f"第 {line} 行")


def excerpt(trace: Trace, span: Span | None, limit: int = EXCERPT_LIMIT) -> str:
    """The source under ``span`` on one line, cut at ``limit`` characters with "…"; empty if there is none.

    >>> from pitfall_lab.trace import Source
    >>> excerpt(Trace((Source("a.py", "y = h * 2"),)), Span(1, 4, 1, 9))
    'h * 2'
    """
    if span is None or not 0 <= span.source < len(trace.sources):
        return ""
    lines = list(source_lines(trace.sources[span.source].text)[span.line - 1 : span.end_line])
    if not lines:
        return ""
    lines[-1] = lines[-1][: span.end_column] if span.end_line > span.line or span.end_column else lines[-1]
    lines[0] = lines[0][span.column :]
    text = " ".join(" ".join(lines).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shape_text(shape: Any) -> str:
    """A shape or index as Python writes a tuple.

    >>> shape_text([3]), shape_text([]), shape_text([2, 3])
    ('(3,)', '()', '(2, 3)')
    """
    return str(tuple(shape or ()))


def plain(value: Any) -> Any:
    """One element as a JSON value; floats keep nine significant digits, enough for any float32.

    NaN, infinity and complex numbers are texts.
    """
    if type(value) is float and math.isfinite(value):  # nearly all of them
        return float(f"{value:.9g}")
    if isinstance(value, bool | int):
        return value
    if isinstance(value, complex):
        return f"{value.real:.9g}{value.imag:+.9g}j"
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.9g}")


def cell_text(value: Any) -> str:
    """The value of a cell in a picture: a float with at most four significant digits, or, where it is whole and below a
    million, all its digits and a point; anything else as Python prints it.

    >>> cell_text(0.7310586), cell_text(12.0), cell_text(True), cell_text("nan"), cell_text(1e-9)
    ('0.7311', '12.', 'True', 'nan', '1e-09')
    """
    if isinstance(value, float) and math.isfinite(value):
        if value == int(value) and abs(value) < 1e6:
            return f"{int(value)}." if value or math.copysign(1, value) > 0 else "-0."
        return f"{value:.4g}"
    return str(value)


def cells_text(cells: Any, limit: int = 12) -> str:
    """Cells as one bracketed list of at most ``limit``, with the number of those left out; ``?`` for None (not known).

    >>> cells_text([1.0, 0.5]), cells_text({"count": 1000, "shown": [[0, 1.0], [999, 2.0]]})
    ('[1., 0.5]', '[0: 1., 999: 2.; 998 more]')
    """
    if cells is None:
        return "?"
    if isinstance(cells, dict):
        shown = cells.get("shown", [])[:limit]
        parts = ", ".join(f"{index}: {cell_text(value)}" for index, value in shown)
        return f"[{parts}; {cells.get('count', 0) - len(shown)} more]"
    parts = ", ".join(cell_text(value) for value in cells[:limit])
    return f"[{parts}; {len(cells) - limit} more]" if len(cells) > limit else f"[{parts}]"


class _Around:
    """The state around one event: the state before it, and the records that its effects change."""

    def __init__(self, event: Event, before: State) -> None:
        self.before = before
        self.event = event
        self.after = {group: _Overlay(before.get(group, {})) for group in ("tensors", "storages", "counters", "nodes")}
        for effect in event.effects:
            parts = effect.path.split(".")
            if len(parts) > 1 and parts[0] in self.after:
                self.after[parts[0]].write(parts[1:], effect.value)

    def tensor(self, label: str | None) -> dict[str, Any]:
        return self.after["tensors"].get(label) or {}

    def name(self, label: str | None) -> str:
        """The name of a tensor with its label, ``h (t2)``; ``t2`` alone if the program has no name for it."""
        if label is None:
            return "?"
        name = self.tensor(label).get("name")
        return f"{name} ({label})" if name else label

    def node(self, label: str | None) -> str:
        record = self.after["nodes"].get(label) or {}
        return f"{label} ({record['name']})" if record.get("name") else str(label)

    def met(self) -> dict[str, dict[str, Any]]:
        """The tensors and arrays that existed before this event, but which the trace describes for the first time with
        it, such as the operands that an earlier cell made: each label with its description before the event.

        These are operands without a description before the event, and arrays that the event does not return.
        """
        records, known = self.after["tensors"], self.before.get("tensors", {})
        operands = {operand.label for operand in self.event.operands}
        return {
            label: first
            for label, first in records.first.items()
            if isinstance(first, dict)
            and "kind" in first
            and "kind" not in (known.get(label) or {})
            and (label in operands or (first["kind"] == "array" and label not in self.event.results))
        }

    def had(self) -> set[str]:
        """The labels of the nodes that were in the graph before this event although the trace describes them only now:
        those from which the tensors of :meth:`met` were computed.
        """
        nodes = self.after["nodes"]
        todo = [str(record["grad_fn"]) for record in self.met().values() if record.get("grad_fn")]
        found: set[str] = set()
        written = {effect.value for effect in self.event.effects if effect.path.endswith(".grad_fn")}
        for label in [label for label in todo if label in written]:  # a write in place has given it this one
            todo.remove(label)
            todo += [following for following in (nodes.get(label) or {}).get("next", ()) if following]
        while todo:
            label = todo.pop()
            if label not in found:
                found.add(label)
                todo += [following for following in (nodes.get(label) or {}).get("next", ()) if following]
        return found

    def bumps(self) -> list[tuple[str, int, int]]:
        """The counters whose version this event changed, with the versions before and after."""
        counters = self.after["counters"]
        moves = [
            (c, self.before["counters"].get(c, counters.first[c]), version) for c, version in counters.fresh.items()
        ]
        return [move for move in moves if move[1] != move[2]]

    def new(self, group: str) -> list[str]:
        """The labels that this event creates, in order."""
        return [label for label in self.after[group].fresh if label not in self.before.get(group, {})]


class _Overlay:
    """The records of one group after the event: changed ones here, all others in ``under``."""

    def __init__(self, under: dict[str, Any]) -> None:
        self.under = under
        self.fresh: dict[str, Any] = {}
        self.first: dict[str, Any] = {}

    def write(self, path: list[str], value: Any) -> None:
        label, *rest = path
        self.first.setdefault(label, value)
        if not rest:
            self.fresh[label] = dict(value) if isinstance(value, dict) else value  # the trace's own stays as it is
            return
        if label not in self.fresh:
            self.fresh[label] = dict(self.under.get(label) or {})
        if isinstance(self.fresh[label], dict):
            self.fresh[label][".".join(rest)] = value

    def get(self, label: str | None) -> Any:
        return None if label is None else self.fresh.get(label, self.under.get(label))


def sentences(trace: Trace) -> Iterator[tuple[Event, T]]:
    """Yield each event with its sentence; one pass over the trace.

    Where a damaged trace lacks what a sentence needs, the sentence says only which call ran.
    """
    state = empty_state()
    for event in trace.events:
        try:
            said = sentence(event, state, trace)
        except (AttributeError, KeyError, TypeError, ValueError):  # a damaged trace: write only what is certain
            said = T(en=f"{_code(event, trace)} runs.", zh=f"{_code(event, trace)} 运行。")
        yield event, said
        for effect in event.effects:
            advance(state, effect)


def sentence(event: Event, state: State, trace: Trace) -> T:
    """What ``event`` of ``trace`` did, as a sentence; ``state`` is that *before* the event. Errors like KeyError are
    raised for a damaged trace (:func:`sentences` catches them).
    """
    look = _Around(event, state)
    if event.kind == "node":
        parts = [_node(event, look, trace)]
    elif event.kind == "write":
        parts = [_write(event, look, trace)]
    elif event.kind == "mode":
        parts = [_mode(event)]
    else:
        parts = [_call(event, look, trace)]
    parts += [_forecast(event, f.failure, look) for f in event.forecasts]
    parts += [_harm(look, harm) for harm in event.harms]
    if event.error is not None:
        parts.append(_error(event, event.error, look, trace))
    parts = list(dict.fromkeys(part for part in parts if part.en))  # `w * w` saves w twice, and one sentence says it
    return T(en=" ".join(part.en for part in parts), zh="".join(part.zh for part in parts))


def _code(event: Event, trace: Trace) -> str:
    text = excerpt(trace, event.span)
    if text.endswith("]") and event.op.endswith("__setitem__"):
        text += " = …"  # Python's position of an indexed assignment is that of its target only
    return f"`{text}`" if text else f"`{event.name}`"


def _call(event: Event, look: _Around, trace: Trace) -> T:
    code = _code(event, trace)
    if event.error is not None and event.name != "backward":
        return T(en="", zh="")
    if event.name == "backward" or event.op == _GRAD:
        return _backward(event, look, code)
    if storages := written(event, look.before.get("storages", {})):
        return _in_place(storages, event, look, code)
    if said := _switched(event, look, code) or _to_be_kept(event, look, code):
        return said
    if not event.results:
        return _quiet(look, code)
    if event.op == "torch.Tensor.grad.__get__":
        name, of = look.name(event.results[0]), event.operands[0].label if event.operands else None
        if of and not look.tensor(event.results[0]).get("name"):  # else it would be said that `w.grad` is w.grad
            return T(en=f"{code} reads the gradient of {look.name(of)}.", zh=f"{code} 读取 {look.name(of)} 的梯度。")
        return T(en=f"{name} is a name for {code}.", zh=f"{name} 是 {code} 的名字。")
    texts = [_turned(label, look, code) or _result(label, event, look, code) for label in event.results]
    graph = _recorded(event, look)
    en = " ".join(t.en for t in texts) + graph.en
    zh = "".join(t.zh for t in texts) + graph.zh
    if event.parent is not None and event.parent < event.step and trace.events[event.parent].name == "backward":
        return T(en=f"Within this backward: {en}", zh=f"在这次反向传播中：{zh}")
    return T(en=en, zh=zh)


def _backward(event: Event, look: _Around, code: str) -> T:
    root = look.name(event.operands[0].label) if event.operands else "?"
    moves = ", ".join(f"{c}: {old} → {new}" for c, old, new in look.bumps())
    added_en = f" Gradients are added in place to what is there ({moves})." if moves else ""
    added_zh = f"梯度就地加到已有的梯度上（{moves}）。" if moves else ""
    return T(en=f"{code} starts backward at {root}.{added_en}", zh=f"{code} 从 {root} 开始反向传播。{added_zh}")


def _switched(event: Event, look: _Around, code: str) -> T | None:
    """The sentence for a call that only switches ``requires_grad`` of leaves, as freezing a layer does; None for
    another.
    """
    known, met = look.before.get("tensors", {}), look.met()
    names: dict[bool, list[str]] = {True: [], False: []}
    more = T(en="", zh="")
    for label in look.after["tensors"].fresh:
        before, after = known.get(label) or met.get(label) or {}, look.tensor(label)
        requires = after.get("requires_grad")
        if "kind" in before and before.get("requires_grad") != requires and after.get("is_leaf"):
            if before.get("grad_fn") is not None:  # `detach_` makes it a leaf
                return None
            names[bool(requires)].append(look.name(label))
            if label in event.results and before.get("name") not in (None, after.get("name")):
                itself = _itself(code, look.name(label), before, after)
                more = T(en=f" {itself.en}", zh=itself.zh)
    if bool(names[True]) == bool(names[False]):
        return None
    which = _listed(names[True] or names[False], " and "), _listed(names[True] or names[False], " 和 ", "、 ")
    if names[True]:
        return T(
            en=f"{code} switches requires_grad of {which[0]} on.{more.en}",
            zh=f"{code} 打开 {which[1]} 的 requires_grad。{more.zh}",
        )
    return T(
        en=f"{code} switches requires_grad of {which[0]} off; `.grad` stays as it is.{more.en}",
        zh=f"{code} 关闭 {which[1]} 的 requires_grad；`.grad` 保持不变。{more.zh}",
    )


def _to_be_kept(event: Event, look: _Around, code: str) -> T | None:
    """The sentence for ``retain_grad`` of a result, which changes what backward leaves; None for another call."""
    of = event.operands[0].label if event.operands else None
    if event.op != "torch.Tensor.retain_grad" or not of or look.tensor(of).get("is_leaf") is not False:
        return None
    return T(
        en=f"{code} asks backward to leave the gradient of {look.name(of)} in its `.grad`.",
        zh=f"{code} 要求反向传播把 {look.name(of)} 的梯度留在它的 `.grad` 中。",
    )


def _quiet(look: _Around, code: str) -> T:
    changed = [label for label in look.after["tensors"].fresh if label in look.before.get("tensors", {})]
    for label in changed:
        before, after = look.before["tensors"][label], look.tensor(label)
        if after.get("grad") != before.get("grad"):
            if after.get("grad") is None:
                return T(
                    en=f"{code} forgets the gradient of {look.name(label)}.",
                    zh=f"{code} 丢弃 {look.name(label)} 的梯度。",
                )
            return T(
                en=f"{code} sets the gradient of {look.name(label)}.", zh=f"{code} 设置 {look.name(label)} 的梯度。"
            )
        if after.get("storage") != before.get("storage"):
            return T(
                en=f"{code} makes {look.name(label)} read storage {after.get('storage')} instead of "
                f"{before.get('storage')}.",
                zh=f"{code} 让 {look.name(label)} 改读存储 {after.get('storage')}，不再是 {before.get('storage')}。",
            )
    return T(en=f"{code} reads; no tensor changes.", zh=f"{code} 只读取，没有张量改变。")


def _result(label: str, event: Event, look: _Around, code: str) -> T:
    tensor, before = look.tensor(label), look.before.get("tensors", {}).get(label) or {}
    name, storage, counter = look.name(label), tensor.get("storage"), tensor.get("counter")
    what = _form(tensor)
    # The event of a backward has an earlier step than what it calls, and the ends of tensors that are made there:
    # only what has more than an end was there before.
    if "kind" in before:
        # A custom Function's tensor was made by an operation within it; with its node it becomes the result.
        if tensor.get("grad_fn") != before.get("grad_fn") and label not in [o.label for o in event.operands]:
            return T(en=f"{code} makes {name}, {what.en}.", zh=f"{code} 产生 {name}：{what.zh}。")
        return _itself(code, name, before, tensor)
    if storage is None:
        return T(en=f"{code} makes {name}, {what.en}.", zh=f"{code} 产生 {name}：{what.zh}。")
    met = look.met()
    if label in met:
        return _itself(code, name, met[label], tensor)
    if "size" in (look.before.get("storages", {}).get(storage) or {}) or any(
        record.get("storage") == storage for record in met.values()
    ):
        return _sharing(label, look, code)
    leaf = tensor.get("requires_grad") and tensor.get("is_leaf")
    leaf_en, leaf_zh = (" It is a leaf that requires a gradient.", "它是需要梯度的叶子张量。") if leaf else ("", "")
    count_en = f", counter {counter} at {look.after['counters'].get(counter) or 0}" if counter else ""
    count_zh = f"，版本计数器 {counter} 为 {look.after['counters'].get(counter) or 0}" if counter else ""
    return T(
        en=f"{code} makes {name}, {what.en}, in new storage {storage}{count_en}.{leaf_en}",
        zh=f"{code} 产生 {name}：{what.zh}，放在新的存储 {storage} 中{count_zh}。{leaf_zh}",
    )


def _itself(code: str, name: str, before: dict[str, Any], tensor: dict[str, Any]) -> T:
    """The sentence for a call that returns a tensor that was there, with the name that it had before: the name that
    the line gives it does not exist until then.
    """
    had = before.get("name")
    if not had or had == tensor.get("name"):
        return T(en=f"{code} returns {name} itself.", zh=f"{code} 返回 {name} 本身。")
    was = written_part(str(had).removeprefix("self."))
    return T(
        en=f"{code} returns `{was}` itself; {name} is another name of it.",
        zh=f"{code} 返回 `{was}` 本身；{name} 是它的另一个名字。",
    )


def _turned(label: str, look: _Around, code: str) -> T | None:
    """The sentence for a tensor that was given another shape, other strides or another offset in place, as
    ``transpose_`` does, which its version counter counts; None for another.
    """
    before, tensor = look.before.get("tensors", {}).get(label) or {}, look.tensor(label)
    moved = next((move for move in look.bumps() if move[0] == tensor.get("counter")), None)
    if moved is None or all(before.get(key) == tensor.get(key) for key in ("shape", "stride", "offset")):
        return None
    name, (counter, old, new) = look.name(label), moved
    shape, stride = shape_text(tensor.get("shape")), shape_text(tensor.get("stride"))
    return T(
        en=f"{code} changes in place how {name} reads its memory, now with shape {shape} and stride {stride}: "
        f"counter {counter} goes from {old} to {new}.",
        zh=f"{code} 就地改变 {name} 读取内存的方式，现在形状 {shape}，步长 {stride}："
        f"版本计数器 {counter} 从 {old} 变为 {new}。",
    )


def _form(tensor: dict[str, Any]) -> T:
    shape, dtype = shape_text(tensor.get("shape")), tensor.get("dtype", "?")
    if tensor.get("kind") == "array":
        return T(en=f"a NumPy array of shape {shape}, {dtype}", zh=f"NumPy 数组，形状 {shape}，{dtype}")
    return T(en=f"shape {shape}, {dtype}", zh=f"形状 {shape}，{dtype}")


def _sharing(label: str, look: _Around, code: str) -> T:
    """The sentence for a new tensor on a known storage, with the same version counter (a
    view) or its own one (``.data``).
    """
    tensor = look.tensor(label)
    name, storage, counter, what = look.name(label), tensor["storage"], tensor.get("counter"), _form(tensor)
    place_en = f"stride {shape_text(tensor.get('stride'))}, offset {tensor.get('offset', 0)}"
    place_zh = f"步长 {shape_text(tensor.get('stride'))}，偏移 {tensor.get('offset', 0)}"
    over_en, over_zh = f"the existing storage {storage}", f"已有的存储 {storage}"
    had = {other: one for other, one in look.before.get("tensors", {}).items() if (one or {}).get("storage") == storage}
    if had and not any(one.get("name") for one in had.values()):  # else the memory would be called after what it makes
        over_en, over_zh = f"storage {storage} of {next(iter(had))}", f"存储 {storage}（{next(iter(had))}）"
    en = f"{code} makes {name}, {what.en}, over {over_en} ({place_en}): nothing is copied."
    zh = f"{code} 产生 {name}：{what.zh}，读的是{over_zh}（{place_zh}），没有复制。"
    if counter is None:
        return T(
            en=f"{en} It has no version counter, so torch cannot see writes through it.",
            zh=f"{zh}它没有版本计数器，torch 看不到经它的写入。",
        )
    if counter in look.before.get("counters", {}) or any(
        record.get("counter") == counter for record in look.met().values()
    ):
        return T(en=f"{en} It shares counter {counter}.", zh=f"{zh}它与别的张量共用版本计数器 {counter}。")
    if any(record["kind"] == "array" and record.get("storage") == storage for record in look.met().values()):
        return T(
            en=f"{en} It has its own counter {counter}, which a write through the array does not move.",
            zh=f"{zh}它有自己的版本计数器 {counter}，经数组的写入不会让它变化。",
        )
    return T(
        en=f"{en} It has its own counter {counter}: writes through one do not show on the other's counter.",
        zh=f"{zh}它有自己的版本计数器 {counter}：经一方写入，另一方的计数器看不出来。",
    )


def _recorded(event: Event, look: _Around) -> T:
    """The sentences on new nodes and the tensors that they saved; empty if there are none.

    A node that a tensor has as ``grad_fn`` is said to be that tensor's: the node that ``y.grad_fn`` shows is the
    answer to "what will the backward of y be?". The others, which the call made on the way, follow in one sentence.
    AccumulateGrad nodes are left out, and those that were in the graph before the trace met them.
    """
    new = look.new("nodes")
    had = look.had() if new else ()
    records = {label: look.after["nodes"].get(label) or {} for label in new if label not in had}
    records = {label: record for label, record in records.items() if record.get("name") != "AccumulateGrad"}
    owners: dict[str, list[str]] = {}
    for label, tensor in look.after["tensors"].fresh.items():
        if isinstance(tensor, dict) and tensor.get("grad_fn") in records:
            owners.setdefault(tensor["grad_fn"], []).append(label)
    texts = [_node_of(owners[label], label, event, look) for label in records if label in owners]
    if others := [label for label in records if label not in owners]:
        texts.append(_on_the_way(others, event, look, there=bool(owners)))
    return T(en="".join(text.en for text in texts), zh="".join(text.zh for text in texts))


def _node_of(tensors: list[str], label: str, event: Event, look: _Around) -> T:
    """The sentence on the node that ``tensors`` have as ``grad_fn`` from now on. They are called by name where "its"
    could be another's: after a write in place, of a view, of one result among several.
    """
    node, saved = look.node(label), _saved(event, look, label)
    shared = look.tensor(tensors[0]).get("storage") in look.before.get("storages", {})
    if set(tensors) != set(event.results) or (len(tensors) == 1 and shared):
        en = f"The node of {_listed(map(look.name, tensors), ' and ')}, {node}, enters the graph"
        zh = f"节点 {node} 属于 {_listed(map(look.name, tensors), ' 和 ', '、 ')}，加入计算图"
    else:
        en = f"{'Their' if tensors[1:] else 'Its'} node {node} enters the graph"
        zh = f"{'它们' if tensors[1:] else '它'}的节点 {node} 加入计算图"
    return T(
        en=f" {en} and saves {saved.en}." if saved.en else f" {en}.",
        zh=f"{zh}，保存 {saved.zh}。" if saved.zh else f"{zh}。",
    )


def _on_the_way(nodes: list[str], event: Event, look: _Around, *, there: bool) -> T:
    """The sentence on the nodes that no tensor of the program has as ``grad_fn``, and what each saved; ``there`` says
    that it follows one on the node of a result.
    """
    several = len(nodes) > 1
    en = (
        f"{'nodes' if several else 'node'} {_listed(map(look.node, nodes), ' and ')} {'enter' if several else 'enters'}"
    )
    en = f" On the way there, {en} the graph" if there else f" {en[0].upper()}{en[1:]} the graph"
    zh = f"{'途中还有' if there else ''}节点 {_listed(map(look.node, nodes), '、', '、')} 加入计算图"
    for label in nodes:
        saved = _saved(event, look, label)
        if saved.en:
            en += f"; {look.node(label)} saves {saved.en}" if several else f" and saves {saved.en}"
            zh += f"；{look.node(label)} 保存 {saved.zh}" if several else f"，保存 {saved.zh}"
    return T(en=f"{en}.", zh=f"{zh}。")


def _listed(items: Iterable[str], last: str, comma: str = ", ") -> str:
    """Items as a sentence lists them.

    >>> _listed(["a", "b", "c"], " and ")
    'a, b and c'
    """
    *before, end = list(items) or [""]
    return comma.join(before) + last + end if before else end


def _saved(event: Event, look: _Around, node: str) -> T:
    """The tensors that a node saved, each with its slot and version; empty if there are none."""
    saved = (look.after["nodes"].get(node) or {}).get("saved", [])
    slots = [(s["name"], _slot(event, look, s), s["version"]) for s in saved if s.get("counter")]
    return T(
        en=_listed([f"{slot} = {what or 'a tensor without a name'} at v{v}" for slot, what, v in slots], " and "),
        zh=_listed([f"{slot} = {what or '没有名字的张量'}（版本 {v}）" for slot, what, v in slots], "、", "、"),
    )


def _slot(event: Event, look: _Around, slot: dict[str, Any]) -> str:
    """A saved tensor's name; if only its memory is known, the name of this event's tensor on it, else the storage.

    Empty for what a part of a call made and nothing else has: of `cross_entropy` the result of its `log_softmax`.
    """
    if slot.get("tensor"):
        return look.name(slot["tensor"])
    own = (t for t in reversed(_labels(event)) if look.tensor(t).get("counter") == slot["counter"])
    found = next(own, None)
    return look.name(found) if found else str(slot.get("storage") or "")


def written(event: Event, known: Container[str]) -> list[str]:
    """The storages that an event wrote: those it lists, and ``known`` ones whose cells it changed."""
    changed = [
        p[1] for e in event.effects if len(p := e.path.split(".")) == 3 and p[0] == "storages" and p[2] == "cells"
    ]
    return list(dict.fromkeys([*event.writes, *(s for s in changed if s in known)]))


def _in_place(storages: list[str], event: Event, look: _Around, code: str) -> T:
    named = [look.name(o) for o in _labels(event) if look.tensor(o).get("storage") in storages]
    name = named[0] if named and "(" in named[0] else ""
    hidden = name and not re.search(rf"(?<!\w){re.escape(name.split(' (')[0])}(?!\w)", code)
    of_en, of_zh = (f" of {name}", f"（{name}）") if hidden else ("", "")
    which, bumps = ", ".join(storages), look.bumps()
    if bumps:
        en_moves = ", ".join(f"{c} goes from {old} to {new}" for c, old, new in bumps)
        zh_moves = "，".join(f"{c} 从 {old} 变为 {new}" for c, old, new in bumps)
        word = "counters" if len(bumps) > 1 else "counter"
        en = f"{code} writes into storage {which}{of_en} in place: {word} {en_moves}."
        zh = f"{code} 就地写入存储 {which}{of_zh}：版本计数器 {zh_moves}。"
    else:
        hurt = _unaware(storages, look)
        en = f"{code} writes into storage {which}{of_en}, and no version counter moves.{hurt.en}"
        zh = f"{code} 写入存储 {which}{of_zh}，没有版本计数器变化。{hurt.zh}"
    graph = _recorded(event, look)
    return T(en=en + graph.en, zh=zh + graph.zh)


def _labels(event: Event) -> list[str]:
    return [*(o.label for o in event.operands if o.label), *event.results]


def _unaware(storages: list[str], look: _Around) -> T:
    """The sentence about nodes that have saved memory which was written without a new version; empty if
    none has, or all were freed.
    """
    names = [
        look.node(label)
        for label, node in look.before.get("nodes", {}).items()
        if not node.get("freed") and any(s.get("storage") in storages for s in node.get("saved", ()))
    ]
    if not names:
        return T(en="", zh="")
    who, count = ", ".join(names[:3]), len(names) - 3
    more_en, more_zh = (f" and {count} more", f"等 {count + 3} 个节点") if count > 0 else ("", "")
    return T(
        en=f" {who}{more_en} saved this memory and will not notice.",
        zh=f"{who}{more_zh} 保存过这块内存，不会察觉。",
    )


def _write(event: Event, look: _Around, trace: Trace) -> T:
    through = next((o.label for o in event.operands if o.label), None)
    by_en, by_zh = (f" through {look.name(through)}", f"经 {look.name(through)} ") if through else ("", "")
    code, storages, hurt = _code(event, trace), ", ".join(event.writes), _unaware(list(event.writes), look)
    return T(
        en=f"{code}: memory of storage {storages} changed{by_en} behind torch's back; no version "
        f"counter moved.{hurt.en}",
        zh=f"{code}：存储 {storages} 的内存{by_zh}在 torch 不知情时改变，版本计数器没有变化。{hurt.zh}",
    )


def _mode(event: Event) -> T:
    values = {effect.path: effect.value for effect in event.effects}
    if values.get("mode.inference") is True:
        return T(
            en="Inference mode begins: no graph and no version counters.",
            zh="进入推理模式：没有计算图，也没有版本计数器。",
        )
    if values.get("mode.grad") is False:
        return T(en="From here torch records no graph.", zh="从这里起 torch 不再记录计算图。")
    return T(en="From here torch records the graph.", zh="从这里起 torch 记录计算图。")


def _node(event: Event, look: _Around, trace: Trace) -> T:
    label = next((path[1] for e in event.effects if (path := e.path.split("."))[0] == "nodes" and len(path) > 1), None)
    record = look.after["nodes"].get(label) or {}
    name = look.node(label) if label else event.op
    shape = record.get("gradient_shape")
    got_en = f" gets a gradient of shape {shape_text(shape)}" if shape is not None else " runs"
    got_zh = f"收到形状 {shape_text(shape)} 的梯度" if shape is not None else "运行"
    if event.error is not None:
        return T(
            en=f"Backward: {name}{got_en} and needs what it saved.", zh=f"反向：{name} {got_zh}，需要它保存的张量。"
        )
    if record.get("name") == "AccumulateGrad":
        return _accumulated(record, name, T(en=got_en, zh=got_zh), look)
    onward = list(dict.fromkeys(n for n in record.get("next", ()) if n))
    started = _pass_of(event, trace)
    picks = started is not None and started.error is None and (started.op == _GRAD or _named(started, "inputs"))
    returned = _returned(onward, started, look) if picks and started is not None else []
    onward = _run_later(onward, event, trace) if picks else onward
    parts = []
    if onward:
        parts.append(
            T(en=f"passes it on to {', '.join(map(look.node, onward))}", zh=f"传给 {'、'.join(map(look.node, onward))}")
        )
    if returned:
        what = T(en=" and ".join(one.en for one in returned), zh="和".join(one.zh for one in returned))
        parts.append(
            T(
                en=f"hands its result to `grad`, which returns {what.en} and adds nothing to `.grad`",
                zh=f"把结果交给 `grad`，由它返回{what.zh}，不加到任何 `.grad` 上",
            )
        )
    to_en, to_zh = ", and ".join(part.en for part in parts), "；".join(part.zh for part in parts)
    return T(
        en=f"Backward: {name}{got_en}{f' and {to_en}' if to_en else ''}.",
        zh=f"反向：{name} {got_zh}{f'，{to_zh}' if to_zh else ''}。",
    )


def _accumulated(record: dict[str, Any], name: str, got: T, look: _Around) -> T:
    """The sentence on an AccumulateGrad node that ran: torch drops what comes to a leaf that does not require grad any
    more. Where neither the gradient nor a ``.grad`` is known, a custom Function may have returned None.
    """
    leaf = look.tensor(record.get("output"))
    to = look.name(record.get("output"))
    if record.get("gradient") is None and "grad" in leaf and leaf["grad"] is None:
        return T(
            en=f"Backward: {name} runs; the `.grad` of {to} is None after this backward.",
            zh=f"反向：{name} 运行；这次反向传播之后，{to} 的 `.grad` 是 None。",
        )
    if leaf.get("requires_grad") is False:
        return T(
            en=f"Backward: {name}{got.en} and drops it: {to} does not require grad any more, and its `.grad` stays as "
            "it is.",
            zh=f"反向：{name} {got.zh}，随即丢弃：{to} 已不再需要梯度，其 `.grad` 保持不变。",
        )
    return T(
        en=f"Backward: {name}{got.en} and adds it to the `.grad` of {to}.",
        zh=f"反向：{name} {got.zh}，加到 {to} 的 `.grad` 上。",
    )


def _pass_of(event: Event, trace: Trace) -> Event | None:
    """The call of the backward pass that a node ran in; None if the trace does not have it."""
    parent = event.parent
    return trace.events[parent] if parent is not None and 0 <= parent < len(trace.events) else None


def _named(event: Event, name: str) -> list[str]:
    """The labels of a call's operands that were given by this keyword."""
    return [operand.label for operand in event.operands if operand.name == name and operand.label]


def _run_later(nodes: list[str], event: Event, trace: Trace) -> list[str]:
    """Those of ``nodes`` that run after ``event`` in the same pass. With ``inputs``, as in ``grad``, a backward runs
    only the nodes that lead to these, and AccumulateGrad only for leaves among them.
    """
    left = {f"nodes.{node}.ran" for node in nodes}
    found: set[str] = set()
    for later in trace.events[event.step + 1 :] if left else ():
        if later.parent is None or later.parent < (event.parent or 0) or found == left:
            break
        found |= {effect.path for effect in later.effects if effect.path in left}
    return [node for node in nodes if f"nodes.{node}.ran" in found]


def _returned(nodes: list[str], started: Event, look: _Around) -> list[T]:
    """The gradients that ``torch.autograd.grad`` returns of what it takes at ``nodes``: each "the gradient of x", with
    its own name where the trace tells which it is. Empty for another pass: that returns none.
    """
    if started.op != _GRAD:
        return []
    inputs = _inputs(started, look)
    gradients = dict(zip(inputs, started.results, strict=True)) if len(inputs) == len(started.results) else {}
    found = []
    for node in nodes:
        tensor = (look.after["nodes"].get(node) or {}).get("output")
        if tensor in inputs:
            of, own = look.name(tensor), gradients.get(tensor)
            as_en, as_zh = (f" as {look.name(own)}", f" {look.name(own)}") if own else ("", "")
            found.append(T(en=f"the gradient of {of}{as_en}", zh=f" {of} 的梯度{as_zh}"))
    return found


def _inputs(started: Event, look: _Around) -> list[str]:
    """The tensors whose gradients a call of ``grad`` is to return, as far as its operands tell: the trace has the
    tensors of all arguments one after the other, outputs first.
    """
    if named := _named(started, "inputs"):
        return named
    labels = [o.label for o in started.operands if o.label and o.name not in ("outputs", "grad_outputs")]
    if _named(started, "outputs"):
        return labels
    rest = len(labels) - len(started.results)
    if rest <= 1 or any(operand.name == "allow_unused" for operand in started.operands):
        return labels[1:]
    last = labels[rest:]
    if all(look.tensor(label).get("requires_grad") for label in last):
        return last  # so many outputs
    return labels[rest // 2 : rest // 2 + len(started.results)]  # behind the inputs, a gradient for each output


def _forecast(event: Event, failure: Failure, look: _Around) -> T:
    if failure.kind == "saved-tensor-modified":
        return T(
            en=f"Node {look.node(failure.node)} saved this memory at version {failure.expected}, so its backward "
            "will now fail.",
            zh=f"节点 {look.node(failure.node)} 保存的是版本 {failure.expected}，它的反向传播现在必定出错。",
        )
    if event.error is not None:
        return T(en="", zh="")
    return T(en=f"This will raise {failure.type}.", zh=f"这将引发 {failure.type}。")


def _harm(look: _Around, harm: Any) -> T:
    leaf = look.name(harm.leaf)
    return T(
        en=f"The gradient of {leaf} is {cells_text(harm.torch)}; with the saved values it would be "
        f"{cells_text(harm.meant)}.",
        zh=f"{leaf} 的梯度是 {cells_text(harm.torch)}；按保存时的值应为 {cells_text(harm.meant)}。",
    )


def _kept(failure: Failure, look: _Around) -> str:
    """The tensor that a failed node had saved; if unknown, a tensor on its counter, else its storage."""
    if failure.tensor:
        return look.name(failure.tensor)
    sharing = (
        t
        for t, r in look.before.get("tensors", {}).items()
        if isinstance(r, dict) and r.get("counter") == failure.counter
    )
    names = [look.name(t) for t in sharing if failure.counter]
    return next((name for name in names if "(" in name), names[0] if names else str(failure.storage or "?"))


def _error(event: Event, failure: Failure, look: _Around, trace: Trace) -> T:
    code = _code(event, trace)
    if failure.kind == "saved-tensor-modified":
        node, tensor = look.node(failure.node), _kept(failure, look)
        slot, expected, found = failure.saved, failure.expected, failure.found
        return T(
            en=f"torch raises {failure.type}: {node} saved {tensor} as {slot} at version {expected} and "
            f"finds version {found}.",
            zh=f"torch 引发 {failure.type}：{node} 把 {tensor} 存为 {slot} 时是版本 {expected}，现在是版本 {found}。",
        )
    if failure.kind == "backward-twice":
        return T(
            en=f"torch raises {failure.type}: the tensors that {look.node(failure.node)} saved were freed by "
            "an earlier backward.",
            zh=f"torch 引发 {failure.type}：{look.node(failure.node)} 保存的张量已在先前的反向传播中释放。",
        )
    lines = failure.message.strip().splitlines()
    first = lines[0] if lines else ""
    first = first if len(first) <= 200 else first[:199] + "…"
    return T(en=f"{code} raises {failure.type}: {first}", zh=f"{code} 引发 {failure.type}：{first}")
