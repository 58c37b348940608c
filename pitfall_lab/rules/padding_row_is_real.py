"""PL986: the row of an embedding that is for padding belongs to a real example, and is never trained."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

MASKING = spellings("eq", "ge", "gt", "ne") | {"bool", "count_nonzero", "nonzero", "sign"}
"""Calls that test which positions are padding."""
MARKING = (
    spellings("clamp") | spellings("index_fill", "masked_fill", "mul", "scatter", in_place=True)
    | {"__setitem__", "arange", "nan_to_num", "pad", "pad_sequence", "where"}
)  # fmt: skip
"""Calls that make, or mark, numbers of rows: zero may mean padding there."""
ROUNDS, FEWEST, OFTEN, MOST_LOOKUPS, FURTHER = 2, 20, 3, 3, 30


@dataclass(frozen=True, slots=True)
class Untrained:
    """The row ``padding`` (``padding_idx``) of the embedding table ``weight`` (a label), which is never trained, was
    looked up in training about as often as the other rows.

    ``lookups`` are the calls (``Event``) that looked rows up for the training. Of the ``known`` numbers that they
    looked up, ``count`` were ``padding``.
    """

    lookups: list[Event]
    weight: str
    padding: int
    count: int
    known: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each embedding table, held by an optimizer, whose row for padding (``padding_idx``) is
    looked up, by one number for each example, about as often as its other rows.

    Not where the program marks or leaves out the padding, or uses the table for sequences too.
    """
    updates = story.trace.optimizer_steps
    held = {label for update in updates for label in update.holds}
    tables: dict[str, list[Event]] = defaultdict(list)
    for event in story.calls("embedding") if updates else ():
        if len(event.operands) > 1 and event.operands[1].label in held and event.error is None:
            tables[str(event.operands[1].label)].append(event)
    for weight, lookups in tables.items():
        padding = whole(argument(lookups[0], "padding_idx", 2))
        rows = (story.shape(weight, lookups[0].step) or (0,))[0]
        if padding is None or any(len(story.shape(e.operands[0].label, e.step) or ()) != 1 for e in lookups):
            continue
        padding %= max(rows, 1)
        trained = [e for e in lookups if (story.tensor(e.results[0], e.step) or {}).get("requires_grad")]
        found = _counted(story, weight, padding, trained)
        if found is None or any(_is_meant(story, event) for event in trained):
            continue
        if _between_updates(story, weight, trained) <= MOST_LOOKUPS:
            yield _finding(story, found)


def _counted(story: Story, weight: str, padding: int, lookups: list[Event]) -> Untrained | None:
    """The data of the finding if, among the known numbers that were looked up, the padding is at least half as frequent
    as the other rows are on average; else None.

    None if too few numbers are known, or if the padding is among those of fewer than ``ROUNDS`` look-ups.
    """
    counts, rounds = defaultdict[int, int](int), 0
    for event in lookups:
        known = [int(value) for _, value in Elements(story, event.operands[0].label, event.step).known()]
        rounds += padding in known
        for value in known:
            counts[value] += 1
    own, total = counts[padding], sum(counts.values())
    others = [count for value, count in counts.items() if value != padding]
    if rounds < ROUNDS or own < OFTEN or total < FEWEST or len(others) < ROUNDS:
        return None
    return Untrained(lookups, weight, padding, own, total) if 2 * own * len(others) >= sum(others) else None


def _between_updates(story: Story, weight: str, lookups: list[Event]) -> int:
    """The largest number of look-ups before or between recorded updates of the table: it is large in a network that
    looks up a vector in each time step.
    """
    steps = [update.step for update in story.trace.optimizer_steps if weight in update.holds]
    counts = defaultdict[int, int](int)
    for event in lookups:
        counts[sum(step < event.step for step in steps)] += 1
    counts.pop(len(steps), None)  # after the last recorded one
    return max(counts.values(), default=0)


def _is_meant(story: Story, event: Event) -> bool:
    """Whether the numbers that are looked up come from sequences, were marked as padding, or are compared with it."""
    label, step = event.operands[0].label, event.step
    for _ in range(FURTHER):
        record = story.tensor(label, step) or {}
        if any(use.name in MASKING for use in story.uses(label)):
            return True
        made = story.event(record.get("born"))
        begun = made.step if made is not None else -1
        writes = [story.event(at) for at in story.writes(str(record.get("storage")), begun, step)]
        if any(write is not None and write.name in MARKING for write in writes):
            return True
        if made is None or label not in made.results:
            return False
        if made.name in MARKING:
            return True
        source = next((o.label for o in made.operands if o.label is not None), None)
        if made.name not in SAME_NUMBERS or source is None:
            return False
        before, after = story.shape(source, made.step) or (), story.shape(label, made.step) or ()
        wide = len(before) > 1 and min(before) > 1
        if wide and ((len(after) == 1 and after[0] != before[0]) or _steps_of(story, source) > 1):
            return True  # flattened, or one step after another of sequences
        label, step = source, made.step
    return False


def _steps_of(story: Story, source: str) -> int:
    """The most columns of ``source`` looked up in one embedding table: more than one are sequence steps."""
    tables = defaultdict[str, set[int]](set)
    for use in story.uses(source):
        for result in use.results:
            for later in story.uses(result):
                if later.name == "embedding" and len(later.operands) > 1:
                    offset = (story.tensor(result, later.step) or {}).get("offset") or 0
                    tables[str(later.operands[1].label)].add(offset)
    return max((len(offsets) for offsets in tables.values()), default=0)


