"""PL949: the largest distances, or the smallest similarities, are taken as the nearest neighbours or classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.distances import Comparisons, comparisons, takes_largest
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, made_by
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.value_origins import argument, origin, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

ORDERS = ("sort", "argsort")
LARGEST, SMALLEST = ("argmax", "max"), ("argmin", "min")
RANKINGS = ("topk", *ORDERS, *LARGEST, *SMALLEST)
"""Calls that return the indices of the best numbers."""
LOOKS = {"__getitem__", "index_select", "take", "gather", "take_along_dim"}
"""Calls that look labels up by their indices."""
SAME = SAME_NUMBERS | {"long", "int", "unbind", "cpu", "select"}
"""Calls that indices, and the labels that were looked up, are followed through."""
COUNTS = {"mode", "bincount", "one_hot"}
"""Calls that count the labels of the neighbours."""
AVERAGES = {"mean", "sum", "float", "median"}
"""Calls that such a count is followed through."""
LOSSES = ("cross_entropy", "log_softmax", "softmax")
"""Calls that take numbers as scores of classes."""
CENTRES = {"mean", "median", "sum"}
"""Calls that compute one row from many."""
PAIR, FURTHER, FEWEST = 2, 30, 3


@dataclass(frozen=True, slots=True)
class Farthest:
    """``ranked`` is the call (``Event``) that returns the indices of the largest of ``count`` distances, or of the
    smallest similarities, along the dimension ``axis`` (from 0).

    ``table`` contains the call that computed the distances or similarities (:class:`Comparisons`); ``used`` is the call
    that takes the indices as those of the nearest.
    """

    ranked: Event
    table: Comparisons
    used: Event
    axis: int
    count: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that ranks at least ``FEWEST`` distances or similarities and takes the farthest
    of the neighbours, or classes, as the nearest.

    Nothing if the program also takes the nearest, or the distances are scores that a loss trains.
    """
    reported = set()
    for event in story.calls(*RANKINGS):
        place = story.span(event.step)
        if place in reported or event.error is not None or not event.operands or not event.results:
            continue
        found = _farthest(story, event)
        if found is not None and not _is_meant(story, found):
            reported.add(place)
            yield _finding(story, found)


def _farthest(story: Story, event: Event) -> Farthest | None:
    """Return the data of the finding for a ranking; None if it does not rank distances or similarities, if it takes the
    nearest, or if no call uses the indices as those of the nearest.
    """
    if event.name in ("max", "min") and len(event.results) != PAIR:
        return None
    table = comparisons(story, event.operands[0].label, event.step)
    shape = story.shape(event.operands[0].label, event.step) or ()
    axis = _axis(event, len(shape))
    if table is None or axis is None or shape[axis] < FEWEST:
        return None
    for places in _wrong(story, event, axis, shape, table.is_likeness):
        used = _used(story, places, shape[axis], len(shape) > 1)
        if used is not None and (len(shape) > 1 or not _is_of_a_centre(story, table.event)):
            return Farthest(event, table, used, axis, shape[axis])
    return None


def _axis(event: Event, count: int) -> int | None:
    """Return the dimension along which a ranking goes, from 0; None if it is not known."""
    if not count:
        return None
    text = argument(event, "dim", PAIR if event.name == "topk" else 1)
    if text in (None, "None"):
        return count - 1 if event.name not in LARGEST + SMALLEST or count == 1 else None
    number = whole(text)
    return number % count if number is not None and -count <= number < count else None


def _wrong(story: Story, event: Event, axis: int, shape: tuple[int, ...], is_likeness: bool) -> list[str]:
    """Return the labels of the indices of the largest distances, or (``is_likeness``) of the smallest similarities,
    that a ranking gives; empty if it gives none.
    """
    last = event.results[-1]
    if event.name in LARGEST + SMALLEST:
        return [last] if (event.name in LARGEST) != is_likeness else []
    if event.name == "topk":
        size = whole(argument(event, "k", 1))
        is_largest = takes_largest(story, event, axis)
        known = is_largest is not None and size is not None and size < shape[axis]
        return [last] if known and is_largest != is_likeness else []
    descending = "True" in (argument(event, "descending"), argument(event, "descending", PAIR))
    found = []
    for use in story.uses(last):
        begins = _is_beginning(use, axis, len(shape)) if use.results and use.operands[0].label == last else None
        if begins is not None and (descending == begins) != is_likeness:
            found.append(use.results[0])
    return found


