"""PL944: data to measure a network with was standardised by its own statistics, and not by
those of the data it learned from.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import reads
from pitfall_lab.rules.kit.wording import at_line, capital, expression, numbers
from pitfall_lab.trace import Event, T

STATISTICS = {"mean", "std", "var", "amin", "amax", "min", "max", "median"}
"""Statistics by which data is standardised."""
BETWEEN = {"sqrt", "add", "clamp", "clamp_min", "sub", "maximum", "__getitem__", "unsqueeze", "abs", "view", "reshape"}
"""Calls between a statistic and the factor that it becomes."""
LAYERS = {"linear", "matmul", "mm", "conv1d", "conv2d", "addmm"}
"""Layers with a weight: the network is given the data there."""
FEWEST = 3
UPWARD, LIMIT = 12, 4000


@dataclass(frozen=True, slots=True)
class ScaledByOwnStatistics:
    """``event`` is the call (``Event``) of a division that standardised a table: its result, labelled ``result``, is
    the table labelled ``data`` minus a statistic of its own rows, divided by another one.

    ``by`` are the calls that computed these statistics.
    """

    event: Event
    result: str
    data: str
    by: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class OwnStatistic:
    """A network was trained with the data ``learned`` and evaluated with ``measured``, each scaled by its own
    statistics; both are :class:`ScaledByOwnStatistics`.

    ``used`` is the call (``Event``) of the layer that was given ``measured``.
    """

    learned: ScaledByOwnStatistics
    measured: ScaledByOwnStatistics
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that scales, by its own statistics, data for evaluating a network that was
    trained with other data.

    Only if all scaled training data came from one such scaling, by statistics of its own, and an optimizer stepped.
    """
    scaled = [found for event in story.calls("div", "div_") if (found := _scaled(story, event)) is not None]
    if len(scaled) > 1 and story.trace.optimizer_steps:
        learned: dict[str, list[tuple[ScaledByOwnStatistics, Event]]] = defaultdict(list)
        measured: dict[str, list[tuple[ScaledByOwnStatistics, Event]]] = defaultdict(list)
        for each in scaled:
            for weight, trained, event in _uses(story, each):
                (learned if trained else measured)[weight].append((each, event))
        told = set()
        for weight, uses in measured.items():
            sources = {each.result: each for each, _ in learned.get(weight, ())}
            others = [(each, event) for each, event in uses if each.result not in sources]
            place = story.span(others[0][0].event.step) if others else None
            if len(sources) == 1 and others and place not in told:
                told.add(place)
                yield _finding(story, OwnStatistic(next(iter(sources.values())), *others[0]))


def _scaled(story: Story, event: Event) -> ScaledByOwnStatistics | None:
    """How data was scaled, if the call divides data minus a statistic of its rows by such statistics; else None.

    The data must have two axes or more and at least ``FEWEST`` rows, and the result must require no grad.
    """
    if event.error is not None or len(event.operands) < 2 or event.operands[1].label is None or not event.results:
        return None
    sub = _maker(story, event.operands[0].label, event.step)
    if sub is None or sub.name not in ("sub", "sub_") or len(sub.operands) < 2:
        return None
    data = sub.operands[0].label
    rows = story.shape(data, sub.step) or ()
    first, second = (
        _statistics(story, sub.operands[1].label, sub.step, data),
        _statistics(story, event.operands[1].label, event.step, data),
    )
    if data is None or not first or not second or len(rows) < 2 or rows[0] < FEWEST:
        return None
    if (story.tensor(event.results[0], event.step) or {}).get("requires_grad"):
        return None
    by = {each.step: each for each in (*first, *second)}
    return ScaledByOwnStatistics(event, event.results[0], data, tuple(by[step] for step in sorted(by)))


def _maker(story: Story, label: str | None, step: int) -> Event | None:
    event = story.event((story.tensor(label, step) or {}).get("born"))
    return event if event is not None and label in event.results else None


def _statistics(story: Story, label: str | None, step: int, data: str | None) -> list[Event]:
    """The calls that computed a tensor from ``data``, if all of them are statistics over its rows and only calls of
    ``BETWEEN`` follow them; else empty.
    """
    found, pending = list[Event](), [(label, step)]
    for _ in range(UPWARD):
        if not pending:
            return found
        here, at = pending.pop()
        event = _maker(story, here, at)
        if event is None:
            return []
        if event.name in STATISTICS and event.operands[0].label == data and len(event.operands) > 0:
            if not _over_rows(event):
                return []
            found.append(event)
        elif event.name in BETWEEN:
            pending += [(o.label, event.step) for o in event.operands if o.label is not None]
        else:
            return []
    return []


