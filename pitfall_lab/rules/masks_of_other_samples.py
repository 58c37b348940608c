"""PL438: one mask for each sample was repeated for the heads of an attention in the wrong order, so that samples get
the masks of others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from operator import mul

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.repeated_in_another_order import FOLDS, RepeatedInAnotherOrder, row_order
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

WHOLE = ("scaled_dot_product_attention", "_native_multi_head_attention", "_transformer_encoder_layer_fwd")
"""Calls that are a whole attention, and take a mask of four axes: samples, heads, queries, keys."""
CONSTANT = {
    "zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like",
    "full_like", "empty_like",
}  # fmt: skip
"""Calls whose result has one number everywhere."""
JOINING = spellings("cat") | {"stack"}
JOINED = {"view", "reshape", "flatten"}
"""Calls that join an axis of copies with that of the samples behind it."""
MOVING = JOINED | spellings("expand") | {"unsqueeze", "repeat", "tile", "expand_as", "contiguous"}
"""Methods between a mask and its copies in the text."""
FURTHER = 60


@dataclass(frozen=True, slots=True)
class MasksOfOtherSamples:
    """``attention`` is the call (``Event``) that computes the scores of ``samples`` samples with ``heads`` heads each,
    or the weights of them; ``order`` tells how the masks of the samples were repeated for the heads.
    """

    attention: Event
    samples: int
    heads: int
    order: RepeatedInAnotherOrder


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with one of torch's attentions with several heads (``nn.MultiheadAttention``)
    whose mask has one matrix for each sample and head, made from one matrix for each sample by repeating all of them as
    a block (a b a b).

    Only where the masks of the samples are computed from what differs between samples, and not where there are as many
    samples as heads: there the masks may be one for each head.
    """
    reported = set()
    for attention in story.calls(*WHOLE, "baddbmm"):
        place = story.span(attention.step)
        found = _found(story, attention) if place not in reported and attention.error is None else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _found(story: Story, attention: Event) -> MasksOfOtherSamples | None:
    mask = _mask(story, attention)
    if mask is None:
        return None
    label, samples, heads = mask
    if min(samples, heads) < 2 or samples == heads:
        return None
    order = row_order(story, _given(story, label, attention), attention.step)
    if order is None or order.chosen or (order.kind, order.rows, order.times) != ("tiled", samples, heads):
        return None
    rows = {o.label for o in order.event.operands if o.label is not None}
    source = order.event.operands[0].label
    axis = 1 if order.event.name in JOINED else 0
    if source is None or len(rows) != 1 or not _differ(story, source, axis, order.event.step):
        return None
    return MasksOfOtherSamples(attention, samples, heads, order)


def _mask(story: Story, attention: Event) -> tuple[str, int, int] | None:
    """The mask of an attention before torch split its first axis into samples and heads, the number of samples, and the
    number of heads. None if torch did not split it.
    """
    if attention.name == "baddbmm":
        if not attention.operands or story.said(attention.step) == "baddbmm":
            return None
        label, shape = attention.operands[0].label, story.shape(attention.operands[0].label, attention.step) or ()
        for weights in story.uses(attention.results[0]) if label is not None and len(shape) == len("nqk") else ():
            for use in story.uses(weights.results[0]) if weights.name == "softmax" and weights.results else ():
                size = story.shape(use.results[0], use.step) or () if use.name == "view" and use.results else ()
                if len(size) == len("nhqk") and size[0] * size[1] == shape[0] and use.span == attention.span:
                    return str(label), size[0], size[1]
        return None
    for given in attention.operands:
        record = story.tensor(given.label, attention.step) or {}
        event, size = story.event(record.get("born")), tuple[int, ...](record.get("shape") or ())
        if event is None or event.name not in FOLDS or event.span != attention.span or len(size) != len("nhqk"):
            continue
        label = event.operands[0].label
        before = story.shape(label, event.step) or ()
        if label is None or before != (size[0] * size[1], *size[2:]) or story.said(event.step) == event.name:
            continue
        if given.label != attention.operands[0].label and not _is_projected(story, label):
            return label, size[0], size[1]
    return None


