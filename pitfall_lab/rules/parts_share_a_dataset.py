"""PL738: an attribute of a data set was set through one part of a random split, and the other
parts read the same data set.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, flat_targets
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, Span, T


@dataclass(frozen=True, slots=True)
class PartsShareADataset:
    """The statement ``statement`` sets the attribute named ``attribute`` of the data set of ``part``, which shares it
    with ``others``.

    ``part`` and ``others`` are the program's expressions for the parts of one ``random_split``. ``place`` is the place
    of this call in the source, ``step`` the step of its first event or, where the split was not recorded, of an event
    on a later line of the same function.
    """

    place: Span
    step: int
    part: str
    others: tuple[str, ...]
    attribute: str
    statement: ast.Assign


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``random_split`` that ran and an attribute of whose data set is set through one part
    (``part.dataset.x = …``), unless all parts are given the same value.

    Not where a loop sets it through several parts, or a part gets a data set of its own.
    """
    for node in story.program.nodes:
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(call, ast.Call) or called(call) != "random_split":
            continue
        ran = _ran(story, call)
        parts = [story.program.segment(each) for each in flat_targets(node.targets[0])]
        found = _shared(story.program, ran, call, parts) if ran is not None and len(parts) > 1 else None
        if found is not None:
            yield _finding(story, found)


def _ran(story: Story, call: ast.Call) -> Event | None:
    """An event of the split itself, or else the first one of its function on a later line; None if there is none.

    After a long loop the split itself may not have been recorded.
    """
    within = story.within(call)
    if within:
        return within[0]
    program, function = story.program, story.program.function(call)
    for event in story.calls():
        after = event.span is not None and event.span.source == 0 and event.span.line > (call.end_lineno or call.lineno)
        if (
            after
            and (statement := program.statement_at(event.span)) is not None
            and program.function(statement) is function
        ):
            return event
    return None


def _shared(program: Program, split: Event, call: ast.Call, parts: list[str]) -> PartsShareADataset | None:
    """The data of the finding for the first attribute that is set through one part, but not, or not
    to the same, through another.

    None if there is none. An attribute is left out if a loop sets it through several parts, or if a
    part's ``dataset`` is assigned.
    """
    given: dict[str, list[tuple[str, ast.Assign]]] = {}
    for node in program.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if (
            isinstance(node, ast.Assign)
            and isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Attribute)
        ):
            part = program.segment(target.value.value)
            if target.value.attr == "dataset" and part in parts:
                given.setdefault(target.attr, []).append((part, node))
    replaced = [
        n
        for n in program.nodes
        if isinstance(n, ast.Attribute) and n.attr == "dataset" and isinstance(n.ctx, ast.Store)
    ]
    for attribute, places in given.items():
        values = {program.segment(node.value) for _, node in places}
        alike = {part for part, _ in places} == set(parts) and len(values) == 1
        around = [a for _, node in places for a in program.ancestors(node)]
        switched = len({part for part, _ in places}) > 1 and any(
            isinstance(each, ast.For | ast.While) for each in around
        )
        if not alike and not switched and not any(program.segment(n.value) in parts for n in replaced):
            part, statement = places[0]
            return PartsShareADataset(
                program.place(call),
                split.step,
                part,
                tuple(each for each in parts if each != part),
                attribute,
                statement,
            )
    return None


def _finding(story: Story, found: PartsShareADataset) -> Finding:
    span = story.program.place(found.statement)
    here, there = at_line(story, span), at_line(story, found.place)
    indices = T(en="split here: indices only", zh="在这里划分：只有索引")
    others = ", ".join(f"`{each}`" for each in found.others)
    return RULE.finding(
        span,
        found.step,
        T(
            en=f"{capital(here.en)} sets `{found.attribute}` of the data set of `{found.part}`, which is also that of "
            f"{others}, so it holds for all of them: {there.en} split indices only, and all parts read one data set.",
            zh=f"{here.zh}设置了 `{found.part}` 的数据集的 `{found.attribute}`，而它也是 {others} 的数据集，所以对"
            f"它们都生效：{there.zh}划分的只是索引，所有部分读的是同一个数据集。",
        ),
        T(
            en="`random_split` returns `Subset`s: a list of indices each, and a reference to the whole data set. What "
            "is set through one of them holds for all, and the last setting wins: augmented examples in the "
            "evaluation, or none in the training. Give each part a data set of its own.",
            zh="`random_split` 返回若干个 `Subset`：每个只有一个索引列表和对整个数据集的引用。通过其中一个设置"
            "的东西对所有部分都生效，而且以最后一次设置为准：评估时用上了增强的样本，或者训练时没有增强。请给"
            "每个部分一个自己的数据集。",
        ),
        related=[Related("made", found.place, found.step, indices)],
        fixes=_fixes(story.program, found),
        facts=[Fact("parts", 1 + len(found.others))],
    )