def _is_beginning(use: Event, axis: int, count: int) -> bool | None:
    """Return True if an index takes the first entries along a dimension, False if it takes the last ones; None for
    other calls.
    """
    if use.name != "__getitem__" or len(use.operands) != PAIR or use.operands[1].label is not None:
        return None
    parts = [part.strip() for part in use.operands[1].text.strip("()").split(",") if part.strip()]
    if parts[:1] == ["..."]:
        parts = [":"] * (count - len(parts) + 1) + parts[1:]
    if len(parts) <= axis or any(part != ":" for place, part in enumerate(parts) if place != axis):
        return None
    start, colon, stop = parts[axis].partition(":")
    if not colon:
        return {"0": True, "-1": False}.get(start)
    if start in ("", "0") and stop.isdigit():
        return True
    return False if start.startswith("-") and not stop else None


def _used(story: Story, places: str, count: int, is_table: bool) -> Event | None:
    """Return the call that takes the indices as those of the nearest: it compares them with labels, or counts, averages
    or compares labels that were looked up by them; None if there is none.
    """
    pending, seen = [places], {places}
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results:
                continue
            if use.name in spellings("eq") and _is_with_labels(story, use, label, count):
                return use
            source = use.operands[0].label
            if use.name in LOOKS and source not in (None, label):
                if _is_answers(story, str(source), use, count):
                    used = _vote(story, use, is_table)
                    if used is not None:
                        return used
            elif use.name in SAME and source == label:
                new = [each for each in use.results if each not in seen][:PAIR]
                seen.update(new)
                pending += new
    return None


def _is_with_labels(story: Story, use: Event, label: str, count: int) -> bool:
    """Whether indices, or labels that were looked up, are compared with integers that are not the indices of another
    ranking.

    With a ``count`` above 0, the known integers must also be indices below it.
    """
    other = next((o.label for o in use.operands if o.label not in (None, label)), None)
    record = story.tensor(other, use.step) or {}
    if other is None or not str(record.get("dtype")).startswith(("int", "bool")) or not record.get("shape"):
        return False
    made = origin(story, other, use.step)
    if made is not None and made.name in RANKINGS:
        return False
    known = {value for _, value in Elements(story, other, use.step).known()}
    return all(0 <= value < count for value in known) if count else True


def _is_answers(story: Story, label: str, use: Event, count: int) -> bool:
    """Whether a tensor has one label, or one target, for each of the ``count`` things that were ranked."""
    shape = [n for n in story.shape(label, use.step) or () if n > 1]
    record = story.tensor(label, use.step) or {}
    by_row = use.name in ("gather", "take_along_dim")
    if record.get("requires_grad") or not shape or (shape[-1] if by_row else shape[0]) != count:
        return False
    made = made_by(story, label, use.step)
    if made is not None and made.name in RANKINGS:
        return False
    is_whole = str(record.get("dtype")).startswith(("int", "bool"))
    return len(shape) == 1 or (by_row and is_whole)


def _vote(story: Story, looked: Event, is_table: bool) -> Event | None:
    """Return the call by which labels that were looked up are counted, averaged, or compared with the right ones; None
    if there is none.

    For a single example (``is_table`` is False), only a count whose largest entry is taken is accepted: a program may
    look at the farthest of all for its own sake.
    """
    pending, seen = [looked.results[0]], {looked.results[0]}
    is_whole = str((story.tensor(looked.results[0], looked.step) or {}).get("dtype")).startswith(("int", "bool"))
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results:
                continue
            if use.name == "mode" or (use.name in COUNTS and (is_table or _is_chosen(story, use))):
                return use
            if is_table and (use.name in ("mean", "median") or (use.name == "sum" and is_whole)):
                return use if len(use.operands) > 1 else None
            if is_table and use.name in spellings("eq") and is_whole and _is_with_labels(story, use, label, 0):
                return use
            if use.name in SAME | AVERAGES and use.operands[0].label == label:
                new = [each for each in use.results if each not in seen][:PAIR]
                seen.update(new)
                pending += new
    return None


def _is_chosen(story: Story, counted: Event) -> bool:
    """Whether the class with the largest count is taken."""
    pending, seen = [counted.results[0]], {counted.results[0]}
    while pending and len(seen) < FURTHER:
        for use in story.uses(pending.pop()):
            if use.name in ("argmax", "max", "topk"):
                return True
            if use.name in SAME | AVERAGES and use.results and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return False