def _is_projected(story: Story, label: str) -> bool:
    """Whether ``transpose`` made a tensor, as torch does with query, key and value before it splits their axis: then it
    is no mask.
    """
    event = story.event((story.tensor(label) or {}).get("born"))
    return event is not None and event.name == "transpose"


def _given(story: Story, label: str, attention: Event) -> str:
    """The label of the mask that the program gave: if torch converted a bool mask to numbers (``zeros_like``, filled
    where the mask is true), that bool mask; else ``label`` itself.
    """
    event = story.event((story.tensor(label) or {}).get("born"))
    if event is not None and event.name == "zeros_like" and event.span == attention.span:
        return event.operands[0].label or label
    return label


def _differ(story: Story, label: str, axis: int, step: int) -> bool:
    """Whether the entries of a tensor along an axis, one for each sample, were computed from data that differ between
    samples, not from constants or repeated rows; False where that is not known.
    """
    pending, seen = [(label, axis, step)], set[tuple[str, int]]()
    while pending and len(seen) < FURTHER:
        here, axis, at = pending.pop(0)
        stride = tuple((story.tensor(here, at) or {}).get("stride") or ())
        if (here, axis) in seen or not stride or not stride[axis]:
            continue
        seen.add((here, axis))
        born = story.event((story.tensor(here) or {}).get("born"))
        event = born if born is not None and born.kind == "call" and here in born.results else None
        writes = _writes(story, here, born.step if born is not None else 0, at)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if any(by.name == "__setitem__" and _picks_rows(by) for by in writes):
            return True
        if event is not None and _is_joined_along(story, event, here, axis):
            if len(set(given)) > 1:
                return True
            continue
        name = event.name if event is not None else ""
        if not given and name not in CONSTANT and not _is_known_equal(story, here, axis, at):
            return True
        sources = [event] if event is not None and name not in CONSTANT else []
        for by in (*sources, *writes):
            for each in (o.label for o in by.operands if o.label is not None):
                way = _axis(story, each, here, axis, by) if each != here else None
                if way is not None:
                    pending.append((each, way, by.step))
    return False


def _is_joined_along(story: Story, event: Event, made: str, axis: int) -> bool:
    """Whether a call joins tensors along an axis of its result."""
    lengths = {(story.shape(o.label, event.step) or ())[axis : axis + 1] for o in event.operands if o.label is not None}
    return event.name in JOINING and lengths != {(story.shape(made, event.step) or ())[axis : axis + 1]}


def _writes(story: Story, label: str, after: int, until: int) -> list[Event]:
    """The calls that wrote the storage of a tensor after the step ``after``, up to ``until`` (included)."""
    storage = str((story.tensor(label, until) or {}).get("storage"))
    found = (story.event(step) for step in story.writes(storage, after, until + 1))
    return [event for event in found if event is not None]


def _picks_rows(write: Event) -> bool:
    """Whether the index of a write begins with a number or a tensor, so that it selects one row or some rows."""
    index = next(iter(write.operands[1:]), None)
    return index is not None and (index.label is not None or index.text.lstrip("(-")[:1].isdigit())


def _is_known_equal(story: Story, label: str, axis: int, step: int) -> bool:
    """Whether the trace has all values of a tensor, and they are equal along an axis."""
    record = story.tensor(label, step) or {}
    story.record("storages", record.get("storage"), step)  # marks the values as needed
    known, shape, stride = story.held(label, step), tuple(record.get("shape") or ()), tuple(record.get("stride") or ())
    if prod(shape) > len(known):
        return False
    for index in product(*map(range, shape)):
        first = (*index[:axis], 0, *index[axis + 1 :])
        at, other = (int(record.get("offset") or 0) + sum(map(mul, each, stride)) for each in (index, first))
        if at not in known or known.get(other) != known[at]:
            return False
    return True


