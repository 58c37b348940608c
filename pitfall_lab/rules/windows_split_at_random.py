"""PL975: a model is measured with windows of a series that lie between, and overlap, those that it learned from."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd, prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.element_origins import Origins
from pitfall_lab.rules.signals.takes import maker
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LAYERS = spellings("matmul") | operations_that("recurrent") | {"addmm", "conv1d", "conv2d", "embedding", "linear"}
"""Layers by whose calls a network is recognised."""
ROWS, CALLS = 128, 40
"""The rows that are followed of one input, and the calls that are looked at of one weight."""
FEWEST = 4
EXPECTED = 6.0
"""How many measured windows would have to be among those learned from, if they had been drawn from the same ones."""
APART = 4
"""A window takes up no more than so many times its numbers: else what looks like one is a row across windows."""
SHARED = 0.25

Start = int
"""Where a window begins in the memory of its series."""
Part = tuple[int, int, int]
"""The length of an order, and the first place of a part of it and that behind its last one."""


@dataclass(frozen=True, slots=True)
class WindowsSplitAtRandom:
    """``layer`` is the call (``Event``) of a layer that was given windows of one series, as its training or to be
    measured; ``series`` is the storage of the series (``"S3"``).

    The first ``ROWS`` windows begin at the positions ``starts`` in the storage, as far as that is known, extend over
    ``extent`` elements each, and have distances that are multiples of ``apart`` elements. ``drawn`` has, for each
    random order by a part of which the windows were taken, the step of the draw, the order's length, the first index of
    the part, and the index after its last one. ``made`` are the calls that made the windows, the last first.
    """

    layer: Event
    series: str
    starts: frozenset[Start]
    extent: int
    apart: int
    drawn: dict[int, Part]
    made: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """``measured`` are windows that lie between the windows ``learned`` of the training (both
    :class:`WindowsSplitAtRandom`, the second one the first of several).

    Each of the measured ones shares on average the part ``shared`` (0 to 1) of its numbers with those next to it: as
    expected from the parts of a drawn order, else counted. ``apart`` is the distance of neighbouring windows, in
    elements.
    """

    learned: WindowsSplitAtRandom
    measured: WindowsSplitAtRandom
    shared: float
    apart: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that drew an order by which windows of a series were split, where a network is
    measured with windows that lie between, and overlap, those of its training; where no draw is found, for the line of
    a layer's call.

    Only where the two are different windows as good as for certain: by parts of one drawn order, or by so many of both
    that some could be expected to be equal, had they been drawn from the same windows. They must share ``SHARED`` of
    their numbers, and an optimizer must have stepped.
    """
    if not story.trace.optimizer_steps:
        return
    learned: dict[str, list[WindowsSplitAtRandom]] = defaultdict(list)
    measured: dict[str, list[WindowsSplitAtRandom]] = defaultdict(list)
    for event, weight in _layers(story):
        graph = (story.tensor(event.results[0], event.step) or {}).get("grad_fn")
        trained = (story.record("nodes", graph) or {}).get("ran") is not None
        into = (learned if trained else measured)[weight]
        if len(into) < CALLS and (fed := _fed(story, event)) is not None:
            into.append(fed)
    told = set()
    for weight, parts in measured.items():
        for part in parts:
            split = _split(learned.get(weight, []), part)
            place = _place(story, split) if split is not None else None
            if split is not None and place not in told:
                told.add(place)
                yield _finding(story, split)


def _layers(story: Story) -> Iterator[tuple[Event, str]]:
    """The calls of layers whose input does not require grad, each with the first leaf among its other operands.

    Under ``no_grad`` no activation requires grad, so layers behind the first are among them too.
    """
    for event in story.calls(*LAYERS):
        given = [o.label for o in event.operands if o.label is not None]
        weight = next((label for label in given[1:] if label in story.leaves), None)
        known = event.error is None and event.results and weight is not None
        if known and weight is not None and not (story.tensor(given[0], event.step) or {}).get("requires_grad"):
            yield event, weight


