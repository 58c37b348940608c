"""PL955: examples that were changed at random are kept, and every later pass gives the network the same changes
again.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, Span, T

JOINS = ("stack", "cat")
DRAWS = {
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "rand_like", "randn_like",
    "randint_like", "uniform_", "normal_", "bernoulli_", "random_", "exponential_",
}  # fmt: skip
"""Calls that draw random numbers."""
TO_PYTHON = {"tolist", "item", "__int__", "__float__", "__index__", "__bool__"}
"""Calls that return Python numbers or lists."""
BETWEEN = {"lt", "gt", "le", "ge", "mul", "add", "sub", "round", "__getitem__", "long", "int", "unbind"}
"""Calls that may lie between a draw and the conversion of its number to Python."""
CHOOSING = {"__getitem__", "index_select", "take", "take_along_dim", "gather", "masked_select"}
FEWEST = 3
FURTHER, MOST = 40, 12


@dataclass(frozen=True, slots=True)
class AugmentationKept:
    """Examples that were changed at random are given to the network again, unchanged, in later batches.

    ``changed`` is the call (``Event``) that made one of them from stored data and from the random numbers of the call
    ``draw``; ``batch`` is the second call that put this tensor into a batch. ``count`` is how many examples are given
    again.
    """

    changed: Event
    draw: Event
    batch: Event
    count: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes examples from stored data and random numbers while batches are
    joined, where the same tensors are joined into batches again after an optimizer step.

    Only if at least ``FEWEST`` examples are given again.
    """
    updates = [each.step for each in story.trace.optimizer_steps]
    batches: dict[Span | None, list[Event]] = defaultdict(list)
    for event in story.calls(*JOINS) if updates else ():
        if event.error is None and len(event.operands) > 1 and _joins_rows(event):
            batches[event.span].append(event)
    told = set()
    for joined in batches.values():
        found = _kept(story, joined, updates)
        place = story.span(found.changed.step) if found is not None else None
        if found is not None and place not in told:
            told.add(place)
            yield _finding(story, found)


def _joins_rows(event: Event) -> bool:
    """Whether ``stack`` or ``cat`` joins along the first dimension; along another, it joins features of a batch."""
    return next((operand.text for operand in event.operands if operand.label is None), "0") == "0"


def _kept(story: Story, joined: list[Event], updates: list[int]) -> AugmentationKept | None:
    """Return the data of the finding for the batches that one line joined; None if fewer than ``FEWEST`` examples were
    joined again after an optimizer step, or none of them was made by a random draw.
    """
    given: dict[str, list[Event]] = defaultdict(list)
    for event in joined:
        for label in {o.label for o in event.operands if o.label is not None}:
            given[label].append(event)
    again = [
        label
        for label, events in given.items()
        if len(events) > 1 and any(events[0].step < update < events[-1].step for update in updates)
    ]
    lazily = [label for label in again if _born(story, label) > joined[0].step]
    if len(again) < FEWEST or not lazily:
        return None
    for label in lazily[:MOST]:
        found = _changed(story, label, joined[0].step)
        if found is not None:
            return AugmentationKept(*found, given[label][1], len(again))
    return None


def _born(story: Story, label: str) -> int:
    return int((story.tensor(label) or {}).get("born") or 0)


def _changed(story: Story, label: str, since: int) -> tuple[Event, Event] | None:
    """Return the call that first changed the example ``label`` after a random draw, and the draw it depends on; None if
    the example was not made from stored data, or no draw is found.

    Calls up to the step ``since`` are not followed: what they returned counts as stored data.
    """
    made, stored, calls, pending = None, False, list[Event](), [label]
    while pending and len(calls) < FURTHER:
        here = pending.pop()
        record = story.tensor(here) or {}
        event = story.event(record.get("born"))
        if event is None or event.kind != "call" or here not in event.results or event.step <= since:
            stored = stored or record.get("kind") != "parameter"
            continue
        if event in calls:
            continue
        calls.append(event)
        made = made or event
        pending += [o.label for o in event.operands if o.label is not None and o.label != here]
    if made is None or not stored:
        return None
    draw = next((each for each in calls if each.name in DRAWS), None)
    draw = draw or next((found for each in calls if (found := _number_drawn(story, each)) is not None), None)
    changed = next((each for each in calls if draw is not None and each.step > draw.step and not _chooses(each)), None)
    return (changed, draw) if draw is not None and changed is not None else None


