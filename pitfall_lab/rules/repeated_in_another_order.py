"""PL436: rows were repeated as a whole (a b a b) where what they meet has each row
repeated (a a b b), or is read so.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.rows_in_different_order import LOSSES
from pitfall_lab.rules.signals.batches import batch
from pitfall_lab.rules.signals.masks import ATTENTIONS
from pitfall_lab.rules.signals.sequences import KEEPING
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

RESHAPING = spellings("cat") | {"t", "T", "mT", "chunk", "split", "unbind", "select", "narrow", "__getitem__"}
"""Calls that move rows, and are looked at one by one."""
ROWWISE = KEEPING - RESHAPING | {
    "conv1d", "conv2d", "conv3d", "embedding", "one_hot", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "log",
    "exp", "sum", "mean",
} | spellings("bitwise_and", "bitwise_not", "bitwise_or", "logical_and", "logical_not", "logical_or")  # fmt: skip
"""Calls that compute each row from the same row."""
FOLDS = ("view", "reshape", "unflatten")
"""Calls that split the axis of the rows."""
FURTHER = 300

Kind = Literal["tiled", "each"]
WORDS = {
    "tiled": T(en="all rows, then all again", zh="先列出所有行，再整体重复"),
    "each": T(en="each row several times in a row", zh="每一行连续重复几次"),
}
GROUPS = {
    "tiled": (
        T(en="each group mixes the copies of different rows", zh="每一组都混进了不同行的副本"),
        T(
            en="Groups of the copies of one row need the second.",
            zh="要让每一组是同一行的各个副本，需要后者。",
        ),
    ),
    "each": (
        T(en="the groups do not have each row once", zh="各组并不是每行各一份"),
        T(
            en="Groups that have each row once need the first.",
            zh="要让每一组包含每行各一份，需要前者。",
        ),
    ),
}
"""What is wrong with the groups of a folding of rows that were repeated so, and which order it needs."""


@dataclass(frozen=True, slots=True)
class RepeatedInAnotherOrder:
    """How the rows of one tensor were repeated: ``event`` is the call (``Event``) that repeated ``rows`` rows ``times``
    times; ``kind`` is "tiled" where they were repeated as a whole (a b a b), "each" where row by row (a a b b).

    ``chosen`` tells which of the repeated rows were taken since, last ones first; it is the same for tensors whose rows
    were taken by the same indices. A finding about a loss is made from two such records that differ in ``kind``, one
    about a reshape from one.
    """

    kind: Kind
    rows: int
    times: int
    event: Event
    chosen: tuple[Hashable, ...] = ()


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a loss whose prediction and target were repeated in different orders, and each
    line of a ``view``, ``reshape`` or ``unflatten`` whose two first lengths are the number of rows and that of the
    copies in the wrong order for the way in which the rows were repeated.

    Not where the two numbers are equal, nor where torch's attention folds its mask.
    """
    if not any(True for _ in story.calls("repeat", "tile", "repeat_interleave", "cat", "stack", "expand")):
        return
    reported = set()
    for loss in story.calls(*LOSSES):
        place = story.span(loss.step)
        pair = _apart(story, loss) if place not in reported and loss.error is None else None
        if pair is not None:
            reported.add(place)
            yield _of_loss(story, loss, *pair)
    attentions = {event.span for event in story.calls(*ATTENTIONS)}  # their masks are PL438's
    for fold in story.calls(*FOLDS):
        place = story.span(fold.step)
        if fold.span in attentions:
            continue
        order = _mixed(story, fold) if place not in reported and fold.error is None and fold.results else None
        if order is not None:
            reported.add(place)
            yield _of_fold(story, fold, order)


