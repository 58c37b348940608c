"""PL471: a cross product runs along the dimension that numbers the vectors, which happens to have size 3 too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

LENGTHS = {"norm": 2, "vector_norm": 2, "normalize": 2, "vecdot": 2, "cosine_similarity": 2}
"""Calls that work on the components of vectors, each with the position of its argument ``dim``."""
USUAL = {"normalize": "1", "cosine_similarity": "1", "vecdot": "-1"}
"""The default of ``dim`` of these calls."""
FACTORS, SQUARES = spellings("mul"), spellings("pow", "square")
DIVISIONS = spellings("div", in_place=True)
SCALED = DIVISIONS | FACTORS | spellings("neg") | {"clone", "contiguous", "detach", "double", "float", "to"}
"""Calls whose result has the vectors along the same dimensions."""
TOTALS = {"sum", "mean"}
"""Calls that add up their operand."""
THREE, PAIR, FURTHER = 3, 2, 12


@dataclass(frozen=True, slots=True)
class CrossedAxis:
    """The cross product ``event`` (``Event``), of a result of shape ``shape``, runs along the dimension ``axis``;
    ``used`` is the call that shows that the components are along the dimension ``other``. Dimensions count from 0.
    """

    event: Event
    shape: tuple[int, ...]
    axis: int
    other: int
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes cross products along a dimension of size 3, where another dimension
    also has size 3 and contains the components.

    The components are along that other dimension if norms and dot products of the same vectors are taken along it only,
    or if the call has no ``dim`` and runs along it for tensors of other shapes on the same line.
    """
    reported = set()
    for event in story.calls("cross"):
        place = story.span(event.step)
        found = _crossed(story, event) if event.error is None and place not in reported else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _axis(story: Story, event: Event) -> tuple[tuple[int, ...], int] | None:
    """Return the shape of the cross products and the dimension along which they run; None if it is not known."""
    shape = story.shape(event.results[0], event.step) if len(event.results) == 1 else None
    text = argument(event, "dim", 2) or ("-1" if "linalg" in event.op else None)
    axis = whole(text)
    if not shape or (axis is None and (text not in (None, "None") or THREE not in shape)):
        return None
    return shape, shape.index(THREE) if axis is None else axis % len(shape)


def _crossed(story: Story, event: Event) -> CrossedAxis | None:
    known = _axis(story, event)
    others = [i for i, n in enumerate(known[0]) if n == THREE and i != known[1]] if known is not None else []
    if known is None or not others:
        return None
    shape, axis = known
    used: dict[int, Event] = {}
    for label in (event.results[0], *(o.label for o in event.operands)):
        if label is not None and story.shape(label, event.step) == shape:
            for along, use in _lengths(story, label, shape, event):
                used.setdefault(along, use)
    if axis in used:
        return None
    for other in others:
        if other in used:
            return CrossedAxis(event, shape, axis, other, used[other])
    return _by_other_shape(story, event, shape, axis, others)


def _by_other_shape(
    story: Story, event: Event, shape: tuple[int, ...], axis: int, others: list[int]
) -> CrossedAxis | None:
    """Return the data of the finding if the same call, without ``dim``, runs along one of the dimensions ``others`` for
    tensors of another shape; else None.
    """
    if argument(event, "dim", 2) not in (None, "None") or "linalg" in event.op:
        return None
    for step in story.steps_at[event.span, event.op]:
        again = story.events[step]
        known = _axis(story, again) if again.error is None else None
        if known is None or list(known[0]).count(THREE) != 1 or len(known[0]) != len(shape) or known[1] == axis:
            continue
        if known[1] in others:
            return CrossedAxis(event, shape, axis, known[1], again)
    return None