def _is_of_a_centre(story: Story, made: Event) -> bool:
    """Whether one operand of the distances was computed as a mean or sum of rows: a program then looks for the farthest
    on purpose.
    """
    behind, step = [o.label for o in made.operands if o.label is not None], made.step
    for _ in range(FURTHER):
        if not behind:
            return False
        event = made_by(story, behind.pop(), step)
        if event is not None and event.name in CENTRES and len(story.shape(event.results[0], event.step) or ()) < PAIR:
            source = event.operands[0].label
            if source is not None and len(story.shape(source, event.step) or ()) > 1:
                return True
        if event is not None and event.name in SAME | spellings("sub", "pow") | {"square", "abs"}:
            behind += [o.label for o in event.operands if o.label is not None]
    return False


def _is_meant(story: Story, found: Farthest) -> bool:
    """Whether the program also takes the nearest by the same distances, or the distances are scores that a loss
    trains.
    """
    line = story.span(found.table.event.step)
    axis_of = {}
    for event in story.calls(*RANKINGS):
        if (
            event.error is not None
            or not event.operands
            or (event.name in ("max", "min") and len(event.results) < PAIR)
        ):
            continue
        table = comparisons(story, event.operands[0].label, event.step)
        if table is not None and table.label == found.table.label:
            axis_of[event.step] = event
    for event in axis_of.values():
        shape = story.shape(event.operands[0].label, event.step) or ()
        axis = _axis(event, len(shape))
        if axis is not None and _wrong(story, event, axis, shape, not found.table.is_likeness):
            return True
    for event in story.calls(*LOSSES):
        table = comparisons(story, event.operands[0].label, event.step) if event.operands else None
        if table is not None and story.span(table.event.step) == line:
            return True
    return False


