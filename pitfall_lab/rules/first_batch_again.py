"""PL962: each step of a training starts a new pass over the data and takes the same first batch, so that the rest is
never used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.batches import Batch, loaded, loaders, shuffled
from pitfall_lab.trace import Span, T

ROUNDS = 3


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that starts a new pass over a loader in each step, and trains with the same rows
    each time.

    Only if the loader has more examples than these rows, after at least ``ROUNDS`` passes and optimizer steps.
    """
    updates = [update.step for update in story.trace.optimizer_steps]
    places: dict[Span | None, list[Batch]] = defaultdict(list)
    for each in loaded(story) if len(updates) >= ROUNDS else ():
        places[each.event.span].append(each)
    told = set()
    for span, batches in places.items():
        first = batches[0]
        passes = list({each.began.step: each.began for each in batches if each.began is not None}.values())
        same = [each for each in batches if each.storage == first.storage]
        examples = passes[0].examples or 0
        if len(passes) < ROUNDS or len(same) < ROUNDS or examples <= len(first.rows) or span in told:
            continue
        between = sum(any(a.event.step < step < b.event.step for step in updates) for a, b in pairwise(same))
        if {each.rows for each in same} == {first.rows} and between >= ROUNDS - 1 and _is_learned(story, first):
            told.add(span)
            yield _finding(story, first, examples)


def _is_learned(story: Story, first: Batch) -> bool:
    """Whether a call before the next backward computes a result that requires grad from the batch."""
    reached, backward = (
        set(first.event.results),
        next((b.step for b in story.backwards() if b.step > first.event.step), 0),
    )
    for event in story.events[first.event.step + 1 : backward]:
        if event.kind == "call" and any(o.label in reached for o in event.operands):
            if any((story.tensor(result, event.step) or {}).get("requires_grad") for result in event.results):
                return True
            reached.update(event.results)
    return False


def _finding(story: Story, first: Batch, examples: int) -> Finding:
    span, here = first.event.span, at_line(story, first.event.span)
    program, count = story.program, len(first.rows)
    fixes = [shuffled(story, call) for call in loaders(story)] if program.tree is not None else []
    return RULE.finding(
        span,
        first.event.step,
        T(
            en=f"{capital(here.en)} begins to read the data anew in each step and takes the same {count} examples: "
            f"the other {examples - count} of {examples} are never used.",
            zh=f"{here.zh}每一步都重新开始读取数据，总取到同样的 {count} 个样本：共 {examples} 个，其余 "
            f"{examples - count} 个从未用到。",
        ),
        T(
            en="An iterator begins at the first batch, and this line makes a new one in each step. The loader keeps "
            "the order of the data, so its first batch is always the same one. Iterate over the loader itself, or let "
            "it draw a new order.",
            zh="迭代器从第一批开始，而这一行每一步都生成一个新的迭代器。加载器保持数据的顺序，所以第一批总是同一批。请"
            "对加载器本身做循环，或让它每次抽取新的次序。",
        ),
        fixes=unique(program.text, fixes),
        facts=[Fact("rows", count, story.by(first.event.step)), Fact("examples", examples, story.by(first.event.step))],
    )


RULE = Rule(
    code="PL962",
    name="first-batch-again",
    severity="warning",
    title=T(en="Each step of a training takes the same first batch", zh="训练的每一步都取同样的第一批"),
    what=T(
        en="A program writes `next(iter(loader))` in each step. That begins from the front each time, so the "
        "network sees the first batch again and again and no other example. Write `for inputs, labels in "
        "loader:`, or let the loader shuffle.",
        zh="程序在每一步写 `next(iter(loader))`。这样每次都从头开始，网络一再看到第一批，而看不到别的样本。请写 `for "
        "inputs, labels in loader:`，或让加载器打乱次序。",
    ),
    why=T(
        en="A `DataLoader` has no position of its own: `iter(loader)` makes an object that has one, and it is dropped "
        "at the end of the line. Without `shuffle=True` its first batch is made of the first examples. The loss "
        "falls, as it does when one batch is learned by heart, and nothing is raised.",
        zh="`DataLoader` 自己没有位置：`iter(loader)` 生成一个有位置的对象，而它在这一行结束时就被丢弃。没有 "
        "`shuffle=True` 时，第一批由最前面的样本组成。损失会下降，正如把一批数据背下来那样，也不会报错。",
    ),
    advice=T(
        en="iterate over the loader on {line}, `for batch in loader:`, or make it with `shuffle=True`.",
        zh="在{line}直接对加载器循环 `for batch in loader:`，或用 `shuffle=True` 创建它。",
    ),
    bad="""import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(12, 3)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    inputs, wanted = next(iter(loader))  # PL962
    loss = torch.nn.functional.mse_loss(net(inputs), wanted)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(inputs[0], loss.item())
""",
    good="""import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(12, 3)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    inputs, wanted = next(iter(loader))
    loss = torch.nn.functional.mse_loss(net(inputs), wanted)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(inputs[0], loss.item())
""",
    find=find,
    traps=(
        Trap(
            "batch_size=4",
            "batch_size=6",
            T(
                en="A larger batch has more examples, and it is the same one in each step.",
                zh="批大一些，样本就多一些，但每一步仍是同一批。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html",),
)