def _over_rows(event: Event) -> bool:
    """Whether a statistic is computed over the first axis, or over all axes."""
    axes = next((o.text for o in event.operands[1:] if o.name in ("dim", "axis", "") and o.label is None), "")
    return axes.strip("()[], ") in ("", "0", "None") or axes.strip("([ ").startswith("0,")


def _uses(story: Story, scaled: ScaledByOwnStatistics) -> Iterator[tuple[str, bool, Event]]:
    """Yield the uses of the scaled data, or of parts of it, by a layer: the layer's weight, whether the use was part of
    the training, and the call.

    The first use of each weight in training and outside; what requires grad is not followed.
    """
    reached, pending = {scaled.result}, [scaled.result]
    told = set()
    while pending and len(reached) < LIMIT:
        for use in story.uses(pending.pop()):
            if use.step <= scaled.event.step or use.error is not None:
                continue
            weights = [o.label for o in use.operands if o.label in story.leaves]
            if use.name in LAYERS and weights and use.results:
                recorded = (story.tensor(use.results[0], use.step) or {}).get("grad_fn")
                trained = (story.record("nodes", recorded) or {}).get("ran") is not None if recorded else False
                if (weights[0], trained) not in told:
                    told.add((weights[0], trained))
                    yield weights[0], trained, use
                continue
            for result in use.results:
                if result not in reached and not (story.tensor(result, use.step) or {}).get("requires_grad"):
                    reached.add(result)
                    pending.append(result)