def _fixes(program: Program, found: PartsShareADataset) -> tuple[Fix, ...]:
    """At most one fix: it gives the part a shallow copy of the data set first, and imports ``copy`` if needed."""
    imported = any(
        isinstance(n, ast.Import) and any(a.name == "copy" and a.asname is None for a in n.names) for n in program.nodes
    )
    new = f"{found.part}.dataset = copy.copy({found.part}.dataset)"
    edits = program.insert_before(found.statement, new)
    first = next((n for n in program.nodes if isinstance(n, ast.Import | ast.ImportFrom)), None)
    if not imported and isinstance(first, ast.stmt):
        edits = merge(program.insert_before(first, "import copy"), edits) or ()
    title = T(
        en=f"Give `{found.part}` a data set of its own: `{new}`", zh=f"给 `{found.part}` 一个自己的数据集：`{new}`"
    )
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


RULE = Rule(
    code="PL738",
    name="parts-share-a-dataset",
    severity="warning",
    title=T(
        en="The parts of a split share the data set that was changed for one",
        zh="划分出的各部分共用那个只为其中一个修改过的数据集",
    ),
    what=T(
        en="A program splits its data into a part for training and one for evaluation, and changes how the first "
        "one is prepared. The change holds for the second one as well, since both read the same data. Give each "
        "part data of its own.",
        zh="程序把数据分成训练与评估两部分，然后改变前一部分的处理方式。这个改变对后一部分同样生效，因为两者读的是同一"
        "份数据。请给每个部分自己的数据。",
    ),
    why=T(
        en="`train, test = random_split(data, [80, 20])` copies nothing: `train.dataset is test.dataset is data`. "
        "So `train.dataset.transform = augment` sets an attribute of `data`. A shallow copy, `copy.copy(data)`, "
        "shares the tensors and has attributes of its own; or make two data sets with different transforms and "
        "give both the same indices.",
        zh="`train, test = random_split(data, [80, 20])` 什么也不复制：`train.dataset is test.dataset is data`。所以 "
        "`train.dataset.transform = augment` 设置的是 `data` 的属性。浅拷贝 `copy.copy(data)` 共用张量而有自己的属性；"
        "也可以用不同的变换建立两个数据集，再用同样的索引来取。",
    ),
    bad="""import torch
from torch.utils.data import Dataset, random_split

class Points(Dataset):
    def __init__(self):
        self.x, self.transform = torch.zeros(6), None
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return self.x[i] if self.transform is None else self.transform(self.x[i])

torch.manual_seed(0)
train, test = random_split(Points(), [4, 2])  # made
train.dataset.transform = lambda x: x + 1  # PL738
w = torch.ones(1, requires_grad=True)
loss = sum(w * x for x in train).sum()
loss.backward()
print(w.grad, [x.item() for x in test])
""",
    good="""import copy
import torch
from torch.utils.data import Dataset, random_split

class Points(Dataset):
    def __init__(self):
        self.x, self.transform = torch.zeros(6), None
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return self.x[i] if self.transform is None else self.transform(self.x[i])

torch.manual_seed(0)
train, test = random_split(Points(), [4, 2])
train.dataset = copy.copy(train.dataset)
train.dataset.transform = lambda x: x + 1
w = torch.ones(1, requires_grad=True)
loss = sum(w * x for x in train).sum()
loss.backward()
print(w.grad, [x.item() for x in test])
""",
    find=find,
    traps=(
        Trap(
            "train.dataset.transform = lambda x: x + 1",
            "train.dataset.transform = lambda x: x + 1\ntest.dataset.transform = None",
            T(
                en="The last setting wins for both: now the training is without it.",
                zh="最后一次设置对两者都生效：现在训练时也没有它了。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.random_split",),
)