def _lengths(story: Story, label: str, shape: tuple[int, ...], event: Event) -> Iterator[tuple[int, Event]]:
    """Yield the dimensions along which norms of the vectors, or their products with others, are taken, each with the
    call.
    """
    pending, seen = [label], {label}
    made = made_by(story, label, event.step)
    if made is not None and made.name in DIVISIONS | {"normalize"}:
        yield from _prepared(story, made, shape)
    while pending and len(seen) < FURTHER:
        here = pending.pop()
        for use in story.uses(here):
            if use.error is not None or not use.results or use.step == event.step:
                continue
            if use.name in LENGTHS:
                yield from _along(use, len(shape))
            elif use.name == "cross" and label == event.results[0] and (known := _axis(story, use)) is not None:
                yield known[1], use
            elif use.name in FACTORS | SQUARES and _is_product(story, use, shape):
                yield from _summed(story, use, len(shape))
            result = use.results[0]
            kept = use.name in SCALED | {"normalize"} and not _is_product(story, use, shape)
            if kept and result not in seen and story.shape(result, use.step) == shape:
                seen.add(result)
                pending.append(result)


def _prepared(story: Story, made: Event, shape: tuple[int, ...]) -> Iterator[tuple[int, Event]]:
    """Yield the dimension along which the call ``made`` normalized the vectors, with the call; nothing if it did
    not.
    """
    if made.name == "normalize":
        yield from _along(made, len(shape))
        return
    given = [o.label for o in made.operands if o.label is not None]
    norm = made_by(story, given[1], made.step) if len(given) == PAIR else None
    if norm is not None and norm.name in LENGTHS and norm.operands and norm.operands[0].label == given[0]:
        yield from _along(norm, len(shape))


def _along(use: Event, count: int) -> Iterator[tuple[int, Event]]:
    axis = whole(argument(use, "dim", LENGTHS[use.name]) or USUAL.get(use.name))
    if axis is not None:
        yield axis % count, use


def _is_product(story: Story, use: Event, shape: tuple[int, ...]) -> bool:
    """Whether a call multiplies two tensors of shape ``shape``, or squares one."""
    if use.name in SQUARES:
        return True
    given = [o.label for o in use.operands if o.label is not None]
    return use.name in FACTORS and len(given) == PAIR and all(story.shape(each, use.step) == shape for each in given)


def _summed(story: Story, product: Event, count: int) -> Iterator[tuple[int, Event]]:
    """Yield the dimensions over which the products are summed, each with the call; nothing for a sum of which only
    totals are computed, as the dimension then makes no difference.
    """
    for use in story.uses(product.results[0]):
        axis = whole(argument(use, "dim", 1)) if use.name == "sum" else None
        if axis is None or not use.results:
            continue
        after = story.uses(use.results[0])
        if not after or any(each.name not in TOTALS for each in after):
            yield axis % count, use


def _finding(story: Story, found: CrossedAxis) -> Finding:
    event, axis, other, sizes = found.event, found.axis, found.other, "×".join(map(str, found.shape))
    here, there = (at_line(story, story.span(step)) for step in (event.step, found.used.step))
    vectors = expression(story, event.operands[0].label, event.step)
    again = found.used.name == "cross" and found.used.span == event.span
    named = argument(event, "dim", 2) not in (None, "None")
    shows = T(
        en=f"{there.en} takes lengths or products of the same vectors along dimension {other}",
        zh=f"{there.zh}沿第 {other} 维计算同样向量的长度或乘积",
    )
    if again:
        one = "×".join(map(str, story.shape(found.used.results[0], found.used.step) or ()))
        shows = T(
            en=f"for vectors in shape {one} the same line took dimension {other}",
            zh=f"对形状为 {one} 的向量，同一行取的是第 {other} 维",
        )
    why = T(en="", zh="")
    if not named:
        why = T(
            en=" Without `dim`, `torch.cross` takes the first dimension of size 3.",
            zh="不给 `dim` 时，`torch.cross` 取第一个大小为 3 的维。",
        )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} takes cross products of {vectors.en} ({sizes}) along dimension {axis}, but "
            f"{shows.en}.",
            zh=f"{here.zh}沿第 {axis} 维计算 {vectors.zh}（{sizes}）的叉积，但{shows.zh}。",
        ),
        T(
            en=f"Both dimensions have size 3, so the call works along either.{why.en} If the three components of a "
            f"vector are along dimension {other}, each result mixes components of different vectors and is "
            f"perpendicular to none of them. Give the dimension of the components: `dim={_written(found)}`.",
            zh=f"两个维的大小都是 3，所以沿哪一个都能算。{why.zh}如果一个向量的三个分量在第 {other} 维上，那么每个结果"
            f"都混合了不同向量的分量，与其中任何一个都不垂直。请给出分量所在的维：`dim={_written(found)}`。",
        ),
        related=[story.related("used", found.used.step, T(en=f"along dimension {other}", zh=f"沿第 {other} 维"))],
        fixes=_fixes(story, found),
        facts=[Fact("axis", axis, story.by(event.step)), Fact("components", other, story.by(event.step))],
    )