def _finding(story: Story, found: OwnStatistic) -> Finding:
    here, there = found.measured, found.learned
    line, other = at_line(story, story.span(here.event.step)), at_line(story, story.span(there.event.step))
    name, learned = expression(story, here.data, here.event.step), expression(story, there.data, there.event.step)
    same = line == other
    shown = [_numbers(story, each.by[0]) for each in (here, there)]
    used = at_line(story, story.span(found.used.step))
    return RULE.finding(
        story.span(here.event.step),
        here.event.step,
        T(
            en=f"{capital(line.en)} scales {name.en} by its own statistics, and {used.en} gives it to a network that "
            f"learned from data scaled by {'those of ' + learned.en if not same else 'other ones'}.",
            zh=f"{line.zh}用 {name.zh} 自己的统计量来缩放它，而{used.zh}把它交给一个网络，这个网络学习所用的数据是按"
            f"{learned.zh + ' 的' if not same else '另外的'}统计量缩放的。",
        ),
        T(
            en=f"One number means two things now: the shift was {shown[0]} here and {shown[1]} on {other.en}. "
            "What differs between the two sets, which is what a measurement is to show, is scaled away, and a "
            "single example could not be scaled at all. Compute the statistics from the training data once, and "
            "use them for everything.",
            zh=f"现在同一个数有了两种含义：这里减去的是 {shown[0]}，而{other.zh}减去的是 {shown[1]}。两组数据"
            "之间的差别（这正是测量要显示的）被缩放掉了，而单个样本根本无法这样缩放。请从训练数据计算一次统计"
            "量，并用于所有数据。",
        ),
        related=[
            story.related(
                "made", there.event.step, T(en="the data that the network learned from", zh="网络学习所用的数据")
            ),
            story.related("used", found.used.step, T(en="the network is measured here", zh="网络在这里被测量")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("weight", found.used.operands[1].label, story.by(found.used.step))],
    )


def _numbers(story: Story, statistic: Event) -> str:
    """The known values of a statistic, as text."""
    storage = (story.tensor(statistic.results[0], statistic.step) or {}).get("storage")
    return numbers((story.record("storages", storage, statistic.step) or {}).get("cells"))


def _fixes(story: Story, found: OwnStatistic) -> tuple[Fix, ...]:
    """Fixes that name the statistics of the training data and use them on both lines.

    Empty unless each statistic is a call on its line and the two lines have as many.
    """
    program = story.program
    first, second = (program.statement_at(story.span(each.event.step)) for each in (found.learned, found.measured))
    pairs = [
        (program.at(story.span(a.step)), program.at(story.span(b.step)))
        for a, b in zip(found.learned.by, found.measured.by, strict=False)
    ]
    if first is None or second is None or first is second or len(found.learned.by) != len(found.measured.by):
        return ()
    taken = reads(program, program.tree) if program.tree is not None else set()
    lines, here, there = [], [], []
    for (one, other), event in zip(pairs, found.learned.by, strict=True):
        inside = (
            isinstance(one, ast.Call)
            and isinstance(other, ast.Call)
            and program.statement(one) is first
            and program.statement(other) is second
        )
        name = next(
            (name for name in (event.name, f"train_{event.name}", f"{event.name}_of_training") if name not in taken),
            None,
        )
        if not inside or one is None or other is None or name is None:
            return ()
        taken.add(name)
        lines.append(f"{name} = {program.segment(one)}")
        here.append((one, name))
        there.append((other, name))
    text = program.replace(*here)
    before = program.insert_before(first, *lines)
    joined: tuple[Edit, ...] | None = None
    if len(text) == len(before) == 1 and program.stands_alone(first):
        indent = program.indent(first)
        whole = Edit(text[0].line, text[0].end_line, "".join(f"{indent}{line}\n" for line in lines) + text[0].text)
        joined = merge((whole,), program.replace(*there))
    title = T(en=f"Use the training data's: `{'; '.join(lines)}`", zh=f"使用训练数据的统计量：`{'; '.join(lines)}`")
    return unique(program.text, [Fix(title, joined, meaning="later")]) if joined is not None else ()


RULE = Rule(
    code="PL944",
    name="scaled-by-own-statistics",
    severity="warning",
    title=T(
        en="Test data was standardised by its own mean and deviation", zh="测试数据按它自己的均值和标准差做了标准化"
    ),
    what=T(
        en="A program standardises the training data by its mean and deviation, and the test data by the test data's "
        "own. The same number then means different things in both, and the measurement is about a network that sees "
        "other data than it would in use. Keep the mean and the deviation of the training data, and use them for both.",
        zh="程序用训练数据的均值和标准差来标准化训练数据，却用测试数据自己的来标准化测试数据。于是同一个数在两者中含义"
        "不同，测量所针对的网络看到的也不是实际使用时的数据。请保留训练数据的均值和标准差，两者都用它们。",
    ),
    why=T(
        en="A network learns a function of its inputs as they are given to it. Shift and scale belong to that "
        "function: they must be fixed with the weights and saved with them. Statistics of the test set depend on "
        "which examples happen to be in it, tell the network something about all of them, and remove a difference in "
        "level between the two sets that would otherwise show. Batch normalisation works like this for the same "
        "reason: it measures in training and uses what it kept in evaluation.",
        zh="网络学到的是关于它所得到的输入的函数。平移与缩放属于这个函数：它们必须与权重一起固定，一起保存。测试集的统"
        "计量取决于里面恰好有哪些样本，向网络透露了全部样本的信息，还会抹去两组数据之间本应显现的水平差别。批归一化也"
        "是因此这样工作：训练时测量，评估时使用保存下来的值。",
    ),
    bad="""import torch

torch.manual_seed(0)
train, test = torch.randn(6, 2) * 2 + 1, torch.randn(4, 2) * 2 + 5
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = (train - train.mean(0)) / train.std(0)  # made
x_test = (test - test.mean(0)) / test.std(0)  # PL944
for _ in range(3):
    loss = (net(x) - train.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print((net(x_test) - test.sum(1, keepdim=True)).square().mean())  # used
""",
    good="""import torch

torch.manual_seed(0)
train, test = torch.randn(6, 2) * 2 + 1, torch.randn(4, 2) * 2 + 5
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
mean = train.mean(0)
std = train.std(0)
x = (train - mean) / std
x_test = (test - mean) / std
for _ in range(3):
    loss = (net(x) - train.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print((net(x_test) - test.sum(1, keepdim=True)).square().mean())
""",
    find=find,
    traps=(
        Trap(
            "test.mean(0)) / test.std(0)",
            "test.mean(0)) / (test.std(0) + 1e-8)",
            T(
                en="A small number guards against division by zero; the statistics are still the test data's.",
                zh="很小的数只防止除以零；统计量仍是测试数据的。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html",),
)