def _axis(story: Story, source: str, made: str, axis: int, event: Event) -> int | None:
    """The axis of the operand ``source`` that became the axis ``axis`` of ``made``; None if no axis of the same length
    fits.

    For a view, it is the axis with the same stride. Otherwise the first axis stays the first if there are fewer axes
    after the call, and other axes keep their distance from the last one.
    """
    before, after = story.tensor(source, event.step) or {}, story.tensor(made, event.step) or {}
    shape, size = tuple(before.get("shape") or ()), tuple(after.get("shape") or ())
    if axis >= len(size):
        return None
    if before.get("storage") is not None and before.get("storage") == after.get("storage"):
        stride = (after.get("stride") or ())[axis]
        fitting = [i for i, n in enumerate(before.get("stride") or ()) if n == stride and shape[i] == size[axis]]
        return fitting[0] if fitting else None
    if axis == 0 and len(shape) > len(size) and shape[0] == size[0]:
        return 0
    place = axis - len(size) + len(shape)
    return place if 0 <= place < len(shape) and shape[place] == size[axis] else None


def _finding(story: Story, found: MasksOfOtherSamples) -> Finding:
    span, order = story.span(found.attention.step), found.order
    here, there = at_line(story, span), at_line(story, story.span(order.event.step))
    samples, heads = found.samples, found.heads
    wrong = sum(at % samples != at // heads for at in range(samples * heads))
    return RULE.finding(
        span,
        found.attention.step,
        T(
            en=f"{capital(here.en)} gives samples the attention masks of other samples: the masks are read sample by "
            f"sample, each for all {heads} heads in a row, but {there.en} repeated them as a whole ({wrong} of "
            f"{samples * heads} are those of another sample).",
            zh=f"{here.zh}让样本用上了别的样本的注意力掩码：掩码按样本逐个读取，每个样本的 {heads} 个头连续排列，而"
            f"{there.zh}把它们作为整体重复（{samples * heads} 个中有 {wrong} 个属于别的样本）。",
        ),
        T(
            en=f"A mask of three axes has {samples} × {heads} matrices here, and matrix `n * {heads} + h` is for head "
            f"`h` of sample `n`. Repeated as a whole, it is the mask of sample `(n * {heads} + h) % {samples}`. The "
            "shape is the same, so nothing is said. `repeat_interleave` puts the copies of a mask beside each other.",
            zh=f"三个轴的掩码在这里有 {samples} × {heads} 个矩阵，第 `n * {heads} + h` 个用于样本 `n` 的头 `h`。整体"
            f"重复之后，它却是样本 `(n * {heads} + h) % {samples}` 的掩码。形状相同，所以没有任何提示。"
            "`repeat_interleave` 让每个掩码的各个副本相邻。",
        ),
        related=[
            story.related(
                "made",
                order.event.step,
                T(en="all masks, then all again", zh="先列出所有掩码，再整体重复"),
            )
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("samples", samples),
            Fact("heads", heads),
            *pairs(
                T(en="sample, head", zh="样本，头"),
                T(en="mask of sample", zh="所用掩码属于样本"),
                [(f"{at // heads}, {at % heads}", at % samples, at // heads) for at in range(samples * heads)],
            ),
        ],
    )


def _fixes(story: Story, found: MasksOfOtherSamples) -> tuple[Fix, ...]:
    """Fixes that repeat each mask for all heads before the next; empty where the program's source does not show the
    masks.
    """
    program, order = story.program, found.order
    node = program.at(story.span(order.event.step))
    if not isinstance(node, ast.Call):
        return ()
    source, times = _source(node), str(found.heads)
    first = node.args[0] if node.args else None
    if call_name(node) == "repeat" and first is not None and not isinstance(first, ast.Starred | ast.Tuple | ast.List):
        times = program.segment(first)
    if call_name(node) == "cat" and isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mult):
        times = program.segment(first.right)
    if source is None:
        return ()
    text = f"{operand(program, source)}.repeat_interleave({times}, dim=0)"
    title = T(en=f"Repeat each mask for all heads: `{text}`", zh=f"把每个掩码为所有的头连续重复：`{text}`")
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="shape")])