def _fed(story: Story, layer: Event) -> WindowsSplitAtRandom | None:
    """The windows of one series that a layer was given; None if its rows are not known to be such windows."""
    label = next(o.label for o in layer.operands if o.label is not None)
    shape = story.shape(label, layer.step) or ()
    if len(shape) < 2 or shape[0] < 2:
        return None
    rest = shape[1:]
    starts, known, series, extents = list[int](), set[int](), set[str](), set[int]()
    made = tuple[Event, ...]()
    for row in range(min(shape[0], ROWS)):
        origins = Origins(story)
        first = origins.place(label, (row, *(0 for _ in rest)), layer.step)
        last = origins.place(label, (row, *(n - 1 for n in rest)), layer.step)
        if first is None or last is None or first[0] != last[0]:
            return None
        starts.append(first[1])
        known |= set() if origins.supposed else {first[1]}
        series.add(first[0])
        extents.add(last[1] - first[1] + 1)
        made = made or tuple(origins.trail)
    size = prod(rest)
    if len(series) != 1 or len(extents) != 1 or not 1 < max(extents) <= APART * size or len(set(starts)) < 2:
        return None
    apart = gcd(*(start - starts[0] for start in starts))
    return WindowsSplitAtRandom(layer, series.pop(), frozenset(known), extents.pop(), apart, _drawn(story, made), made)


def _drawn(story: Story, made: tuple[Event, ...]) -> dict[int, Part]:
    """The parts of drawn orders (``randperm``) by which rows were taken, each under the step of the draw."""
    found = dict[int, Part]()
    for event in made:
        given = [o.label for o in event.operands if o.label is not None]
        if event.name not in ("__getitem__", "index_select") or len(given) != 2:
            continue
        draw = maker(story, given[1], event.step)
        order = story.tensor(draw.results[0], draw.step) if draw is not None and draw.name == "randperm" else None
        label: str | None = given[1]
        while draw is not None and order is not None and label is not None:
            record = story.tensor(label) or {}
            if record.get("storage") == order.get("storage"):
                first = int(record.get("offset") or 0)
                found[draw.step] = (order["shape"][0], first, first + int((record.get("shape") or [0])[0]))
                break
            before = story.event(record.get("born"))
            label = before.operands[0].label if before is not None and before.operands else None
    return found


def _split(learned: list[WindowsSplitAtRandom], part: WindowsSplitAtRandom) -> Split | None:
    """The data of the finding if the windows of ``part`` lie between, and overlap, those that were learned from; else
    None.
    """
    same = [each for each in learned if each.series == part.series and each.extent == part.extent]
    starts = sorted({start for each in same for start in each.starts})
    if not same or part.starts & set(starts):
        return None
    every = sorted({*starts, *part.starts})
    apart = gcd(part.apart, *(each.apart for each in same), *(start - every[0] for start in every))
    orders = [_of_one_order([each.drawn.get(draw) for each in same], one) for draw, one in part.drawn.items()]
    share = next((_expected(rate, part.extent, apart) for rate in orders if rate), None)
    if share is None:
        among = (every[-1] - every[0]) // apart + 1
        if min(len(starts), len(part.starts)) < FEWEST or len(starts) * len(part.starts) / among < EXPECTED:
            return None
        share = _shared(starts, part)
    return Split(same[0], part, share, apart) if share >= SHARED else None


def _of_one_order(learned: list[Part | None], measured: Part) -> float | None:
    """The share of a random order's rows that were learned from, if what was measured is another part of the same
    order; else None.
    """
    parts = {each for each in learned if each is not None}
    if None in learned or any(first < measured[2] and measured[1] < last for _, first, last in parts):
        return None
    return len({place for _, first, last in parts for place in range(first, last)}) / measured[0]


def _expected(rate: float, extent: int, apart: int) -> float:
    """The share of a window's numbers that are expected in its learned neighbours on both sides, if each window
    was learned from with probability ``rate``.
    """
    left = sum(rate * (1 - rate) ** (k - 1) * (extent - k * apart) / extent for k in range(1, ceil(extent / apart)))
    return min(1.0, 2 * left)


def _shared(starts: list[Start], part: WindowsSplitAtRandom) -> float:
    """The mean fraction of a measured window's numbers that are also in the learned windows next to it; 0 unless at
    least half of the measured windows overlap a learned one on both sides.
    """
    between, shared = 0, 0.0
    for start in part.starts:
        before = max((each for each in starts if each < start), default=None)
        after = min((each for each in starts if each > start), default=None)
        left = max(0, before + part.extent - start) if before is not None else 0
        right = max(0, start + part.extent - after) if after is not None else 0
        between += bool(left and right)
        shared += min(part.extent, left + right) / part.extent
    return shared / len(part.starts) if 2 * between >= len(part.starts) else 0.0


