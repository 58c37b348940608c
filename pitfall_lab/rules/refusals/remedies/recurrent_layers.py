"""Errors of a recurrent layer: states with their dimensions in another order or for another batch size, and packed
sequences.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, is_name
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import shape_text
from pitfall_lab.rules.refusals.remedies.at_birth import birth, rewritten
from pitfall_lab.rules.refusals.remedies.edits import with_keyword
from pitfall_lab.rules.refusals.remedies.loaded_batches import loader
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T

FACTORIES = {"zeros", "ones", "randn", "rand", "empty", "full", "new_zeros", "new_ones", "new_empty"}
"""Calls in the source that create a state, with its sizes as arguments."""
FURTHEST = 400
"""How many tensors are searched at most."""


def state(error: Error) -> Remedy | None:
    """Return the remedy for a hidden state of the wrong shape, with fixes that give its sizes in the right order or, if
    one size differs, take the batch size of the input, or pass ``drop_last=True`` to the loader.

    None if the number of dimensions is wrong.
    """
    refused, wrong, story = error.refused, error.wrong, error.refused.story
    wanted = tuple(int(n) for n in re.findall(r"\d+", error.match[1]))
    got = wrong.shape if wrong is not None else None
    if wrong is None or got is None or len(got) != len(wanted) or story.program.tree is None:
        return None
    found = birth(refused, wrong)
    fixes: list[Fix | None] = []
    order = next((p for p in itertools.permutations(range(len(got))) if tuple(got[k] for k in p) == wanted), None)
    makers = list(_makers(story.program, refused.call, found[0] if found is not None else None))
    if order is not None:
        fixes.append(_reordered(story.program, makers, order))
        if order == (1, 0, 2) and not makers:
            fixes.append(rewritten(refused, wrong, "{}.transpose(0, 1).contiguous()"))
    elif sum(a != b for a, b in zip(got, wanted, strict=True)) == 1:
        at = next(k for k, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b)
        fixes += [*_of_the_input(error, makers, at), _complete_batches(story, refused.step)]
    if found is None:
        return Remedy(unique(story.program.text, fixes))
    where, here, name = at_line(story, found[1]), at_line(story, refused.span), refused.name(wrong)
    needed = shape_text(wanted, "en")
    said = T(
        en=f"{capital(where.en)} makes the state {name.en} of shape {shape_text(got, 'en')}, and the layer on "
        f"{here.en} takes {needed}: layers × batch × hidden size.",
        zh=f"{where.zh}创建的状态 {name.zh} 形状是 {shape_text(got, 'zh')}，而{here.zh}的层要求 {needed}：层"
        "数 × 批大小 × 隐藏大小。",
    )
    related = (Related("made", found[1], found[2], T(en=f"{name.en} is made here", zh=f"{name.zh} 在这里创建")),)
    return Remedy(unique(story.program.text, fixes), said, None, found[1], found[2], related)


def _makers(program: Program, layer: ast.Call | None, first: ast.expr | None) -> Iterator[ast.Call]:
    """The factory call that created the state, and the calls with the same sizes that created the other states of the
    layer.
    """
    if not isinstance(first, ast.Call) or called(first) not in FACTORIES:
        return
    yield first
    names = [n for a in layer.args for n in ast.walk(a)] if layer is not None else []
    for name in names:
        if isinstance(name, ast.Name):
            for made in origins(program, name):
                if (
                    isinstance(made, ast.Call)
                    and made is not first
                    and [program.segment(a) for a in made.args] == [program.segment(a) for a in first.args]
                ):
                    yield made


def _sizes(call: ast.Call) -> list[ast.expr]:
    """The sizes that are passed to a factory, as separate arguments or in one tuple."""
    if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple | ast.List):
        return call.args[0].elts
    return call.args


def _reordered(program: Program, makers: list[ast.Call], order: tuple[int, ...]) -> Fix | None:
    """The fix that gives the sizes of each state in another order; None if the source does not show them one by one."""
    if not makers or any(
        len(_sizes(call)) != len(order) or any(isinstance(a, ast.Starred) for a in call.args) for call in makers
    ):
        return None
    changes = [
        (size, program.segment(_sizes(call)[k])) for call in makers for size, k in zip(_sizes(call), order, strict=True)
        if size is not _sizes(call)[k]
    ]  # fmt: skip
    text = ", ".join(program.segment(_sizes(makers[0])[k]) for k in order)
    return Fix(
        T(en=f"Make it with the sizes in this order: `{text}`", zh=f"按这个次序给出大小：`{text}`"),
        program.replace(*changes),
    )


def _of_the_input(error: Error, makers: list[ast.Call], at: int) -> Iterator[Fix]:
    """Yield fixes that take the batch size of a state from the layer's input.

    Yields nothing if another size than the batch size is wrong, if the input is no name, or if the state is created
    without this size or in another function.
    """
    program, node = error.refused.story.program, error.refused.call
    given = node.args[0] if node is not None and node.args else None
    if at != 1 or given is None or not is_name(given) or not makers or any(len(_sizes(call)) <= at for call in makers):
        return
    if any(program.function(call) is not program.function(given) for call in makers):
        return
    for dim in (0, 1):
        text = f"{program.segment(given)}.size({dim})"
        shape = next((g.shape for g in error.refused.tensors if g.text == program.segment(given)), None)
        if shape is None or shape[dim : dim + 1] == (int(re.findall(r"\d+", error.match[1])[1]),):
            changes = [(_sizes(call)[at], text) for call in makers]
            yield Fix(
                T(en=f"Take the batch size from the input: `{text}`", zh=f"批大小取自输入：`{text}`"),
                program.replace(*changes),
            )


def _complete_batches(story: Story, step: int) -> Fix | None:
    """The fix that leaves out the smaller last batch (``drop_last=True``).

    None if no loader is known, or if it already has ``drop_last``.
    """
    found = loader(story, step)
    change = with_keyword(story.program, found[0], "drop_last=True") if found is not None else None
    title = T(en="Leave out the incomplete last batch: `drop_last=True`", zh="舍去不完整的最后一批：`drop_last=True`")
    return Fix(title, story.program.splice(change), meaning="recompute") if change is not None else None


def padded_again(error: Error) -> Remedy | None:
    """Return the remedy for sizes that differ because ``pad_packed_sequence`` pads only to the longest sequence of the
    batch, with fixes that pass ``total_length=``.

    None if neither tensor was computed from its result, or if their sizes are not the two lengths.
    """
    refused, story = error.refused, error.refused.story
    for given in refused.tensors:
        other = next((g for g in refused.tensors if g is not given), None)
        unpacked = _unpacking(story, given.label, refused.step)
        if unpacked is None or other is None or given.shape is None or other.shape is None:
            continue
        packing = _packed(story, unpacked)
        lengths = _lengths(story, packing, unpacked)
        if lengths is None or lengths[1] not in other.shape or lengths[2] not in given.shape:
            continue
        node = story.program.at(story.span(unpacked.step))
        if isinstance(node, ast.Call) and called(node) == "pad_packed_sequence":
            return _with_total(error, node, unpacked, packing, lengths)
    return None


def _unpacking(story: Story, label: str | None, step: int) -> Event | None:
    """The call of ``pad_packed_sequence`` from which a tensor was computed; None if there is none within ``FURTHEST``
    tensors.
    """
    pending, seen = [label], set[str | None]()
    while pending and len(seen) < FURTHEST:
        here = pending.pop()
        event = story.event((story.tensor(here, step) or {}).get("born"))
        if here in seen or event is None:
            continue
        seen.add(here)
        if event.name == "_pad_packed_sequence":
            return event
        pending += [
            o.label
            for o in event.operands
            if o.label is not None and (story.tensor(o.label) or {}).get("kind") != "parameter"
        ]
    return None


def _packed(story: Story, unpacked: Event) -> Event | None:
    """The last call that packed sequences before ``unpacked``; None if there is none."""
    before = [e for e in story.calls("_pack_padded_sequence") if e.step < unpacked.step and e.error is None]
    return before[-1] if before else None


def _lengths(story: Story, packing: Event | None, unpacked: Event) -> tuple[int, int, int] | None:
    """The dimension of the time steps, its length when the sequences were packed, and its length after unpacking; None
    if both are equal, or unknown.
    """
    packed = story.shape(packing.operands[0].label, packing.step) if packing is not None and packing.operands else None
    again = story.shape(unpacked.results[0], unpacked.step) if unpacked.results else None
    if packed is None or again is None:
        return None
    at = next((k for k in (1, 0) if packed[k] != again[k]), None)
    return (at, packed[at], again[at]) if at is not None else None


def _with_total(
    error: Error, node: ast.Call, unpacked: Event, packing: Event | None, lengths: tuple[int, int, int]
) -> Remedy | None:
    refused, story = error.refused, error.refused.story
    program, (at, long, short) = story.program, lengths
    where, here = at_line(story, program.place(node)), at_line(story, refused.span)
    fixes = []
    for text in _long_ones(story, packing, program.function(node), at, long):
        change = with_keyword(program, node, f"total_length={text}")
        title = T(
            en=f"Pad to the length that was packed: `total_length={text}`",
            zh=f"补齐到打包前的长度：`total_length={text}`",
        )
        fixes += [Fix(title, program.splice(change))] if change is not None else []
    said = T(
        en=f"{capital(where.en)} pads the sequences to the longest of this batch, {short}, and not to the {long} that "
        f"they had before they were packed, so that {long} and {short} do not line up on {here.en}.",
        zh=f"{where.zh}只把序列补齐到这一批的最大长度 {short}，而不是打包之前的 {long}：到了{here.zh}，"
        f"{long} 与 {short} 对不上。",
    )
    accepts = T(en=f"sequences of length {long}: `pad_packed_sequence(…, total_length={long})`",
                zh=f"长度为 {long} 的序列：`pad_packed_sequence(…, total_length={long})`")  # fmt: skip
    related = (
        Related(
            "made", program.place(node), unpacked.step, T(en=f"padded to {short} here", zh=f"在这里补齐到 {short}")
        ),
    )
    return Remedy(unique(program.text, fixes), said, accepts, program.place(node), unpacked.step, related)


def _long_ones(story: Story, packing: Event | None, function: ast.AST | None, at: int, long: int) -> Iterator[str]:
    """Yield expressions, valid in a function, for the length before packing: the size of a tensor that was packed; if
    there is none, the number.
    """
    program = story.program
    label = packing.operands[0].label if packing is not None and packing.operands else None
    expression = written_as(story, packing, label) if packing is not None else None
    called_ones = (
        {id(n.func) for n in ast.walk(expression) if isinstance(n, ast.Call)} if expression is not None else set()
    )
    names = (
        [n for n in ast.walk(expression) if isinstance(n, ast.expr) and is_name(n)] if expression is not None else []
    )
    texts = [program.segment(n) for n in names if id(n) not in called_ones and program.function(n) is function]
    yield from (f"{text}.size({at})" for text in texts if text != "self")
    if not set(texts) - {"self"}:
        yield str(long)
