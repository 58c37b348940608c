"""Static pictures of live tensors (``show_storage``, ``show_graph``, ...), drawn from a one-event trace. Most functions
return a :class:`~pitfall_lab.views.picture.Picture`, with a text version; :func:`scene` and :func:`broadcast_scene`
return the data of one.
"""

# ruff: noqa: PLC0415 - few pictures are exported to a file

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from pitfall_lab.trace import Language, Note, Trace
from pitfall_lab.trace.state_types import Cell
from pitfall_lab.trace.text import cell_text, sentences, shape_text
from pitfall_lab.views import broadcast as broadcast_view
from pitfall_lab.views import graph as graph_view
from pitfall_lab.views import memory as memory_view
from pitfall_lab.views import storage as storage_view
from pitfall_lab.views.broadcast import BroadcastCase, BroadcastOperand, BroadcastScene, Meeting
from pitfall_lab.views.broadcast import svg as broadcast_svg
from pitfall_lab.views.graph import svg as graph_svg
from pitfall_lab.views.label_history import Facts, gather
from pitfall_lab.views.memory import MemoryScene
from pitfall_lab.views.memory import allocator as allocator_view
from pitfall_lab.views.memory import svg as memory_svg
from pitfall_lab.views.picture import Picture
from pitfall_lab.views.spoken_names import both
from pitfall_lab.views.storage import StorageScene
from pitfall_lab.views.storage import svg as storage_svg
from pitfall_lab.views.versions import now as versions_now

WORDS = 16
"""The largest number of a tensor's elements that are listed in words."""


def storage(trace: Trace, language: Language = "en") -> Picture:
    """The picture of storages as rows of cells, with a bracket for each tensor on them."""
    facts, zh = _moment(trace), language == "zh"
    scene = storage_view.project(trace, facts)
    lines = []
    for one in scene["storages"]:
        lines.append(
            f"{facts.called(one['id'])}: {one['size']} × {one['dtype']}, {one['nbytes']} {'字节' if zh else 'bytes'}"
        )
        for brush in one["brushes"]:
            entry = brush["history"][-1]
            name = facts.name(brush["tensor"])
            kind = (
                "NumPy"
                if brush["kind"] == "array"
                else facts.badge(entry["counter"], one["id"], facts.final["counters"].get(entry["counter"]))
            )
            if not entry["counter"] and brush["kind"] != "array":
                kind = "无版本计数器" if zh else "no version counter"
            lines.append(
                f"  {name}  {kind}  shape {tuple(entry['shape'])}  stride {tuple(entry['stride'])}  "
                f"offset {entry['offset']}"
            )
            reads = [
                f"[{c}]→{'/'.join(names)}={cell_text(v) if v is not None else '?'}"
                for c, names, v in zip(
                    one["columns"], entry["cover"], one["values"][-1]["cells"] if one["values"] else (), strict=False
                )
                if names
            ]
            if reads:
                lines.append(f"    {' '.join(reads[:WORDS])}{' …' if len(reads) > WORDS else ''}")
    said = _sharing(scene, facts, zh=zh)
    notes = (*((Note("limit", said, said),) if said else ()), *trace.notes)
    drawing = storage_svg.draw(scene, facts, language) if scene["storages"] else ""
    files = _on_paper("storage", scene, facts, language) if drawing else {}
    return Picture(
        drawing, "\n".join(lines), title="存储" if zh else "Storage", notes=notes, language=language, files=files
    )


def _on_paper(
    view: str, scene: StorageScene | BroadcastScene | MemoryScene, facts: Facts, language: Language
) -> dict[str, Callable[[Path], None]]:
    """Functions that draw the picture for print, by file ending. matplotlib is imported
    only when a picture is saved.
    """

    def write(path: Path) -> None:
        import_module(f"pitfall_lab.views.{view}.paper").draw(scene, facts, language).savefig(path, dpi=200)

    return {".pdf": write, ".png": write}


def scene(trace: Trace, view: str) -> dict[str, Any]:
    """The storages of a trace of live tensors, as data that the browser draws.

    ``view`` is the key of the storages, and can only be ``"storage"``. A sentence for each event and the tensors' names
    and colours are added.
    """
    facts = _moment(trace)
    said = []
    for event, text in sentences(trace):
        plain = both(text, facts, event.step)
        said.append({"step": event.step, "sentence": {"en": plain.en, "zh": plain.zh}})
    facts.called(None)
    return {
        view: {"storage": storage_view}[view].project(trace, facts),
        "events": said,
        "palette": facts.palette,
        "names": facts.names,
    }