def _finding(story: Story, found: Untrained) -> Finding:
    first = found.lookups[0]
    span = story.span(first.step)
    here = at_line(story, span)
    table = called(story, found.weight, None, first.step)
    return RULE.finding(
        span,
        first.step,
        T(
            en=f"{capital(here.en)} looks up row {found.padding} of {table.en} for examples like any other, "
            f"{found.count} of the {found.known} times that are known; as `padding_idx` it never learns.",
            zh=f"{here.zh}像查其他行一样为样本查 {table.zh} 的第 {found.padding} 行，已知的 {found.known} 次中有 "
            f"{found.count} 次；而它是 `padding_idx`，永远学不到东西。",
        ),
        T(
            en=f"`padding_idx={found.padding}` makes this row 0 and gives it no gradient. That is meant for places in "
            "sequences at which there is nothing. Here each example looks up one row, so nothing needs to be filled "
            "up, and the examples with this number are the only ones for which nothing is learned.",
            zh=f"`padding_idx={found.padding}` 把这一行设为 0，并且不给它梯度。这是为序列中没有内容的位置准备的。这里每"
            "个样本只查一行，没有什么需要填充，于是恰好是带这个编号的样本什么也学不到。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("row", found.padding, story.by(first.step)), Fact("times", found.count, story.by(first.step))],
    )


def _fixes(story: Story, found: Untrained) -> tuple[Fix, ...]:
    """A fix that leaves ``padding_idx`` out where the table is made; empty if the program's source does not show that
    place.
    """
    program = story.program
    made = [
        node
        for node in program.nodes
        if isinstance(node, ast.Call)
        and call_name(node) == "Embedding"
        and any(word.arg == "padding_idx" for word in node.keywords)
    ]
    name = (story.name(found.weight, found.lookups[0].step) or "").removesuffix(".weight").split(".")[-1]
    own = [node for node in made if name and name in _targets(program.statement(node))]
    fixes = list[Fix]()
    for node in own or made:
        place = next(number for number, word in enumerate(node.keywords) if word.arg == "padding_idx")
        before = [*node.args, *(word.value for word in node.keywords[:place])]
        if not before or len(own or made) > 1:
            continue
        kept = [program.segment(each) for each in node.args]
        kept += [f"{w.arg}={program.segment(w.value)}" for w in node.keywords if w.arg not in (None, "padding_idx")]
        new = f"{program.segment(node.func)}({', '.join(kept)})"
        title = T(en=f"Leave out `padding_idx`: `{new}`", zh=f"去掉 `padding_idx`：`{new}`")
        if all(word.arg is not None for word in node.keywords):
            fixes.append(Fix(title, program.replace((node, new)), meaning="later"))
    return unique(program.text, fixes)


def _targets(statement: ast.stmt | None) -> set[str]:
    """The names and attributes that a statement assigns."""
    targets = [n for t in statement.targets for n in ast.walk(t)] if isinstance(statement, ast.Assign) else []
    return {
        n.attr if isinstance(n, ast.Attribute) else n.id for n in targets if isinstance(n, ast.Attribute | ast.Name)
    }


RULE = Rule(
    code="PL986",
    name="padding-row-is-real",
    severity="warning",
    title=T(en="The embedding's row for padding belongs to real examples", zh="嵌入中用于填充的行属于真实的样本"),
    what=T(
        en="A program gives each thing a vector to learn, by its number, and names one number as padding. But that "
        "number is a thing like the others, so its vector stays 0 for good. Leave `padding_idx` out, or count the "
        "things from 1.",
        zh="程序按编号给每样东西一个要学习的向量，并把其中一个编号指定为填充。但这个编号和其他的一样代表一样东西，于是"
        "它的向量永远是 0。请去掉 `padding_idx`，或从 1 开始编号。",
    ),
    why=T(
        en="`nn.Embedding(n, size, padding_idx=0)` writes zeros into row 0 and gives it no gradient, so that padding "
        "at the end of short sequences adds nothing. It does not shift the other numbers: categories from `0` to "
        "`n - 1` still include 0. The loss falls for all the others, so the one thing that is always predicted badly "
        "hardly shows.",
        zh="`nn.Embedding(n, size, padding_idx=0)` 把第 0 行写成零，并且不给它梯度，这样短序列末尾的填充不起作用。它不"
        "会移动其他编号：从 `0` 到 `n - 1` 的类别仍然包括 0。其余各样东西的损失都在下降，所以总是预测不好的那一个几乎"
        "看不出来。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
shop = nn.Embedding(5, 1, padding_idx=0)
opt = torch.optim.SGD(shop.parameters(), lr=0.5)
for _ in range(8):
    which = torch.randint(0, 5, (12,))
    sales = 1.0 + which
    loss = (shop(which).squeeze(1) - sales).square().mean()  # PL986
    opt.zero_grad()
    loss.backward()
    opt.step()
print(shop.weight.squeeze(1))
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
shop = nn.Embedding(5, 1)
opt = torch.optim.SGD(shop.parameters(), lr=0.5)
for _ in range(8):
    which = torch.randint(0, 5, (12,))
    sales = 1.0 + which
    loss = (shop(which).squeeze(1) - sales).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(shop.weight.squeeze(1))
""",
    find=find,
    traps=(
        Trap(
            "padding_idx=0",
            "padding_idx=4",
            T(
                en="Then another real row is the one that never learns.",
                zh="那样只是换成另一个真实的行学不到东西。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",),
)