def _apart(story: Story, loss: Event) -> tuple[RepeatedInAnotherOrder, RepeatedInAnotherOrder] | None:
    """The orders of the prediction and of the target, where they differ; else None.

    Both must have the same number of rows, repeated the same number of times, and these two numbers must differ;
    exactly one of the two tensors may require grad.
    """
    labels = [o.label for o in loss.operands[:2] if o.label is not None]
    wanted = [bool((story.tensor(label, loss.step) or {}).get("requires_grad")) for label in labels]
    if sorted(wanted) != [False, True]:
        return None
    guess, target = (row_order(story, labels[wanted.index(side)], loss.step) for side in (True, False))
    if guess is None or target is None or guess.kind == target.kind:
        return None
    return (
        (guess, target)
        if (guess.rows, guess.times, guess.chosen) == (target.rows, target.times, target.chosen)
        and guess.rows != guess.times
        else None
    )


def _mixed(story: Story, fold: Event) -> RepeatedInAnotherOrder | None:
    """How the rows were repeated, if a later reshape makes groups of them that do not consist of the copies of one row.

    None if it does not, or if there are as many rows as copies, so that the shape does not tell them apart.
    """
    label = fold.operands[0].label if fold.operands else None
    before, after = story.shape(label, fold.step) or (), story.shape(fold.results[0], fold.step) or ()
    if (
        label is None
        or not before
        or len(after) < 2
        or after[0] * after[1] != before[0]
        or min(after[:2]) < 2
        or after[0] == after[1]
    ):
        return None
    order = row_order(story, label, fold.step)
    if order is None or order.rows * order.times != before[0]:
        return None
    wrong = (order.rows, order.times) if order.kind == "tiled" else (order.times, order.rows)
    if order.chosen:
        return None
    return order if after[:2] == wrong and order.event.name in ("repeat", "tile", "repeat_interleave") else None


def row_order(story: Story, label: str, step: int) -> RepeatedInAnotherOrder | None:
    """Return how the rows of a tensor were repeated on the way to it; None where they were not, or in several ways.

    Some of the rows, or all in another order, may have been taken since.
    """
    pending, seen = deque[tuple[str, int, tuple[Hashable, ...]]]([(label, step, ())]), {label}
    found = dict[tuple[Kind, int, int, tuple[Hashable, ...]], RepeatedInAnotherOrder]()
    while pending and len(seen) < FURTHER:
        here, at, chosen = pending.popleft()
        count = (story.shape(here, at) or (0,))[0]
        event = story.event((story.tensor(here, at) or {}).get("born"))
        if event is None or event.kind != "call" or here not in event.results:
            continue
        order = _repeated(story, event)
        if order is not None:
            found[order.kind, order.rows, order.times, chosen] = replace(order, chosen=chosen)
            continue
        taken = _taken(story, event, here)
        if taken is not None:
            source, at_step, rows = taken
            if source not in seen:
                seen.add(source)
                pending.append((source, at_step, (*chosen, rows)))
            continue
        if event.name not in ROWWISE and not (event.name == "cat" and _axis(event, story, here) != 0):
            continue
        for each in (o.label for o in event.operands):
            same = (
                each is not None
                and (story.shape(each, event.step) or (0,))[0] == count
                and _keeps_first(story, event, each, here)
            )
            if each is not None and same and each not in seen and (story.tensor(each) or {}).get("kind") != "parameter":
                seen.add(each)
                pending.append((each, event.step, chosen))
    return next(iter(found.values())) if len(found) == 1 else None