def _moment(trace: Trace) -> Facts:
    """The facts of a trace of one moment, with names shown without labels, since each name occurs once."""
    return replace(gather(trace), labelled=False)


def _sharing(scene: StorageScene, facts: Facts, *, zh: bool) -> str:
    """A sentence that says which tensors share memory, or that none do; "" if there are not two tensors to compare."""
    groups = [
        [facts.tensor(b["tensor"]).get("name") or b["tensor"] for b in one["brushes"]] for one in scene["storages"]
    ]
    shared = [group for group in groups if len(group) > 1]
    if not any(groups):
        return ""
    if shared:
        sentence = "; ".join(", ".join(group) for group in shared)
        return f"共享内存：{sentence}。" if zh else f"Share memory: {sentence}."
    if len(groups) > 1:
        return "没有共享的内存。" if zh else "Nothing shares memory."
    return ""


def graph(trace: Trace, language: Language = "en") -> Picture:
    """The autograd graph with what each node saved."""
    facts, zh = _moment(trace), language == "zh"
    scene = graph_view.project(trace, facts)
    scene.pop("ladder", None)
    lines = []
    for card in scene["nodes"]:
        if card["kind"] == "leaf":
            continue
        record = facts.nodes[card["id"]][-1][1]
        sources = ", ".join(str(s) for s in record["next"] if s)
        arrow = f" ← {sources}" if sources else ""
        lines.append(
            f"{card['id']} {card['title']}{arrow}" + (f"  {card['sub']}" if card["sub"] else "") + _leaf(facts, record)
        )
        lines += [f"    {_saved(slot, facts, card['id'], zh=zh)}" for slot in record["saved"]]
    drawing = graph_svg.draw(scene, facts, language) if scene["nodes"] else ""

    def write(path: Path) -> None:
        from pitfall_lab.views.graph.export import write

        write(scene, facts, path)

    files = dict.fromkeys((".dot", ".pdf", ".png"), write) if scene["nodes"] else {}
    title = "计算图" if zh else f"Computation graph with {scene['count']} nodes"
    return Picture(drawing, "\n".join(lines), title=title, notes=trace.notes, language=language, files=files)


def _leaf(facts: Facts, record: dict[str, Any]) -> str:
    if record["name"] != "AccumulateGrad" or not record["output"]:
        return ""
    tensor = facts.tensor(record["output"])
    return f"  → {tensor.get('name') or record['output']}.grad {shape_text(tensor.get('shape'))}"


def _saved(slot: dict[str, Any], facts: Facts, node: str, *, zh: bool) -> str:
    """One saved tensor and its state in words; for a stale one with torch's error message."""
    who = facts.tensor(slot["tensor"]).get("name") or facts.called(slot["storage"] or "")
    who = "" if who in (slot["storage"], "?") else who
    name = f"{slot['name']} = {who}" if who else slot["name"]
    version = f" v{slot['version']}" if slot["version"] is not None else ""
    if slot["state"] == "stale":
        failure = next(
            e.error for e in facts.trace.events if e.error and e.error.node == node and e.error.saved == slot["name"]
        )
        now = f"v{failure.found}"
        sentence = (
            f"保存于{version}，现在 {now}，torch 拒绝使用" if zh else f"saved at{version}, now {now}: torch refuses it"
        )
        return f"✕ {name}: {sentence}: {failure.message.split(' Hint:')[0]}"
    fate = {
        "freed": ("freed", "已释放"),
        "hooked": ("saved through a hook", "经钩子保存"),
        "kept": ("saved", "已保存"),
    }[slot["state"]]
    return f"{fate[zh]} {name}{version}"


def broadcast(trace: Trace, names: list[str], language: Language = "en") -> Picture:
    """The picture of how the shapes of a trace's tensors broadcast, in the order of ``names``, aligned from the right.

    Empty with fewer than two tensors.
    """
    facts, zh = _moment(trace), language == "zh"
    scene = broadcast_scene(trace, names)
    if not scene["cases"]:
        return Picture("", "", title="", notes=trace.notes, language=language)
    (met,) = scene["cases"]
    lines = [
        f"{facts.tensor(o['label']).get('name')}: {shape_text(o['shape'])}{_stretch(o, zh=zh)}" for o in met["operands"]
    ]
    said = _meeting(met, zh=zh)
    notes = (*trace.notes, Note("limit", said, said))
    drawing = broadcast_svg.draw(scene, facts, language)
    title = f"{'广播' if zh else 'Broadcasting'}: {met['code']}"
    files = _on_paper("broadcast", scene, facts, language)
    return Picture(drawing, "\n".join(lines), title=title, notes=notes, language=language, files=files)