def _draw(story: Story, split: Split) -> Event | None:
    """The call that drew the order from which both parts were taken, if it is known; else the last ``randperm`` before
    the training whose order has about as many elements as there are windows. None if there is none.
    """
    both = [step for step in split.measured.drawn if step in split.learned.drawn]
    if both:
        return story.event(both[-1])
    every = split.learned.starts | split.measured.starts
    fewest = (max(every) - min(every)) // split.apart + 1
    first = next((story.tensor(label) or {} for label, _ in story.tensors_on(split.measured.series)), {}).get("born")
    found = [
        event
        for event in story.calls("randperm")
        if (first or 0) <= event.step < split.learned.layer.step
        and event.results
        and event.span is not None
        and event.span.source == 0
        and fewest <= (story.shape(event.results[0], event.step) or (0,))[0] <= 2 * fewest
    ]
    return found[-1] if found else None


def _place(story: Story, split: Split) -> object:
    draw = _draw(story, split)
    return story.span(draw.step if draw is not None else split.measured.layer.step)


def _finding(story: Story, split: Split) -> Finding:
    draw, layer = _draw(story, split), split.measured.layer
    step = draw.step if draw is not None else layer.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(layer.step))
    share = f"{split.shared:.0%}"
    window = next((each for each in split.measured.made if each.name == "unfold"), None)
    window = window or next((each for each in split.measured.made if each.name == "__getitem__"), None)
    said = T(
        en=f"{capital(here.en)} splits overlapping windows of one series at random: those that {there.en} measures "
        f"with share about {share} of their numbers with windows that were learned from.",
        zh=f"{here.zh}把一个序列的重叠窗口随机划分：{there.zh}用来测量的窗口中，约有 {share} 的数也在学习过的窗口里。",
    )
    between = T(
        en=f"{capital(here.en)} measures the network with windows that lie between those it learned from: they share "
        f"about {share} of their numbers with them.",
        zh=f"{here.zh}用来测量网络的窗口夹在学习过的窗口之间：其中约 {share} 的数与它们相同。",
    )
    apart = split.apart
    return RULE.finding(
        story.span(step),
        step,
        said if draw is not None else between,
        T(
            en=f"A window takes up {split.measured.extent} places in the memory of the series, and the next one begins "
            f"{apart} {'place' if apart == 1 else 'places'} further. No measured window was learned from itself, but "
            "its neighbours on both sides were, with the numbers before and behind it. The measure says how well the "
            "network fills gaps in what it has seen; what comes after the last number it has seen is another question.",
            zh=f"一个窗口在序列的内存中占 {split.measured.extent} 个位置，下一个窗口再往后 {apart} 个位置开始。测量窗口"
            "本身没有被学习过，但它两侧的邻居学习过，连同它前后的数。这个测量只说明网络填补"
            "见过内容的空隙有多好；最后一个见过的数之后会怎样，则是另一个问题。",
        ),
        related=[
            *(
                [story.related("made", window.step, T(en="the windows are made here", zh="窗口在这里生成"))]
                if window is not None
                else ()
            ),
            story.related("used", layer.step, T(en="the network is measured here", zh="网络在这里被测量")),
        ],
        fixes=_fixes(story, split),
        facts=[Fact("shared", round(split.shared, 4), story.by(layer.step))],
    )


def _fixes(story: Story, split: Split) -> tuple[Fix, ...]:
    """Fixes that split by time: parts of the data set with a gap between them, or the windows kept in the order of
    time.
    """
    program = story.program
    if program.tree is None:
        return ()
    size = max([split.measured.extent, *(_size(each) for each in split.measured.made)])
    gap = ceil(size / split.apart) - 1
    torch = torch_name(program)
    fixes = list[Fix]()
    by_time = T(
        en=f"Split by time, and leave out the {gap} windows that reach over the border",
        zh=f"按时间划分，并去掉跨过边界的 {gap} 个窗口",
    )
    for call in (n for n in program.nodes if isinstance(n, ast.Call)):
        name = called(call)
        if name == "random_split" and len(call.args) > 1 and torch is not None:
            lengths = call.args[1].elts if isinstance(call.args[1], ast.List | ast.Tuple) else []
            if len(lengths) == 2:
                data, first = operand(program, call.args[0]), operand(program, lengths[0])
                if isinstance(lengths[0], ast.Constant) and isinstance(lengths[0].value, float):
                    first = f"int({first} * len({data}))"
                part = f"{torch}.utils.data.Subset({data}, range("
                text = f"{part}{first} - {gap})), {part}{first}, len({data})))"
                text = text if isinstance(program.parents.get(call), ast.Assign) else f"({text})"
                fixes.append(Fix(by_time, program.replace((call, text)), meaning="later"))
        ordered = T(en="Keep the windows in the order of time", zh="让窗口保持时间的次序")
        around = program.statement(call)
        if name == "randperm" and torch is not None and call.args:
            text = f"{torch}.arange({program.segment(call.args[0])})"
            fixes.append(Fix(ordered, program.replace((call, text)), meaning="later"))
        elif name == "permutation" and isinstance(call.func, ast.Attribute) and call.args:
            fixes.append(
                Fix(ordered, program.replace((call, f"list(range({program.segment(call.args[0])}))")), meaning="later")
            )
        elif name == "shuffle" and isinstance(around, ast.Expr) and around.value is call:
            fixes.append(Fix(ordered, program.delete(around), meaning="later"))
        elif name == "train_test_split" and not any(k.arg in ("shuffle", None) for k in call.keywords):
            text = f"{program.segment(call).rstrip()[:-1].rstrip().removesuffix(',')}, shuffle=False)"
            fixes.append(Fix(ordered, program.replace((call, text)), meaning="later"))
    return unique(program.text, fixes)


