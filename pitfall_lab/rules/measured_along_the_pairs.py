"""PL448: vectors are compared in pairs, and the length or the cosine is computed along the axis of
the pairs, not of the vectors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

COSINE, NORMS = "cosine_similarity", ("norm", "vector_norm", "linalg_vector_norm")
DIFFERENCES = spellings("sub", exchanged=True)
BOTH, VECTORS = 2, 3


@dataclass(frozen=True, slots=True)
class Along:
    """``event`` is the call (``Event``) that measures pairs of the vectors of two tables, the tensors ``one`` and
    ``other`` (labels), broadcast against each other to ``shape``.

    It works along ``axis`` (from 0), one of the axes of the pairs, where one of the tables has size 1, and not along
    the last axis, that of the vectors.
    """

    event: Event
    one: str
    other: str
    axis: int
    shape: tuple[int, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source that computes the norm of a difference, or the cosine, of vectors
    in pairs along an axis that only numbers the pairs.
    """
    reported = set()
    for event in story.calls(COSINE, *NORMS):
        place = story.span(event.step)
        found = _along(story, event) if place not in reported and event.error is None and event.results else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _along(story: Story, event: Event) -> Along | None:
    pair = event
    if event.name != COSINE:
        made = story.event((story.tensor(event.operands[0].label, event.step) or {}).get("born"))
        if made is None or made.name not in DIFFERENCES:
            return None
        pair = made
    labels = [o.label for o in pair.operands if o.label is not None][:BOTH]
    shapes = [story.shape(label, pair.step) or () for label in labels]
    count = max(map(len, shapes), default=0)
    said = argument(event, "dim", BOTH)
    axis = whole(said) if said is not None else 1 if event.name == COSINE else None
    if len(labels) != BOTH or count < VECTORS or axis is None:
        return None
    full = [(1,) * (count - len(shape)) + shape for shape in shapes]
    axis %= count
    joint = tuple(max(pair) for pair in zip(*full, strict=True))
    stretched = min(shape[axis] for shape in full) == 1 < joint[axis]
    crossed = any(min(shape[a] for shape in full) == 1 < joint[a] for a in range(count - 1) if a != axis)
    vectors = full[0][-1] == full[1][-1] > 1
    return (
        Along(event, str(labels[0]), str(labels[1]), axis, joint)
        if stretched and crossed and vectors and axis < count - 1
        else None
    )


def _finding(story: Story, found: Along) -> Finding:
    event = found.event
    here = at_line(story, story.span(event.step))
    one, other = (expression(story, label, event.step) for label in (found.one, found.other))
    size = "×".join(map(str, found.shape))
    what = T(en="the cosine", zh="余弦") if event.name == COSINE else T(en="the length", zh="长度")
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} computes {what.en} along axis {found.axis} of {size}, on which the pairs of "
            f"{one.en} and {other.en} are numbered; the vectors are on the last axis.",
            zh=f"{here.zh}沿 {size} 的第 {found.axis} 轴计算{what.zh}，而这个轴是 {one.zh} 与 {other.zh} 各对的编号；"
            "向量在最后一个轴上。",
        ),
        T(
            en=f"One of the two has length 1 along axis {found.axis} and is repeated there, so this axis counts "
            "vectors and not their features. The result has a number for each feature, computed over all these "
            "vectors, and none for each pair.",
            zh=f"两者之一在第 {found.axis} 轴上长度为 1，沿这个轴被重复，所以这个轴数的是向量，而不是它们的特征。结果里"
            "每个特征有一个数，是对所有这些向量算出的，而不是每一对有一个数。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("axis", found.axis, story.by(event.step)), Fact("shape", size, story.by(event.step))],
    )


def _fixes(story: Story, found: Along) -> tuple[Fix, ...]:
    """At most one fix: it measures along the last axis.

    Empty if the program's source shows no call, or one of a norm without its axis.
    """
    program = story.program
    call = program.at(story.span(found.event.step)) if program.tree is not None else None
    made = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == "CosineSimilarity"]
    if found.event.name == COSINE and len(made) == 1 and not (isinstance(call, ast.Call) and call_name(call) == COSINE):
        call = made[0]
    if not isinstance(call, ast.Call):
        return ()
    said = next((k.value for k in call.keywords if k.arg in ("dim", "axis")), None)
    if said is None and call_name(call) in NORMS:
        said = next((a for a in call.args if whole(program.segment(a)) == found.axis), None)
    text = program.segment(call)
    change = (
        (said, "-1") if said is not None else (call, f"{text[:-1].rstrip().rstrip(',')}, dim=-1)".replace("(, ", "("))
    )
    if said is None and call_name(call) not in (COSINE, "CosineSimilarity"):
        return ()
    title = T(en="Measure along the last axis: `dim=-1`", zh="沿最后一个轴计算：`dim=-1`")
    return unique(program.text, [Fix(title, program.replace(change), meaning="shape")])


RULE = Rule(
    code="PL448",
    name="measured-along-the-pairs",
    severity="warning",
    title=T(en="Pairs of vectors are measured along the axis of the pairs", zh="沿着配对的轴衡量成对的向量"),
    what=T(
        en="A program compares each vector of one set with each of another, by the cosine or the distance, "
        "and computes it along the axis that numbers the vectors. The vectors themselves are on the last "
        "axis. Give that one: `dim=-1`.",
        zh="程序把一组中的每个向量与另一组中的每个向量相比（余弦或距离），却沿着给向量编号的轴来计算。向量本身在最后一"
        "个轴上。请指定那个轴：`dim=-1`。",
    ),
    why=T(
        en="`a[:, None]` and `b[None]` make a table of pairs of the shape `(n, m, d)`. `cosine_similarity` works "
        "along axis 1 unless it is given another one, which is right for `(n, d)` and wrong here: it returns `(n, "
        "d)`, where `(n, m)` was meant. With as many vectors as features the shapes are even the same.",
        zh="`a[:, None]` 与 `b[None]` 构成形状为 `(n, m, d)` 的配对表。`cosine_similarity` 不指定时沿第 1 轴计算，对 "
        "`(n, d)` 是对的，在这里却是错的：它返回 `(n, d)`，而想要的是 `(n, m)`。如果向量数与特征数相同，连形状都一样。",
    ),
    bad="""import torch

torch.manual_seed(0)
a, b = torch.randn(2, 3), torch.randn(3, 3)
alike = torch.nn.functional.cosine_similarity(a[:, None], b[None])  # PL448
print(alike.argmax(1))
""",
    good="""import torch

torch.manual_seed(0)
a, b = torch.randn(2, 3), torch.randn(3, 3)
alike = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=-1)
print(alike.argmax(1))
""",
    find=find,
    traps=(
        Trap(
            "alike.argmax(1)",
            "alike.argmax(0)",
            T(
                en="The numbers are cosines of other things along every axis.",
                zh="无论沿哪个轴，这些数都是别的东西的余弦。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_similarity.html",),
)