def broadcast_scene(trace: Trace, names: list[str]) -> BroadcastScene:
    """The data for broadcasting the tensors of a trace, in the order of ``names``; empty with fewer than two."""
    facts = _moment(trace)
    tensors = sorted(facts.tensors, key=lambda t: names.index(facts.tensor(t)["name"]))
    if len(tensors) < 2:
        return {"cases": [], "left_out": 0}
    met = broadcast_view.meet(facts, tensors, 0)
    case: BroadcastCase = {
        "step": 0,
        "steps": [],
        "op": "",
        "sign": "∘",
        "node": None,
        "line": None,
        "code": " ∘ ".join(str(facts.tensor(t).get("name") or t) for t in tensors),
        "result": {"label": None, "shape": met["shape"], "reduced": False, "cells": _pairs(met)},
        "ran": None,
        "wasteful": False,
        "clash": met["clash"],
        "operands": met["operands"],
        "crossed": met["crossed"],
    }
    return {"cases": [case], "left_out": 0}


def _pairs(met: Meeting) -> list[Cell | None] | None:
    """If (N,) meets (N, 1): for each cell of the N × N result, the indices of the two elements that it combines, as
    text.

    None for other shapes, and for more than 10,000 cells.
    """
    if not met["crossed"] or len(met["operands"]) != 2 or len(met["shape"]) != 2:
        return None
    flat_first = len(met["operands"][0]["shape"]) == 1
    rows, columns = met["shape"]
    return (
        [f"{c}·{r}" if flat_first else f"{r}·{c}" for r in range(rows) for c in range(columns)]
        if rows * columns <= 10_000
        else None
    )


def _stretch(operand: BroadcastOperand, *, zh: bool) -> str:
    stretched = [d for d, dim in enumerate(operand["dims"]) if dim["kind"] in ("one", "missing")]
    if not stretched:
        return ""
    dims = ", ".join(map(str, stretched))
    text = f"，在第 {dims} 维拉伸（步长 0）" if zh else f", stretched in dim {dims} (stride 0)"
    if not operand["summed"]:
        return text
    return text + ("，反向时求和" if zh else "; backward sums there")


def _meeting(met: BroadcastCase, *, zh: bool) -> str:
    shapes = f" {met['sign']} ".join(shape_text(o["shape"]) for o in met["operands"])
    if met["clash"]:
        d = met["clash"][0]
        sizes = sorted({o["dims"][d]["size"] or 0 for o in met["operands"] if o["dims"][d]["kind"] == "clash"})
        back = d - len(met["result"]["shape"])
        sentence = (
            f"第 {back} 维的大小 {sizes} 既不相等也不为 1"
            if zh
            else f"sizes {sizes} in dim {back} are neither equal nor 1"
        )
        return f"{shapes} ✕ {sentence}: {'torch 会报错' if zh else 'torch raises an error'}."
    result = f"{shapes} → {shape_text(met['result']['shape'])}"
    if met["crossed"]:
        n = met["result"]["shape"][-1]
        if zh:
            return f"{result}：每行都遇到每列，得到 {n}×{n} = {n * n} 个数，而不是 {n} 个。"
        return f"{result}: every row meets every column, {n} × {n} = {n * n} numbers instead of {n}."
    return result


def versions(trace: Trace, language: Language = "en") -> Picture:
    """The picture of version counters: for each, its version, its tensors, and the tensors that share their memory but
    not the counter.
    """
    facts, zh = _moment(trace), language == "zh"
    rows = versions_now.rows(facts)
    lines = []
    for row in rows:
        where = (
            facts.badge(row["counter"], row["storage"], row["version"])
            if row["counter"]
            else ("没有计数器" if zh else "no counter")
        )
        lines.append(f"{where}: {', '.join(row['names'])}")
        if row["beside"]:
            others = ", ".join(row["beside"])
            en = f"shares memory with {others}, whose writes it does not count"
            lines.append("    " + (f"与 {others} 共享内存，但那里的写入不会计入" if zh else en))
    drawing = versions_now.draw(rows, facts, language) if rows else ""
    return Picture(
        drawing,
        "\n".join(lines),
        title="版本计数器" if zh else "Version counters",
        notes=trace.notes,
        language=language,
    )


