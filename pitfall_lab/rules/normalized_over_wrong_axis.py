"""PL411: vectors are normalized, or compared by their cosine, along another axis than the one along which their
components are.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, number, snippet
from pitfall_lab.rules.signals.axes import Use, uses_of_axis
from pitfall_lab.rules.signals.value_origins import argument, decimal, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("matmul", "mm") | {"bmm", "einsum"}
"""Products of vectors with vectors."""
FACTORS = spellings("mul")
"""Products of single numbers: with a sum after them, also a product of vectors."""
LAYERS = {"linear", "embedding", "layer_norm", "multi_head_attention_forward"}
"""Layers whose result has its features along the last axis."""
KEEPING = {
    "relu",
    "gelu",
    "silu",
    "tanh",
    "elu",
    "leaky_relu",
    "dropout",
    "detach",
    "float",
    "clone",
    "contiguous",
    "normalize",
    "add",
}
"""Calls that leave the features where they are."""
FOLDING = {"view", "reshape", "flatten", "unflatten"}
"""Calls that split or join axes: as long as the last axis keeps its length, the features are on it."""
JOINING = spellings("cat") | {"stack"}
FURTHER = 20


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``normalize`` whose result is only ever multiplied along other axes, and each
    ``cosine_similarity`` along another axis than that of the vectors' components.

    Where no product is known because the axis is joined with another or single indices of it are taken, the axis on
    which a layer put the components counts (:func:`_of_components`). Not if the axis has length 1 or the tensor is a
    vector.
    """
    reported = set()
    for event in story.calls("normalize"):
        place = story.span(event.step)
        shape = (
            story.shape(event.operands[0].label, event.step)
            if event.operands and event.results and event.error is None
            else None
        )
        axis = whole(argument(event, "dim", 2))
        if place in reported or not shape or axis is None or len(shape) < 2 or shape[axis % len(shape)] < 2:
            continue
        uses = [
            use
            for use in uses_of_axis(story, event.results[0], axis % len(shape), event.step)
            if use.event.name in PRODUCTS
        ]
        if uses and all(use.axis != use.followed and not use.weighted for use in uses):
            reported.add(place)
            yield _finding(story, event, axis % len(shape), shape, uses[0])
        elif not uses and (use := _of_components(story, event, axis % len(shape), shape)) is not None:
            reported.add(place)
            yield _finding(story, event, axis % len(shape), shape, use)
    for event in story.calls("cosine_similarity"):
        place = story.span(event.step)
        found = _cosine(story, event) if place not in reported and event.error is None else None
        if found is not None:
            reported.add(place)
            yield _of_cosine(story, event, *found)


def _of_components(story: Story, event: Event, axis: int, shape: tuple[int, ...]) -> Use | None:
    """The first product of vectors along the last axis, on which a layer put their components, after a
    normalization along ``axis``.

    None if no layer did, no product is known, or the norm is another than the usual length.
    """
    last, usual = len(shape) - 1, decimal(argument(event, "p", 1) or "2.0") == 2
    if axis == last or shape[last] < 2 or not usual or _layer(story, event.operands[0].label, event.step) is None:
        return None
    for use in uses_of_axis(story, event.results[0], last, event.step, copies=True):
        along = use.axis == use.followed
        if along and (use.event.name in PRODUCTS or (use.event.name == "sum" and _of_two(story, use))):
            return use
    return None


def _of_two(story: Story, use: Use) -> bool:
    """Whether the sum is over products of two tensors that both have components along its axis."""
    made = story.event((story.tensor(use.label, use.event.step) or {}).get("born"))
    if made is None or made.name not in FACTORS:
        return False
    shapes = [story.shape(o.label, made.step) or () for o in made.operands if o.label is not None]
    length = (story.shape(use.label, use.event.step) or ())[use.axis]
    return len(shapes) == 2 and all(shape[-1:] == (length,) for shape in shapes)