def _written(found: CrossedAxis) -> int:
    return -1 if found.other == len(found.shape) - 1 else found.other


def _fixes(story: Story, found: CrossedAxis) -> tuple[Fix, ...]:
    """A fix that gives the call the dimension of the components; empty if the call is not in the program itself."""
    program, new = story.program, str(_written(found))
    node = program.at(story.span(found.event.step))
    if not isinstance(node, ast.Call) or call_name(node) != "cross":
        return ()
    place = 1 if found.event.op.startswith("torch.Tensor.") else PAIR
    given = next((word.value for word in node.keywords if word.arg == "dim"), None)
    if given is None and len(node.args) > place:
        given = node.args[place]
    title = T(en=f"Take the products along the components: `dim={new}`", zh=f"沿分量计算叉积：`dim={new}`")
    if given is not None:
        edits = program.replace((given, new))
    else:
        body = program.segment(node).rstrip()[:-1].rstrip().removesuffix(",")
        edits = program.replace((node, f"{body}, dim={new})"))
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL471",
    name="crossed-over-the-vectors",
    severity="warning",
    title=T(en="A cross product runs along the dimension that numbers the vectors", zh="叉积沿着向量编号的维计算"),
    what=T(
        en="A program has three vectors in the rows of a table, and takes their cross products along the dimension "
        "that numbers the rows. That dimension has size 3 as well, so no error is raised, and the results are "
        "perpendicular to nothing. Give the dimension of the components: `dim=-1`.",
        zh="程序把三个向量放在表的各行里，却沿着给行编号的维计算叉积。那一维的大小也是 3，所以不会报错，而结果与哪个"
        "向量都不垂直。请给出分量所在的维：`dim=-1`。",
    ),
    why=T(
        en="A cross product exists for three components only, and that is all torch can check. `torch.cross` without "
        "`dim` takes the first dimension of size 3: for 100 vectors in rows that is the last one, for three vectors "
        "the first one. `torch.linalg.cross` takes the last one.",
        zh="叉积只对三个分量有定义，torch 能检查的也只有这一点。不给 `dim` 时，`torch.cross` 取第一个大小为 3 的维："
        "对 100 个按行排列的向量是最后一维，对三个向量却是第一维。`torch.linalg.cross` 取最后一维。",
    ),
    bad="""import torch

torch.manual_seed(0)
a, b = torch.randn(3, 3), torch.randn(3, 3)
normals = torch.cross(a, b, dim=0)  # PL471
normals = normals / normals.norm(dim=1, keepdim=True)
print("largest cosine", (normals * a).sum(1).abs().max())
""",
    good="""import torch

torch.manual_seed(0)
a, b = torch.randn(3, 3), torch.randn(3, 3)
normals = torch.cross(a, b, dim=-1)
normals = normals / normals.norm(dim=1, keepdim=True)
print("largest cosine", (normals * a).sum(1).abs().max())
""",
    find=find,
    traps=(
        Trap(
            "torch.cross(a, b, dim=0)",
            "torch.cross(b, a, dim=0)",
            T(
                en="The other order turns the sign round; the dimension is the same.",
                zh="交换次序只改变符号；维还是同一个。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.cross.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.cross.html",
    ),
)