def memory(trace: Trace, language: Language = "en") -> Picture:
    """Live bytes over the steps of a recorded program."""
    facts, scene, words = _memory(trace, language)
    drawing = memory_svg.draw(scene, facts, language)
    words += f"\n{memory_view.counted(language)}" if memory_svg.has(scene, facts) else ""
    files = _on_paper("memory", scene, facts, language)
    notes = (*_ended(trace), *trace.notes)
    return Picture(
        drawing, words, title="内存" if language == "zh" else "Live memory", notes=notes, language=language, files=files
    )


def memories(programs: dict[str, Trace], language: Language = "en") -> Picture:
    """Return one picture with the live bytes of several recorded programs, on one scale."""
    looked = {name: _memory(trace, language) for name, trace in programs.items()}
    drawing = memory_svg.draw_together({name: (scene, facts) for name, (facts, scene, _) in looked.items()}, language)
    words = "\n".join(f"{name}\n{text}" for name, (_, _, text) in looked.items())
    if any(memory_svg.has(scene, facts) for facts, scene, _ in looked.values()):
        words += f"\n{memory_view.counted(language)}"
    notes = tuple(
        dict.fromkeys(note for name, trace in programs.items() for note in (*_ended(trace, name), *trace.notes))
    )
    title = "内存，同一刻度" if language == "zh" else "Live memory, on one scale"
    return Picture(drawing, words, title=title, notes=notes, language=language)


def _ended(trace: Trace, name: str = "") -> tuple[Note, ...]:
    """A note about the error that ended a program, since nothing after it was measured; empty if there was none."""
    failure = trace.outcome.failure
    if failure is None:
        return ()
    line = failure.span.line if failure.span is not None else None
    said = failure.message.partition("\n")[0].rstrip(". ")
    en = (
        f"{name or 'The program'} ended with {failure.type}{f' in line {line}' if line else ''}: {said}. Nothing "
        "after it was measured."
    )
    zh = f"{name or '程序'}{f'在第 {line} 行' if line else ''}以 {failure.type} 结束：{said}。此后的部分没有测量。"
    return (Note("limit", en, zh),)


def _memory(trace: Trace, language: Language) -> tuple[Facts, MemoryScene, str]:
    """The facts of one program, its scene of live bytes, and a version of that scene in words."""
    facts, zh = _moment(trace), language == "zh"
    scene = memory_view.project(trace, facts)
    memory_view.show_largest(scene, facts)
    peak, lines = scene["peak"], []
    if peak:
        line = facts.line(peak["step"])
        where = f"L{line}" if line else f"{'步骤' if zh else 'step'} {peak['step'] + 1}"
        count = f"{peak['bytes']} {'字节' if zh else 'bytes'} ({memory_view.bytes_text(peak['bytes'])})"
        lines.append(f"{'峰值' if zh else 'Peak'}: {count}, {where}")
        alive = [
            b for b in scene["bands"] if b["born"] <= peak["step"] and (b["died"] is None or b["died"] > peak["step"])
        ]
        for band in sorted(alive, key=lambda b: (-b["nbytes"], b["born"])):
            kept = ", ".join(
                dict.fromkeys(k.say(language) for k in memory_view.keepers(facts, band["id"], peak["step"]))
            )
            lines.append(
                f"  {band['nbytes']:>8}  {memory_view.names(facts, band['id'])}" + (f"  ← {kept}" if kept else "")
            )
        if scene["others"]:
            lines.append(f"  + {scene['others']}")
    return facts, scene, "\n".join(lines)


def allocator(found: list[allocator_view.Run], label: str, language: Language = "en") -> Picture:
    """The picture of the caching allocator's allocated and reserved bytes over the recorded points of the runs
    ``found``, without a drawing if there are none; ``label`` names the source of the data.
    """
    said = Note("limit", label, label)
    title = "缓存分配器" if language == "zh" else "The caching allocator"
    drawing = allocator_view.draw(found, label, language) if found else ""
    return Picture(drawing, allocator_view.words(found, language), title=title, notes=(said,), language=language)
