"""PL476: a recurrent layer begins with the state of the batch before, whose rows were other sequences."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.batches import behind
from pitfall_lab.rules.signals.forms import made_by, same_numbers
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that

LAYERS = operations_that("recurrent")
"""The functions of recurrent layers."""
PICKS = {"__getitem__", "index_select"}
"""Calls that take rows by an index."""
CUTS = {"__getitem__", "split", "chunk", "tensor_split", "narrow", "unbind", "select"}
"""Calls that take a part of an order of rows."""
DRAWN = {"randperm", "randint", "multinomial"}
"""Calls that draw row numbers."""
FURTHER, PAIR = 60, 2


@dataclass(frozen=True, slots=True)
class CarriedState:
    """``layer`` is the call (``Event``) of a recurrent layer that began with the state that ``earlier``, the call
    before on the same line, had ended with. ``order`` is the call that drew the rows of the batch in a random order;
    None where a ``DataLoader`` did.

    ``rows`` is the number of sequences in the batch.
    """

    layer: Event
    earlier: Event
    order: Event | None
    rows: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line where a recurrent layer begins with the state of its last call, but the sequences
    of the batch were drawn at random, so that they do not continue those of the batch before.
    """
    reported = set()
    for layer in story.calls(*LAYERS):
        place = story.span(layer.step)
        found = _carried(story, layer) if layer.error is None and place not in reported else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _carried(story: Story, layer: Event) -> CarriedState | None:
    labels = [operand.label for operand in layer.operands[:PAIR]]
    if len(labels) < PAIR or labels[0] is None or labels[1] is None:
        return None
    given, state = labels[0], same_numbers(story, labels[1], layer.step)
    earlier = made_by(story, state, layer.step)
    rows = (story.shape(labels[1], layer.step) or (0,))[-PAIR:][0]
    if earlier is None or earlier.name not in LAYERS or earlier.step >= layer.step or rows < PAIR:
        return None
    before = earlier.operands[0].label
    if before is None or story.span(earlier.step) != story.span(layer.step):
        return None
    order, last = _order(story, given, layer.step), _order(story, before, earlier.step)
    if order is not None and last is not None:
        return CarriedState(layer, earlier, order[0], rows) if order[1] != last[1] else None
    batches = [next(behind(story, each, at), None) for each, at in ((given, layer.step), (before, earlier.step))]
    here, there = batches
    if here is None or there is None or here.storage != there.storage or len(here.rows) != len(there.rows):
        return None
    steps = {a - b for a, b in zip(here.rows, there.rows, strict=True)}
    return CarriedState(layer, earlier, None, rows) if len(steps) > PAIR else None


def _order(story: Story, label: str, step: int) -> tuple[Event, str] | None:
    """The call that drew the rows of which a tensor was computed, and the label of the index that took them; None if
    they were not taken by such an order.
    """
    pending, seen = [(label, step)], {label}
    while pending and len(seen) < FURTHER:
        here, at = pending.pop(0)
        made = made_by(story, here, at)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None:
            continue
        if made.name in PICKS and len(given) == PAIR and (drawn := _drawn(story, given[1], made.step)) is not None:
            return drawn, given[1]
        for each in given:
            if each not in seen and (story.tensor(each) or {}).get("kind") != "parameter":
                seen.add(each)
                pending.append((each, made.step))
    return None


def _drawn(story: Story, label: str, step: int) -> Event | None:
    """The random call that made an index, perhaps before a part of it was taken; None if there is none."""
    for _ in range(PAIR + PAIR):
        made = made_by(story, label, step)
        if made is None or made.name in DRAWN:
            return made
        source = made.operands[0].label if made.operands and made.name in CUTS else None
        if source is None:
            return None
        label, step = source, made.step
    return None