def _finding(story: Story, found: Farthest) -> Finding:
    ranked, made, used = found.ranked, found.table.event, found.used
    here, there, then = (at_line(story, story.span(event.step)) for event in (ranked, made, used))
    what = shown(story, ranked, ranked.operands[0].label)
    is_likeness = found.table.is_likeness
    kind = (
        T(en=f"the smallest similarities in {what.en}", zh=f"{what.zh} 中最小的相似度")
        if is_likeness
        else T(en=f"the largest distances in {what.en}", zh=f"{what.zh} 中最大的距离")
    )
    ends = _ends(story, found)
    said = T(en="", zh="")
    if ends is not None:
        one, other = (number(each, 3) for each in (ends if is_likeness else ends[::-1]))
        said = T(
            en=f" In its first row it takes the one at {one}, where the nearest is at {other}.",
            zh=f"在第一行里，它取的是 {one} 的那个，而最近的是 {other}。",
        )
    return RULE.finding(
        story.span(ranked.step),
        ranked.step,
        T(
            en=f"{capital(here.en)} takes {kind.en}, so it finds the farthest of {found.count:,}, and {then.en} uses "
            f"them as the nearest.{said.en}",
            zh=f"{here.zh}取了 {kind.zh}，所以在 {found.count:,} 个中找到的是最远的，而{then.zh}把它们当作最近的使用。"
            f"{said.zh}",
        ),
        T(
            en=f"What {there.en} computes is "
            + ("large for what is alike" if is_likeness else "small for what is near")
            + ". `topk` and `max` take the largest numbers, `sort` begins with the smallest: for scores and "
            "similarities the best are the largest, for distances the smallest. No shape tells them apart.",
            zh=f"{there.zh}算出的数，"
            + ("越相似越大" if is_likeness else "越近越小")
            + "。`topk` 和 `max` 取最大的数，`sort` 从最小的开始：对分数和相似度来说最好的是最大的，"
            "对距离来说则是最小的。从形状看不出区别。",
        ),
        related=[
            story.related("made", made.step, T(en="computed here", zh="在这里算出")),
            story.related("used", used.step, T(en="used as the nearest here", zh="在这里当作最近的使用")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("among", found.count, story.by(ranked.step)), Fact("ends", ends)],
    )


def _ends(story: Story, found: Farthest) -> tuple[float, float] | None:
    """Return the smallest and the largest number of the first row that is ranked; None if not all are known."""
    table = Elements(story, found.ranked.operands[0].label, found.ranked.step)
    places = [tuple(k if axis == found.axis else 0 for axis in range(len(table.shape))) for k in range(found.count)]
    row = [value for place in places if (value := table.at(place)) is not None]
    return (min(row), max(row)) if len(row) == found.count else None


def _fixes(story: Story, found: Farthest) -> tuple[Fix, ...]:
    """At most one fix: it lets the ranking take the nearest; empty if the program does not show the call."""
    program, name = story.program, found.ranked.name
    call = program.at(story.span(found.ranked.step))
    if not isinstance(call, ast.Call) or called(call) != name:
        return ()
    if name in LARGEST + SMALLEST:
        new = dict(zip(LARGEST + SMALLEST, SMALLEST + LARGEST, strict=True))[name]
        text = program.segment(call.func).removesuffix(name) + new
        title = T(en=f"Take the other end: `{new}`", zh=f"取另一端：`{new}`")
        return unique(program.text, [Fix(title, program.replace((call.func, text)), meaning="later")])
    option = "largest" if name == "topk" else "descending"
    falls = "True" in (argument(found.ranked, option), argument(found.ranked, option, PAIR))
    value = str(found.table.is_likeness if name == "topk" else not falls)
    title = T(en=f"Take the nearest: `{option}={value}`", zh=f"取最近的：`{option}={value}`")
    written = next((each.value for each in call.keywords if each.arg == option), None)
    if written is None and call.args and isinstance(call.args[-1], ast.Constant) and type(call.args[-1].value) is bool:
        written = call.args[-1]
    if written is not None:
        return unique(program.text, [Fix(title, program.replace((written, value)), meaning="later")])
    inner = program.segment(call)[:-1].rstrip().removesuffix(",")
    comma = "" if inner.endswith("(") else ", "
    text = f"{inner}{comma}{option}={value})"
    return unique(program.text, [Fix(title, program.replace((call, text)), meaning="later")])


RULE = Rule(
    code="PL949",
    name="farthest-taken-for-nearest",
    severity="warning",
    title=T(en="The farthest neighbours are taken for the nearest", zh="把最远的邻居当成了最近的"),
    what=T(
        en="A program measures how far each example is from all others, and takes the largest of these numbers for "
        "its neighbours. They are the ones that it has least in common with, so the votes are worse than chance. "
        "Take the smallest distances: `topk(k, largest=False)`.",
        zh="程序测量每个样本与所有其他样本的距离，却把其中最大的数当作它的邻居。它们恰恰是与它最不相同的，所以投票的结果比"
        "随机还差。请取最小的距离：`topk(k, largest=False)`。",
    ),
    why=T(
        en="`topk` takes the largest numbers by default, as is right for scores and for cosine "
        "similarities. Distances (`cdist`, the norm of a difference) are small for what is near, so they need "
        "`largest=False`, `argmin`, or `sort`, which begins with the smallest. Both ways give as many places, and "
        "every place has a label.",
        zh="`topk` 默认取最大的数，这对分数和余弦相似度是对的。距离（`cdist`、差的范数）则是越近越小，所以需要 "
        "`largest=False`、`argmin`，或者从最小开始的 `sort`。两种取法得到的位置一样多，每个位置也都有标签。",
    ),
    bad="""import torch

torch.manual_seed(0)
centre = torch.tensor([[0.0, 0.0], [4.0, 4.0]])
y, y_new = torch.arange(12) % 2, torch.arange(6) % 2
x, x_new = centre[y] + torch.randn(12, 2), centre[y_new] + torch.randn(6, 2)
distance = torch.cdist(x_new, x)  # made
near = distance.topk(3, dim=1).indices  # PL949
said = y[near].mode(dim=1).values  # used
print((said == y_new).float().mean())
""",
    good="""import torch

torch.manual_seed(0)
centre = torch.tensor([[0.0, 0.0], [4.0, 4.0]])
y, y_new = torch.arange(12) % 2, torch.arange(6) % 2
x, x_new = centre[y] + torch.randn(12, 2), centre[y_new] + torch.randn(6, 2)
distance = torch.cdist(x_new, x)
near = distance.topk(3, dim=1, largest=False).indices
said = y[near].mode(dim=1).values
print((said == y_new).float().mean())
""",
    find=find,
    traps=(
        Trap(
            "distance.topk(3, dim=1)",
            "distance.square().topk(3, dim=1)",
            T(en="The squares have the same order.", zh="平方之后次序不变。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.topk.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.cdist.html",
    ),
)
