"""PL411: vectors were given length 1 along one axis, and the products of vectors are taken along another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.axes import Use, uses_of_axis
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T

PRODUCTS = {"matmul", "mm", "bmm", "__matmul__", "einsum"}


def find(story: Story) -> Iterator[Finding]:
    """One finding for each ``normalize`` whose result is only ever multiplied along other axes."""
    reported = set()
    for event in story.calls("normalize"):
        place = story.span(event.step)
        shape = story.shape(event.operands[0].label, event.step) if event.operands and event.results and event.error is None else None
        axis = whole(argument(event, "dim", 2))
        if place in reported or not shape or axis is None or len(shape) < 2 or shape[axis % len(shape)] < 2:
            continue
        uses = [use for use in uses_of_axis(story, event.results[0], axis % len(shape), event.step) if use.event.name in PRODUCTS]
        if uses and all(use.axis != use.followed and not use.weighted for use in uses):
            reported.add(place)
            yield _finding(story, event, axis % len(shape), shape, uses[0])


def _finding(story: Story, event: Event, axis: int, shape: tuple[int, ...], use: Use) -> Finding:
    span = story.span(event.step)
    here, there = at_line(story, span), at_line(story, story.span(use.event.step))
    code, size = snippet(story, span), "×".join(map(str, shape))
    return RULE.finding(
        span, event.step,
        T(
            en=f"{capital(here.en)} makes length 1 along axis {axis} of {size}, but {there.en} multiplies vectors along another axis: "
            "those "
            "have other lengths.",
            zh=f"{here.zh}沿 {size} 的第 {axis} 轴把长度变成 1，而{there.zh}沿另一个轴做向量的乘积：那些向量的长度并不是 1。",
        ),
        T(
            en=f"`{code}` divides by the length along axis {axis} (`normalize` takes axis 1 where none is given). A product of two "
            "vectors is "
            "the cosine of their angle only when both have length 1 along the axis that is summed.",
            zh=f"`{code}` 除以沿第 {axis} 轴的长度（不指定时 `normalize` 用第 1 轴）。只有当两个向量沿求和的轴长度都是 1 时，它们的乘积"
            "才是夹角"
            "的余弦。",
        ),
        related=[
            story.related("made", event.step, T(en=f"length 1 along axis {axis}", zh=f"沿第 {axis} 轴长度为 1")),
            story.related("used", use.event.step, T(en="summed along another axis here", zh="在这里沿另一个轴求和")),
        ],
        fixes=_fixes(story, event),
        facts=[Fact("axis", axis, story.by(event.step))],
    )  # fmt: skip


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call) or call_name(node) != "normalize" or not node.args:
        return ()
    given = [program.segment(a) for a in node.args[:2]] + [f"{k.arg}={program.segment(k.value)}" for k in node.keywords if k.arg != "dim"]
    new = f"{program.segment(node.func)}({', '.join([*given, 'dim=-1'])})"
    title = T(en=f"Go along the last axis: `{new}`", zh=f"沿最后一个轴：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="shape")])


RULE = Rule(
    code="PL411",
    name="normalized-over-wrong-axis",
    severity="warning",
    title=T(en="Vectors were normalized along another axis than the one that is multiplied", zh="归一化所沿的轴不是后来相乘的轴"),
    what=T(
        en="A program makes vectors of length 1 before it compares them by their products, but along the wrong axis: the lengths of "
        "other rows "
        "of numbers became 1. The products are then no cosines, and longer vectors win. Give `normalize` the axis of the features, mostly "
        "`dim=-1`.",
        zh="程序先把向量变成长度 1 再用乘积比较它们，但沿错了轴：变成 1 的是另一排数的长度。于是乘积不是余弦，较长的向量占便宜。请把特征"
        "所在的轴"
        "交给 `normalize`，通常是 `dim=-1`。",
    ),
    why=T(
        en="`F.normalize(x, dim=d)` divides by the length along axis `d`; where none is given it takes axis 1. For (examples, features) "
        "that is "
        "right. For (examples, words, features) axis 1 counts the words, and with `dim=0` the examples of a batch change each other. "
        "The shape "
        "stays the same, so nothing fails.",
        zh="`F.normalize(x, dim=d)` 除以沿第 `d` 轴的长度，不指定时用第 1 轴。对（样本，特征）这是对的；对（样本，词，特征），第 1 轴是"
        "词；用 "
        "`dim=0` 时，一批里的样本互相影响。形状不变，所以不会报错。",
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