def _source(node: ast.Call) -> ast.expr | None:
    """The expression of the masks that a call repeats; None if the program's source does not show it."""
    given: ast.expr | None = node.args[0] if node.args else None
    if call_name(node) in spellings("cat"):
        if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mult):
            given = given.left
        if isinstance(given, ast.ListComp):
            return given.elt
        return given.elts[0] if isinstance(given, ast.List | ast.Tuple) and given.elts else None
    if not isinstance(node.func, ast.Attribute):
        return None
    here: ast.expr = given if _is_function(node) and given is not None else node
    while True:
        if isinstance(here, ast.Call) and isinstance(here.func, ast.Attribute) and here.func.attr in MOVING:
            here = here.func.value
        elif isinstance(here, ast.Subscript) and "None" in ast.unparse(here.slice):
            here = here.value
        else:
            return here


def _is_function(node: ast.Call) -> bool:
    """Whether the source calls a function of torch (``torch.tile``), not a method."""
    return (
        isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    )


RULE = Rule(
    code="PL438",
    name="masks-of-other-samples",
    severity="warning",
    title=T(en="Samples get the attention masks of other samples", zh="样本用上了别的样本的注意力掩码"),
    what=T(
        en="A program makes one mask for each sample, repeats the whole list for the heads of an attention, and most "
        "samples get the mask of another one. Repeat each mask for all heads before the next one: "
        "`mask.repeat_interleave(heads, dim=0)`.",
        zh="程序为每个样本做一个掩码，再为注意力的各个头把整个列表重复几次，结果大多数样本用上了别的样本的掩码。请把每个"
        "掩码为所有的头连续重复，再轮到下一个：`mask.repeat_interleave(heads, dim=0)`。",
    ),
    why=T(
        en="`nn.MultiheadAttention` takes an `attn_mask` of the shape `(samples * heads, queries, keys)`, and splits "
        "its first axis into samples and heads, in this order: the masks of the heads of one sample stand next to each "
        "other. `mask.repeat(heads, 1, 1)`, `torch.cat([mask] * heads)` and `tile` put all samples of the first head "
        "first. Both have the same shape. With one sample, or one head, they are the same. A mask for each *head*, of "
        "which all samples need the same, is another matter: there `repeat(samples, 1, 1)` is right.",
        zh="`nn.MultiheadAttention` 接受形状为 `(样本数 * 头数, 查询, 键)` 的 `attn_mask`，并把它的第一个轴依次拆成样本"
        "与头：同一样本各个头的掩码相邻。`mask.repeat(heads, 1, 1)`、`torch.cat([mask] * heads)` 和 `tile` 却先排"
        "第一个头的所有样本。两者形状相同；只有一个样本或一个头时，两者相等。如果每个*头*有一个掩码、所有样本共用，则是另一回事："
        "那时 `repeat(samples, 1, 1)` 才对。",
    ),
    advice=T(
        en="on {made}, repeat each mask for all heads before the next: `repeat_interleave(heads, dim=0)`.",
        zh="在{made}把每个掩码为所有的头连续重复：`repeat_interleave(heads, dim=0)`。",
    ),
    bad="""import torch

torch.manual_seed(0)
attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
x = torch.randn(3, 4, 4)
document = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]])
apart = document.unsqueeze(2) != document.unsqueeze(1)
mask = apart.repeat(2, 1, 1)  # made
out, weights = attention(x, x, x, attn_mask=mask)  # PL438
out.sum().backward()
print(weights[apart].sum().item())
""",
    good="""import torch

torch.manual_seed(0)
attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
x = torch.randn(3, 4, 4)
document = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]])
apart = document.unsqueeze(2) != document.unsqueeze(1)
mask = apart.repeat_interleave(2, dim=0)
out, weights = attention(x, x, x, attn_mask=mask)
out.sum().backward()
print(weights[apart].sum().item())
""",
    find=find,
    traps=(
        Trap(
            "apart.repeat(2, 1, 1)",
            "torch.cat([apart, apart])",
            T(en="The same order as that of `repeat`.", zh="与 `repeat` 的次序相同。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html",
    ),
)