def _chooses(event: Event) -> bool:
    """Whether a call takes elements by a tensor of indices or a mask: that chooses examples, and changes none."""
    return event.name in CHOOSING and any(operand.label is not None for operand in event.operands[1:])


def _number_drawn(story: Story, event: Event) -> Event | None:
    """Return the draw whose number was converted to Python shortly before the call ``event``, in the same run of the
    same function; None if there is none.
    """
    for step in range(event.step - 1, max(-1, event.step - MOST), -1):
        taken = story.events[step]
        if taken.scope != event.scope or taken.name not in TO_PYTHON or not taken.operands:
            continue
        label = taken.operands[0].label
        for _ in range(MOST):
            made = story.event((story.tensor(label) or {}).get("born"))
            if made is not None and made.name in DRAWS:
                return made
            if made is None or made.name not in BETWEEN or not made.operands:
                break
            label = made.operands[0].label
    return None


def _finding(story: Story, found: AugmentationKept) -> Finding:
    step = found.changed.step
    here, there, draw = (at_line(story, story.span(each)) for each in (step, found.batch.step, found.draw.step))
    by = T(en="by chance", zh="随机地") if draw == here else T(en=f"by the draw on {draw.en}", zh=f"按{draw.zh}的抽取")
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} changes an example {by.en}, but only once: the result is kept, and {there.en} "
            "gives the network the very same change again in later passes.",
            zh=f"{here.zh}{by.zh}改变一个样本，但只改变一次：结果被保存，而{there.zh}在之后各轮给网络的都是同一个改"
            "变。",
        ),
        T(
            en=f"Of the batches that were recorded, {found.count} examples came again after an update, each as the "
            "same tensor; nothing was drawn for them a second time. The network sees one version of each example, as "
            "if the data had only been moved a little once, and learns it by heart. Keep the example as it was "
            "stored, and change it after it was taken out, at every access.",
            zh=f"在记录下来的批中，有 {found.count} 个样本在更新之后再次出现，每次都是同一个张量；没有为它们再抽取一"
            "次。网络看到的是每个样本的一个版本，好像数据只被稍稍移动过一次，并把它背下来。请保存未改变的样本，在每次"
            "取出之后再改变它。",
        ),
        related=[
            story.related(
                "made", found.draw.step, T(en="drawn here, once for each example", zh="在这里抽取，每个样本一次")
            ),
            story.related("used", found.batch.step, T(en="given again here", zh="在这里再次给出")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("again", found.count, story.by(found.batch.step))],
    )


def _fixes(story: Story, found: AugmentationKept) -> tuple[Fix, ...]:
    """Fixes that store the example before it is changed, that compute it anew at each access, or that remove the
    decorator of a cache.
    """
    program = story.program
    node = program.at(story.span(found.changed.step)) if program.tree is not None else None
    function = program.function(node) if node is not None else None
    if node is None or function is None:
        return ()
    fixes = list[Fix | None]()
    anew = T(en="Make the example anew at each access", zh="每次访问都重新生成样本")
    around = [each for each in program.ancestors(node) if isinstance(each, ast.If)]
    for test in around:
        store = next((each for each in test.body if _stores(each)), None)
        if store is not None:
            fixes.append(_before(story, found, test, store))
            fixes.append(Fix(anew, program.replace((test.test, "True")), meaning="later"))
    for each in [function, *(n for n in program.nodes if isinstance(n, ast.FunctionDef) and n is not function)]:
        for decorator in each.decorator_list:
            if "cache" in program.segment(decorator):
                line = program.place(decorator)
                whole = Span(line.line, 0, line.line + 1, 0)
                fixes.append(Fix(anew, program.splice((whole, "")), meaning="later"))
    return unique(program.text, fixes)


def _stores(node: ast.stmt) -> bool:
    """Whether a statement puts a variable into a container: ``self.cache[i] = x``."""
    return (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) and isinstance(node.value, ast.Name)
    )