def _size(event: Event) -> int:
    """The length of the windows that ``unfold`` made; 0 for another call."""
    numbers = [o.text for o in event.operands if o.label is None and o.text.isdigit()]
    return int(numbers[1]) if event.name == "unfold" and len(numbers) > 2 else 0


RULE = Rule(
    code="PL975",
    name="windows-split-at-random",
    severity="warning",
    title=T(en="Overlapping windows of one series are split at random", zh="一个序列的重叠窗口被随机划分"),
    what=T(
        en="A program cuts overlapping windows out of one series and lets chance decide which of them a network learns "
        "from and which measure it. Almost every number that it is measured with was in a window of the training. "
        "Split by time: learn from the beginning, leave out as many windows as reach over the border, and measure "
        "with the end.",
        zh="程序从一个序列中切出重叠的窗口，并随机决定哪些用来学习、哪些用来测量。测量用到的数几乎都已出现在训练的窗口"
        "里。请按时间划分：用开头学习，去掉跨过边界的窗口，用结尾测量。",
    ),
    why=T(
        en="`series.unfold(0, length, 1)` makes views: windows beside each other share all their memory but one "
        "number. `random_split` or `randperm` treats them as rows that have nothing to do with each other, which the "
        "rows of a table mostly are. Here each window of one part has neighbours in the other, and a network with "
        "enough parameters only has to recall them. The error says nothing about the future.",
        zh="`series.unfold(0, length, 1)` 生成的是视图：相邻窗口的内存除一个数外全部共用。`random_split` 或 "
        "`randperm` 把它们当作互不相干的行（表格的行大多如此）。而这里，一部分中的每个窗口在另一部分中都有邻居，参数"
        "足够多的网络只需回忆它们。得到的误差与未来无关。",
    ),
    bad="""import torch

torch.manual_seed(0)
series, length = torch.randn(60).cumsum(0), 8
windows = series.unfold(0, length, 1)  # made
x, y = windows[:, :-1], windows[:, -1:]
order = torch.randperm(len(x))  # PL975
learn, rest = order[:40], order[40:]
net = torch.nn.Linear(length - 1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
for _ in range(3):
    loss = torch.nn.functional.mse_loss(net(x[learn]), y[learn])
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print(torch.nn.functional.mse_loss(net(x[rest]), y[rest]).item())  # used
""",
    good="""import torch

torch.manual_seed(0)
series, length = torch.randn(60).cumsum(0), 8
windows = series.unfold(0, length, 1)
x, y = windows[:, :-1], windows[:, -1:]
order = torch.arange(len(x))
learn, rest = order[:40], order[40:]
net = torch.nn.Linear(length - 1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
for _ in range(3):
    loss = torch.nn.functional.mse_loss(net(x[learn]), y[learn])
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print(torch.nn.functional.mse_loss(net(x[rest]), y[rest]).item())
""",
    find=find,
    traps=(
        Trap(
            "windows = series.unfold(0, length, 1)",
            "windows = series.unfold(0, length, 1).clone()",
            T(
                en="A copy has the same numbers: the neighbours of each measured window were still learned from.",
                zh="拷贝里是同样的数：每个测量窗口的邻居仍然被学习过。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.unfold.html",
        "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.random_split",
    ),
)