def _taken(story: Story, event: Event, made: str) -> tuple[str, int, Hashable] | None:
    """The label of the tensor out of which a call took some rows, the step of taking them, and a key for the rows: the
    data of an index tensor, the text of a slice, or the numbers of rows that were stacked.

    None for other calls.
    """
    given = [o.label for o in event.operands if o.label is not None]
    if event.name in ("__getitem__", "index_select") and given and event.operands[0].label is not None:
        source, after = story.shape(given[0], event.step) or (), story.shape(made, event.step) or ()
        if len(source) != len(after) or source[1:] != after[1:]:
            return None
        if len(given) == 2:
            index = story.tensor(given[1], event.step) or {}
            stride = tuple(index.get("stride") or ())
            rows = (index.get("storage"), index.get("offset"), tuple(index.get("shape") or ()), stride)
            return (given[0], event.step, rows) if len(rows[2]) == 1 else None
        text = event.operands[-1].text
        plain = event.name == "__getitem__" and len(event.operands) == 2 and not text.startswith(("(", "None"))
        return (given[0], event.step, text) if plain else None
    stacked = batch(story, event)
    whole_table = next(iter(story.tensors_on(stacked.storage)), None) if stacked is not None else None
    if stacked is None or whole_table is None:
        return None
    label, record = whole_table
    row = (record.get("stride") or (0,))[0]
    if not row or record.get("offset") or (story.shape(label) or ())[1:] != (story.shape(made) or ())[1:]:
        return None
    return label, event.step, tuple(offset // row for offset in stacked.rows)


def _keeps_first(story: Story, event: Event, given: str, made: str) -> bool:
    if event.name not in spellings("transpose") | {"movedim", "permute"}:
        return True
    strides = [(story.tensor(label, event.step) or {}).get("stride") or [0] for label in (given, made)]
    return bool(strides[0][0] == strides[1][0])


def _axis(event: Event, story: Story, made: str) -> int:
    given = whole(argument(event, "dim", len([o for o in event.operands if o.label is not None])) or "0") or 0
    return given % max(1, len(story.shape(made, event.step) or ()))


def _repeated(story: Story, event: Event) -> RepeatedInAnotherOrder | None:
    """The order in which a call repeats the rows along the first axis; None if it does not repeat them."""
    given = [o.label for o in event.operands if o.label is not None]
    before, after = (story.shape(label, event.step) or () for label in (given[0] if given else None, event.results[0]))
    if event.name in ("view", "reshape", "flatten"):
        return _folded(story, event, before, after)
    if not before or not after or not before[0] or after[0] <= before[0] or after[0] % before[0]:
        return None
    times = after[0] // before[0]
    if event.name in ("repeat", "tile") and len(before) == len(after):
        return RepeatedInAnotherOrder("tiled", before[0], times, event)
    if event.name == "repeat_interleave" and len(given) == 1 and len(before) == len(after):
        return RepeatedInAnotherOrder("each", before[0], times, event)
    rows = {(story.shape(label, event.step) or (0,))[0] for label in given}
    if event.name == "cat" and _axis(event, story, event.results[0]) == 0 and len(given) > 1 and len(rows) == 1:
        return RepeatedInAnotherOrder("tiled", before[0], len(given), event)
    return None


def _folded(
    story: Story, event: Event, before: tuple[int, ...], after: tuple[int, ...]
) -> RepeatedInAnotherOrder | None:
    """The order of repeated rows if a tensor was expanded or stacked along a new axis and this call joins that axis
    with the first one; else None.
    """
    if len(before) < 2 or not after or after[0] != prod(before[:2]):
        return None
    label = event.operands[0].label
    made = story.event((story.tensor(label, event.step) or {}).get("born"))
    if made is None or label not in made.results or made.name not in ("expand", "stack", "expand_as", "repeat"):
        return None
    if made.name == "stack":
        new = _axis(made, story, str(label))
    else:
        source = story.shape(made.operands[0].label, made.step) or ()
        source = (1,) * (len(before) - len(source)) + source
        grown = [axis for axis, pair in enumerate(zip(source, before, strict=True)) if pair[0] != pair[1]]
        new = grown[0] if len(grown) == 1 else -1
    if new not in (0, 1):
        return None
    return RepeatedInAnotherOrder("tiled" if new == 0 else "each", before[1 - new], before[new], event)


def _of_loss(story: Story, loss: Event, guess: RepeatedInAnotherOrder, target: RepeatedInAnotherOrder) -> Finding:
    here, there, elsewhere = (at_line(story, story.span(event.step)) for event in (loss, guess.event, target.event))
    one, other = WORDS[guess.kind], WORDS[target.kind]
    rows = 0 if guess.chosen else guess.rows * guess.times
    example = guess.times if guess.kind == "tiled" else target.times
    return RULE.finding(
        story.span(loss.step),
        loss.step,
        T(
            en=f"{capital(here.en)} compares rows that were repeated in two orders: those of the prediction on "
            f"{there.en} ({one.en}), those of the target on {elsewhere.en} ({other.en}).",
            zh=f"{here.zh}比较的各行以两种次序重复：预测在{there.zh}（{one.zh}），目标在{elsewhere.zh}（{other.zh}）。",
        ),
        T(
            en=f"Both have {guess.rows} rows {guess.times} times, so the shapes agree. But row 1 is a copy of row 0 "
            "on one side and row 1 itself on the other: most examples get the label of another one. `repeat` gives a "
            "b a b, `repeat_interleave` gives a a b b.",
            zh=f"两者都是 {guess.rows} 行重复 {example} 次，所以形状相符。但第 1 行在一边是第 0 行的副本，在另一边却是"
            "第 1 行本身：大多数样本得到的是别的样本的标签。`repeat` 给出 a b a b，`repeat_interleave` 给出 a a b b。",
        ),
        related=[
            story.related(
                "made", guess.event.step, T(en=f"the prediction's rows: {one.en}", zh=f"预测的各行：{one.zh}")
            ),
            story.related(
                "used", target.event.step, T(en=f"the target's rows: {other.en}", zh=f"目标的各行：{other.zh}")
            ),
        ],
        fixes=(*_fixes(story, target), *_fixes(story, guess)),
        facts=[
            Fact("rows", guess.rows),
            Fact("times", guess.times),
            *pairs(
                T(en="prediction of row", zh="预测属于第几行"),
                T(en="target of row", zh="目标属于第几行"),
                [(_row_at(guess, at), _row_at(target, at), _row_at(guess, at)) for at in range(rows)],
            ),
        ],
    )


def _row_at(order: RepeatedInAnotherOrder, place: int) -> int:
    """The row at a position of the repeated rows."""
    return place % order.rows if order.kind == "tiled" else place // order.times


def _of_fold(story: Story, fold: Event, order: RepeatedInAnotherOrder) -> Finding:
    here, there = (at_line(story, story.span(event.step)) for event in (fold, order.event))
    size = "×".join(map(str, (story.shape(fold.results[0], fold.step) or ())[:2]))
    mixed, why = GROUPS[order.kind]
    return RULE.finding(
        story.span(fold.step),
        fold.step,
        T(
            en=f"{capital(here.en)} folds rows into {size}, but {there.en} repeated them in the other order "
            f"({WORDS[order.kind].en}): {mixed.en}.",
            zh=f"{here.zh}把各行折成 {size}，而{there.zh}是按另一种次序重复的（{WORDS[order.kind].zh}）：{mixed.zh}。",
        ),
        T(
            en=f"A reshape keeps the order of the rows. {order.rows} rows were repeated {order.times} times; `repeat` "
            f"gives a b a b, `repeat_interleave` gives a a b b. {why.en}",
            zh=f"改变形状不改变各行的次序。{order.rows} 行重复了 {order.times} 次；`repeat` 给出 a b a b，"
            f"`repeat_interleave` 给出 a a b b。{why.zh}",
        ),
        related=[story.related("made", order.event.step, T(en=WORDS[order.kind].en, zh=WORDS[order.kind].zh))],
        fixes=_fixes(story, order),
        facts=[Fact("rows", order.rows), Fact("times", order.times)],
    )


def _fixes(story: Story, order: RepeatedInAnotherOrder) -> tuple[Fix, ...]:
    """Fixes that repeat the rows in the other order, where the repetition is written as a method; empty for every other
    call.
    """
    program: Program = story.program
    node = program.at(story.span(order.event.step))
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Attribute)
        or call_name(node) not in ("repeat", "repeat_interleave")
    ):
        return ()
    label, owner = order.event.operands[0].label, program.segment(node.func.value)
    shape, made = (story.shape(each, order.event.step) or () for each in (label, order.event.results[0]))
    if owner == "torch" or shape[1:] != made[1:]:
        return ()
    ones = ", 1" * (len(shape) - 1)
    text = (
        f"{owner}.repeat_interleave({order.times}, dim=0)"
        if order.kind == "tiled"
        else f"{owner}.repeat({order.times}{ones})"
    )
    given = node.args[0] if node.args else None
    if given is not None and not isinstance(given, ast.Starred | ast.Tuple | ast.List):
        text = text.replace(f"({order.times}", f"({program.segment(given)}", 1)
    title = T(en=f"Repeat in the same order: `{text}`", zh=f"按同样的次序重复：`{text}`")
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="shape")])