def _before(story: Story, found: AugmentationKept, test: ast.If, store: ast.stmt) -> Fix | None:
    """Return the fix that stores the example before the statement with the draw, and changes it after the ``if``; None
    if the ``if`` is written in another way.
    """
    program = story.program
    drawn = program.at(story.span(found.draw.step))
    body = test.body
    first = next((n for n, each in enumerate(body) if drawn is not None and drawn in ast.walk(each)), None)
    if first is None or not isinstance(store, ast.Assign) or not isinstance(store.value, ast.Name) or test.orelse:
        return None
    name, kept = store.value.id, program.segment(store.targets[0])
    moved = [each for each in body[first:] if each is not store]
    block = program.block(test)
    after = block[block.index(test) + 1 :]
    if not after or store not in body[first:]:
        return None
    inner, outer = program.indent(body[0]), program.indent(test)
    texts = [_at_depth(program.segment(each), inner, outer) for each in moved]
    start, end = program.place(body[first]), program.place(body[-1])
    lines = f"\n{outer}".join([f"{name} = {kept}", *texts])
    edits = program.splice(
        (Span(start.line, start.column, end.end_line, end.end_column), f"{program.segment(store)}\n{outer}{lines}")
    )
    reads: list[tuple[ast.AST, str]] = [
        (n, name)
        for each in after
        for n in ast.walk(each)
        if isinstance(n, ast.Subscript) and program.segment(n) == kept
    ]
    merged = merge(edits, program.replace(*reads)) if reads else edits
    title = T(en="Keep the example as it was, and change it at each access", zh="保存未改变的样本，每次访问时再改变它")
    return Fix(title, merged, meaning="later") if merged is not None else None


def _at_depth(text: str, inner: str, outer: str) -> str:
    """Return the source of a statement with the indentation ``inner`` of its later lines replaced by ``outer``."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(outer + line.removeprefix(inner) for line in rest)])


RULE = Rule(
    code="PL955",
    name="augmentation-kept",
    severity="warning",
    title=T(
        en="An example that was changed by chance is kept for all later passes", zh="随机改变过的样本被保存给之后各轮"
    ),
    what=T(
        en="A program moves, turns or blurs its examples by chance, so that the network never sees the same one twice, "
        "and keeps the changed example to save time. From the second pass on it only gets what was drawn in the first. "
        "Keep the example before it is changed, and change it at each access.",
        zh="程序随机地移动、翻转或模糊样本，为的是让网络不会两次看到同样的样本，却为了省时保存了改变之后的样本。从第"
        "二轮起，得到的只是第一轮抽取的结果。请保存改变之前的样本，每次访问时再改变它。",
    ),
    why=T(
        en="What `__getitem__` returns is an ordinary tensor: a dictionary, a list or `lru_cache` that keeps it "
        "keeps the numbers drawn for it. The loader asks for the example in every pass and gets the same object. "
        "Nothing is raised, and the training loss falls faster than with fresh changes, since there is less to learn.",
        zh="`__getitem__` 返回的是普通的张量：保存它的字典、列表或 `lru_cache` 也就保存了为它抽取的数。加载器每轮都来"
        "取这个样本，得到的是同一个对象。不会报错，训练损失还比每次重新改变时降得更快，因为要学的更少。",
    ),
    advice=T(
        en="keep what {line} starts from, and change it after it was taken out.",
        zh="请保存{line}所依据的样本，取出之后再改变它。",
    ),
    bad="""import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Shifted(Dataset):
    def __init__(self):
        self.x, self.kept = torch.randn(8, 5), {}

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i not in self.kept:
            row = self.x[i] * 2
            row = row + torch.randn(5)  # PL955 made
            self.kept[i] = row
        return self.kept[i]


net = torch.nn.Linear(5, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = Shifted()
for epoch in range(3):
    for rows in DataLoader(data, batch_size=2):  # used
        loss = net(rows).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
""",
    good="""import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Shifted(Dataset):
    def __init__(self):
        self.x, self.kept = torch.randn(8, 5), {}

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i not in self.kept:
            row = self.x[i] * 2
            self.kept[i] = row
        row = self.kept[i]
        row = row + torch.randn(5)
        return row


net = torch.nn.Linear(5, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = Shifted()
for epoch in range(3):
    for rows in DataLoader(data, batch_size=2):
        loss = net(rows).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "        return self.kept[i]",
            "        return self.kept[i].clone()",
            T(
                en="A copy of the kept example has the same numbers that were drawn for it once.",
                zh="保存的样本的拷贝里，还是当初为它抽取的那些数。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html#map-style-datasets",),
)