def _finding(story: Story, found: CarriedState) -> Finding:
    layer, step = found.layer, found.layer.step
    here = at_line(story, story.span(step))
    drawn = (
        T(en="", zh="")
        if found.order is None
        else T(
            en=f" ({at_line(story, story.span(found.order.step)).en})",
            zh=f"（{at_line(story, story.span(found.order.step)).zh}）",
        )
    )
    related = [
        story.related(
            "made", found.earlier.step, T(en="the state comes from the batch before", zh="状态来自上一个批次")
        )
    ]
    if found.order is not None:
        related.append(
            story.related("used", found.order.step, T(en="the order is drawn at random", zh="次序是随机抽取的"))
        )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} begins each of the {found.rows} sequences with the state that another sequence "
            f"left in the batch before: the batches are drawn at random{drawn.en}.",
            zh=f"{here.zh}让 {found.rows} 个序列都从上一批次中别的序列留下的状态开始：各批次是随机抽取的{drawn.zh}。",
        ),
        T(
            en="A state that is handed on is right where row i of a batch continues row i of the batch before, as in "
            "a long text that was cut into pieces. Sequences in a random order do not continue one another, so the "
            "layer begins with numbers that have nothing to do with its input, and in use, where it begins with "
            "zeros, it meets what it was not trained for. Leave the state out: each call begins with zeros.",
            zh="只有当批次中第 i 行接着上一批次的第 i 行时（例如切成几段的长文本），把状态传下去才是对的。随机次序的"
            "序列彼此不相接，于是这一层从与输入无关的数开始；而实际使用时它从零开始，遇到的是训练时没有见过的情形。请不要"
            "传入状态：每次调用都从零开始。",
        ),
        related=related,
        fixes=_fixes(story, layer),
        facts=[Fact("rows", found.rows, story.by(step))],
    )


def _fixes(story: Story, layer: Event) -> tuple[Fix, ...]:
    """A fix that leaves the state out of the call; empty if the call is not ``layer(input, state)``."""
    program = story.program
    node = program.at(story.span(layer.step))
    if not isinstance(node, ast.Call):
        return ()
    given = [program.segment(each) for each in (*node.args, *node.keywords)]
    if len(given) != PAIR or any(isinstance(each, ast.Starred) for each in node.args):
        return ()
    new = f"{program.segment(node.func)}({given[0]})"
    title = T(en=f"Begin with zeros: `{new}`", zh=f"从零开始：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL476",
    name="state-of-other-sequences",
    severity="warning",
    title=T(en="A hidden state is handed on to other sequences", zh="隐藏状态被传给了别的序列"),
    what=T(
        en="A program hands the hidden state of an LSTM, GRU or RNN on from batch to batch, but the batches are drawn "
        "at random, so each sequence begins with the state of another one. Begin each batch with zeros, or keep the "
        "order of the pieces.",
        zh="程序把 LSTM、GRU 或 RNN 的隐藏状态从一个批次传到下一个批次，但批次是随机抽取的，于是每个序列都从别的序列的"
        "状态开始。请让每个批次从零开始，或者保持各段的次序。",
    ),
    why=T(
        en="Training on long texts hands the state on, and cuts it off with `detach()`. There, row i of each batch "
        "continues row i of the one before. The shapes are the same for shuffled examples, so nothing is raised.",
        zh="在长文本上训练时，会用 `detach()` 截断后把状态传下去；那里每个批次的第 i 行接着上一批次的第 i 行。打乱的"
        "样本形状也一样，所以不报错。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(12, 5, 2)
layer = torch.nn.GRU(2, 3, batch_first=True)
state = None
for rows in torch.randperm(12).split(4):
    out, state = layer(x[rows], state)  # PL476
    state = state.detach()
print(out.mean())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(12, 5, 2)
layer = torch.nn.GRU(2, 3, batch_first=True)
for rows in torch.randperm(12).split(4):
    out, state = layer(x[rows])
print(out.mean())
""",
    find=find,
    traps=(
        Trap(
            "state = state.detach()",
            "state = state.detach().clone()",
            T(en="A copy is the state of the same other sequences.", zh="副本仍然是那些别的序列的状态。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html",),
)