RULE = Rule(
    code="PL436",
    name="repeated-in-another-order",
    severity="warning",
    title=T(en="Examples and labels are repeated in two different orders", zh="样本与标签以两种不同的次序重复"),
    what=T(
        en="A program repeats its examples so that the copies of each follow one another, and its labels "
        "as a whole list several times. There are as many of both, but they no longer belong together. "
        "Repeat both in the same way.",
        zh="程序把每个样本连续重复几次，却把标签作为整个列表重复几次。两者个数一样，却不再对应。请"
        "用同样的方式重复两者。",
    ),
    why=T(
        en="`y.repeat(2)` makes `a b c a b c` of `a b c`, and so do `torch.cat([y, y])` and `tile`; "
        "`y.repeat_interleave(2)` makes `a a b b c c`, and so does `unsqueeze(1).expand(-1, 2).reshape(-1)`. NumPy's "
        "`repeat` is torch's `repeat_interleave`. The shapes are the same, so a loss compares them row by row. A "
        "`view(rows, times)` afterwards fits `repeat_interleave`, `view(times, rows)` fits `repeat`.",
        zh="`y.repeat(2)` 把 `a b c` 变成 `a b c a b c`，`torch.cat([y, y])` 与 `tile` 也是；`y.repeat_interleave(2)` "
        "则变成 `a a b b c c`，`unsqueeze(1).expand(-1, 2).reshape(-1)` 也是。NumPy 的 `repeat` 相当于 torch 的 "
        "`repeat_interleave`。形状相同，所以损失会逐行比较。之后的 `view(rows, times)` 与 `repeat_interleave` 相配，"
        "`view(times, rows)` 与 `repeat` 相配。",
    ),
    advice=T(
        en="repeat the rows on {made} and those that they meet on {line} in the same order, both by "
        "`repeat_interleave` or both by `repeat`.",
        zh="让{made}的各行与它们在{line}遇到的各行以同样的次序重复：都用 `repeat_interleave`，或者都用 `repeat`。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(4, 3)
y = torch.tensor([0, 1, 2, 1])
net = torch.nn.Linear(3, 3)
views = x.repeat_interleave(2, dim=0) + 0.1 * torch.randn(8, 3)  # made
labels = y.repeat(2)  # used
loss = F.cross_entropy(net(views), labels)  # PL436
loss.backward()
print(loss.item(), labels)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(4, 3)
y = torch.tensor([0, 1, 2, 1])
net = torch.nn.Linear(3, 3)
views = x.repeat_interleave(2, dim=0) + 0.1 * torch.randn(8, 3)
labels = y.repeat_interleave(2, dim=0)
loss = F.cross_entropy(net(views), labels)
loss.backward()
print(loss.item(), labels)
""",
    find=find,
    traps=(
        Trap(
            "labels = y.repeat(2)",
            "labels = torch.cat([y, y])",
            T(en="The same order as that of `repeat`.", zh="与 `repeat` 的次序相同。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.repeat.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html",
    ),
)
