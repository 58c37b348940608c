"""PL713: two layers shared one weight, until one of them was given another: from then on each learns alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.stale_parameters_in_optimizer import made_by, written_instead
from pitfall_lab.trace import Event, Span, T

LAYERS = ("linear", "embedding", "conv1d", "conv2d", "matmul", "addmm")
"""Layers that can share a weight with an embedding."""


@dataclass(frozen=True, slots=True)
class Parted:
    """``together`` are two calls (``Event``), one of each of two layers, that used one weight, labelled ``old``.

    ``apart`` is the call from which on one of the layers uses the weight labelled ``new``; ``other`` is a later call of
    the other layer, which still uses ``old``.
    """

    together: tuple[Event, Event]
    apart: Event
    other: Event
    old: str
    new: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each weight that one of two layers uses in place of the weight of the same shape that both
    used before, while a later call of the other layer, in the same forward, still uses the old one.
    """
    places: dict[tuple[Span | None, int], list[tuple[Event, str]]] = defaultdict(list)
    for event in story.calls(*LAYERS):
        for number, operand in enumerate(event.operands):
            if operand.label is not None and event.error is None and _is_weight(story, operand.label, event.step):
                places[event.span, number].append((event, operand.label))
    reported = set()
    for parted in _parted(story, places):
        if parted.new not in reported:
            reported.add(parted.new)
            yield _finding(story, parted)


def _is_weight(story: Story, label: str, step: int) -> bool:
    record = story.tensor(label, step) or {}
    return record.get("kind") == "parameter" and len(record.get("shape") or ()) > 1


def _parted(story: Story, places: dict[tuple[Span | None, int], list[tuple[Event, str]]]) -> Iterator[Parted]:
    # A program may copy its model thousands of times and use all copies in one line: each use is visited once.
    uses: dict[str, dict[tuple[Span | None, int], list[Event]]] = defaultdict(lambda: defaultdict(list))
    for place, some in places.items():
        for event, label in some:
            uses[label][place].append(event)
    for old, both in uses.items():
        for place, here in both.items() if len(both) > 1 else ():
            after = bisect_right(places[place], here[-1].step, key=_step)
            if after == len(places[place]):
                continue
            event, new = places[place][after]
            if story.shape(new) != story.shape(old):
                continue
            for other, there in both.items():
                at = bisect_right(there, event.step, key=lambda each: each.step) if other != place else 0
                if 0 < at < len(there) and _meet(story, there[at], event, new, old):
                    yield Parted((here[0], there[0]), event, there[at], old, new)


def _step(use: tuple[Event, str]) -> int:
    return use[0].step


def _meet(story: Story, one: Event, other: Event, new: str, old: str) -> bool:
    """Whether one result depends on both weights, so that the two calls belong to one forward."""
    last = one if one.step > other.step else other
    node = (story.tensor(last.results[0], last.step) or {}).get("grad_fn") if last.results else None
    leaves = {(story.record("nodes", each) or {}).get("output") for each in story.behind(node)}
    return {new, old} <= leaves


def _finding(story: Story, found: Parted) -> Finding:
    statement = next(iter(made_by(story, found.new)), None)
    span = story.program.place(statement) if statement is not None else story.span(found.apart.step)
    here, one, other = (at_line(story, s) for s in (span, story.span(found.apart.step), story.span(found.other.step)))
    name = called(story, found.new, None, found.apart.step)
    return RULE.finding(
        span,
        found.apart.step,
        T(
            en=f"{capital(here.en)} gives one of two layers that shared a weight another one, {name.en}: {one.en} "
            f"uses the new weight, {other.en} the old one.",
            zh=f"两个层本来共用一个权重，{here.zh}给了其中一个另外的权重 {name.zh}：{one.zh}用新的，{other.zh}用旧的。",
        ),
        T(
            en="Before, both lines were given the same parameter, so each update changed both layers. Now they are "
            "two of the same shape, which get gradients of their own and drift apart. Write new values into the "
            "shared parameter, or tie the layers again.",
            zh="在此之前，两行拿到的是同一个参数，每次更新同时改变两个层。现在它们是形状相同的两个参数，各有各的梯度，"
            "会越走越远。请把新值写进共用的参数，或者重新绑定两个层。",
        ),
        related=[
            story.related(
                "used", found.together[1].step, T(en="the shared weight is still used here", zh="这里仍用共用的权重")
            ),
            story.related(
                "alias",
                found.apart.step,
                T(en="the other layer uses its own weight here", zh="另一个层在这里用自己的权重"),
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("old", found.old, story.by(found.apart.step)), Fact("new", found.new, story.by(found.apart.step))],
    )


def _fixes(story: Story, found: Parted) -> tuple[Fix, ...]:
    fixes = [fix for statement in made_by(story, found.new)[:1] for fix in written_instead(story.program, statement)]
    return unique(story.program.text, [replace(fix, meaning="later") for fix in fixes])


RULE = Rule(
    code="PL713",
    name="tied-weights-parted",
    severity="warning",
    title=T(en="Two layers shared a weight, and one was given another", zh="两个层共用的权重，其中一个被换掉了"),
    what=T(
        en="A program lets two layers use one weight and later gives one of them a new one. The other keeps the old "
        "weight, and from then on the two are trained apart. Write the new values into the weight itself: "
        "`embedding.weight.copy_(new)`.",
        zh="程序让两个层使用同一个权重，之后又给其中一个换上新的。另一个仍用旧权重，从此两者分开训练。请把新值写进权重"
        "本身：`embedding.weight.copy_(new)`。",
    ),
    why=T(
        en="Weights are tied by giving two modules the same `Parameter` object: `decoder.weight = embedding.weight`. "
        "Assigning another `Parameter` to one of the two changes what its name means and nothing else. The same "
        "happens when one of them is resized, replaced by a new layer or loaded with `assign=True`. Copying values in "
        "place, under `torch.no_grad()`, keeps the object, and with it the tie and what optimizers hold.",
        zh="绑定权重，是让两个模块拿到同一个 `Parameter` 对象：`decoder.weight = embedding.weight`。给其中一个赋另一"
        "个 `Parameter`，只改变这个名字所指的对象。调整大小、换成新的层，或用 `assign=True` 载入，也是一样。在 "
        "`torch.no_grad()` 下就地复制数值，会保留这个对象，绑定关系和优化器所持有的也就都还在。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
embedding, decoder = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
decoder.weight = embedding.weight
ids = torch.tensor([0, 1, 2])
for epoch in range(2):
    if epoch == 1:
        embedding.weight = nn.Parameter(torch.ones(3, 2))  # PL713
    hidden = embedding(ids)
    loss = decoder(hidden).square().mean()  # used
    loss.backward()
print(embedding.weight is decoder.weight, embedding.weight)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
embedding, decoder = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
decoder.weight = embedding.weight
ids = torch.tensor([0, 1, 2])
for epoch in range(2):
    if epoch == 1:
        with torch.no_grad():
            embedding.weight.copy_(torch.ones(3, 2))
    hidden = embedding(ids)
    loss = decoder(hidden).square().mean()
    loss.backward()
print(embedding.weight is decoder.weight, embedding.weight)
""",
    find=find,
    traps=(
        Trap(
            "nn.Parameter(torch.ones(3, 2))",
            "nn.Parameter(torch.ones_like(decoder.weight))",
            T(
                en="It has the same shape and numbers of its own: still two parameters.",
                zh="形状相同，数值却是自己的：仍然是两个参数。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
    ),
)