def _cosine(story: Story, event: Event) -> tuple[int, tuple[int, ...], Event] | None:
    """The axis and the shape of a cosine similarity of two layers' results, and the first layer, if the layers'
    features are on the last axis and not on that one; else None.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    shapes = {story.shape(label, event.step) for label in labels}
    axis = whole(argument(event, "dim", 2) or "1")
    shape = next(iter(shapes)) if len(labels) == 2 and len(shapes) == 1 else None
    if shape is None or axis is None or len(shape) < 2 or axis % len(shape) == len(shape) - 1 or min(shape) < 2:
        return None
    layers = [_layer(story, label, event.step) for label in labels]
    return (axis % len(shape), shape, layers[0]) if layers[0] is not None and layers[1] is not None else None


def _layer(story: Story, label: str | None, step: int) -> Event | None:
    """The layer that returned the vectors, with their components on the last axis; None if there is none.

    Only calls that leave each element at its position along the last axis may follow the layer.
    """
    length = (story.shape(label, step) or ())[-1:]
    for _ in range(FURTHER):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label is None or label not in event.results:
            return None
        shape = story.shape(label, step) or ()
        if shape[-1:] != length:
            return None
        if event.name in LAYERS:
            return event
        given = [o.label for o in event.operands if o.label is not None]
        if not given or not (event.name in KEEPING or event.name in FOLDING or _is_stacked(event, len(shape))):
            return None
        label, step = given[0], event.step
    return None


def _is_stacked(event: Event, axes: int) -> bool:
    """Whether the call joined tensors along another axis than the last one."""
    axis = whole(argument(event, "dim", 1) or "0")
    return event.name in JOINING and axis is not None and axis % axes != axes - 1


def _of_cosine(story: Story, event: Event, axis: int, shape: tuple[int, ...], layer: Event) -> Finding:
    span, size = story.span(event.step), "×".join(map(str, shape))
    here, there = at_line(story, span), at_line(story, story.span(layer.step))
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} takes the cosine along axis {axis} of {size}, but the numbers of one vector are "
            f"on the last axis: `{layer.name}` on {there.en} put them there.",
            zh=f"{here.zh}沿 {size} 的第 {axis} 轴计算余弦，而一个向量的数在最后一个轴上：{there.zh}的 "
            f"`{layer.name}` 就是这样排列的。",
        ),
        T(
            en=f"Along axis {axis} one feature of several examples, or tokens, is compared with the same feature of "
            f"others: {shape[-1]} cosines of features, and none of two vectors. `cosine_similarity` takes axis 1 "
            "where none is given.",
            zh=f"沿第 {axis} 轴比较的是若干样本（或词元）的同一个特征：得到的是 {shape[-1]} 个特征的余弦，而不是两个向"
            "量的余弦。不指定时 `cosine_similarity` 用第 1 轴。",
        ),
        related=[story.related("made", layer.step, T(en="the vectors are made here", zh="向量在这里得到"))],
        fixes=_along_last(story, event),
        facts=[Fact("axis", axis, story.by(event.step))],
    )


def _along_last(story: Story, event: Event) -> tuple[Fix, ...]:
    """Fixes that give the last axis to the call, or to the layer that makes it; empty if the program's source shows
    neither.
    """
    program, node = story.program, story.program.at(story.span(event.step))
    calls = [n for n in program.nodes if isinstance(n, ast.Call) and (call_name(n) == "CosineSimilarity" or n is node)]
    fixes = []
    for call in calls:
        first = {"CosineSimilarity": 0, "cosine_similarity": 2}.get(call_name(call))
        if first is not None:
            given = [program.segment(a) for a in call.args[:first]]
            given += [f"{k.arg}={program.segment(k.value)}" for k in call.keywords if k.arg != "dim"]
            new = f"{program.segment(call.func)}({', '.join([*given, 'dim=-1'])})"
            title = T(en=f"Go along the last axis: `{new}`", zh=f"沿最后一个轴：`{new}`")
            fixes.append(Fix(title, program.replace((call, new)), meaning="shape"))
    return unique(program.text, fixes)


def _finding(story: Story, event: Event, axis: int, shape: tuple[int, ...], use: Use) -> Finding:
    span = story.span(event.step)
    here, there = at_line(story, span), at_line(story, story.span(use.event.step))
    code, size = snippet(story, span), "×".join(map(str, shape))
    length = _length(event, axis, shape)
    longer = T(en="", zh="")
    if length is not None:
        longer = T(
            en=f" Along the other one the vectors have a length of {number(length)} here (root mean square).",
            zh=f"而沿另一个轴，这里向量的长度（均方根）是 {number(length)}。",
        )
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} makes length 1 along axis {axis} of {size}, but {there.en} multiplies vectors "
            "along another axis: those have other lengths.",
            zh=f"{here.zh}沿 {size} 的第 {axis} 轴把长度变成 1，而{there.zh}沿另一个轴做向量的乘积：那"
            "些向量的长度并不是 1。",
        ),
        T(
            en=f"`{code}` divides by the length along axis {axis} (`normalize` takes axis 1 where none is "
            "given). A product of two vectors is the cosine of their angle only when both have length 1 "
            f"along the axis that is summed.{longer.en}",
            zh=f"`{code}` 除以沿第 {axis} 轴的长度（不指定时 `normalize` 用第 1 轴）。只有当两个向量沿求和的轴长度都"
            f"是 1 时，它们的乘积才是夹角的余弦。{longer.zh}",
        ),
        related=[
            story.related("made", event.step, T(en=f"length 1 along axis {axis}", zh=f"沿第 {axis} 轴长度为 1")),
            story.related("used", use.event.step, T(en="summed along another axis here", zh="在这里沿另一个轴求和")),
        ],
        fixes=_fixes(story, event),
        facts=[Fact("axis", axis, story.by(event.step)), *([Fact("length", length)] if length is not None else [])],
    )


def _length(event: Event, axis: int, shape: tuple[int, ...]) -> float | None:
    """The length (root mean square) that the vectors along the intended axis have after those along ``axis`` got length
    1; it follows from the sizes of the two axes.

    None if the norm is not the Euclidean one, or if the intended axis is not known.
    """
    meant = len(shape) - 1 if axis != len(shape) - 1 else 0
    if decimal(argument(event, "p", 1) or "2.0") != 2 or (meant == 0 and len(shape) > 2):
        return None
    return math.sqrt(shape[meant] / shape[axis])


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call) or call_name(node) != "normalize" or not node.args:
        return ()
    given = [program.segment(a) for a in node.args[:2]] + [
        f"{k.arg}={program.segment(k.value)}" for k in node.keywords if k.arg != "dim"
    ]
    new = f"{program.segment(node.func)}({', '.join([*given, 'dim=-1'])})"
    title = T(en=f"Go along the last axis: `{new}`", zh=f"沿最后一个轴：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="shape")])


RULE = Rule(
    code="PL411",
    name="normalized-over-wrong-axis",
    severity="warning",
    title=T(
        en="Vectors were normalized along another axis than the one that is multiplied",
        zh="归一化所沿的轴不是后来相乘的轴",
    ),
    what=T(
        en="A program makes vectors of length 1 before it compares them by their products, but along the wrong axis: "
        "the lengths of other rows of numbers became 1. The products are then no cosines, and longer vectors win. "
        "Give `normalize` the axis of the features, mostly `dim=-1`.",
        zh="程序先把向量变成长度 1 再用乘积比较它们，但沿错了轴：变成 1 的是另一排数的长度。于是乘积不是余弦，较长的向"
        "量占便宜。请把特征所在的轴交给 `normalize`，通常是 `dim=-1`。",
    ),
    why=T(
        en="`F.normalize(x, dim=d)` divides by the length along axis `d`; where none is given it takes axis 1. For "
        "(examples, features) that is right. For (examples, words, features) axis 1 counts the words, and with "
        "`dim=0` the examples of a batch change each other. The shape stays the same, so nothing fails. "
        "`F.cosine_similarity` and `nn.CosineSimilarity` take axis 1 as well.",
        zh="`F.normalize(x, dim=d)` 除以沿第 `d` 轴的长度，不指定时用第 1 轴。对（样本，特征）这是对的；对（样本，词，"
        "特征），第 1 轴是词；用 `dim=0` 时，一批里的样本互相影响。形状不变，所以不会报错。`F.cosine_similarity` 与 "
        "`nn.CosineSimilarity` 也默认用第 1 轴。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(3, 2, requires_grad=True)
vectors = F.normalize(x, dim=0)  # PL411 made
cosines = vectors @ vectors.t()  # used
cosines.square().sum().backward()
print(cosines, x.grad)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(3, 2, requires_grad=True)
vectors = F.normalize(x, dim=-1)
cosines = vectors @ vectors.t()
cosines.square().sum().backward()
print(cosines, x.grad)
""",
    find=find,
    traps=(
        Trap(
            "F.normalize(x, dim=0)",
            "x / x.norm(dim=0)",
            T(en="The same division, along the same axis.", zh="同样的除法，同样的轴。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html",),
)
