"""PL934: a training reads its examples in the order of their classes: each batch has one class,
and then comes the next one.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import origin
from pitfall_lab.trace import DataPass, Event, T

LOSSES = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
"""Losses of class numbers, or of truth values."""
MADE = {"ones", "zeros", "full", "ones_like", "zeros_like", "full_like", "empty", "new_zeros", "new_ones", "fill_",
        "arange", "new_full", "rand", "randint", "argmax", "sample", "multinomial", "bernoulli"}  # fmt: skip
"""Targets that a call of the program makes, and not a set of data: a GAN's real and fake, an action."""
FEWEST_BATCHES = 3
FEWEST_LABELS = 4
SAMPLERS = {"sampler", "batch_sampler"}


@dataclass(frozen=True, slots=True)
class OneClassAfterAnother:
    """``losses`` are the calls (``Event``) of one line with a loss, one for each batch, in order.

    ``classes`` are, for each batch whose labels are known, the class of its first and that of its last example; for
    most batches these two are equal.
    """

    losses: list[Event]
    classes: list[tuple[float, float]]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a loss whose batches come class by class, in later passes, if there are any,
    in the same order, with a step of the optimizer between each two of the first ``FEWEST_BATCHES``.

    Only if at least as many batches have a single class.
    """
    places: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls(*LOSSES) if story.trace.optimizer_steps else ():
        if (
            event.error is None
            and len(event.operands) > 1
            and (story.tensor(event.results[0], event.step) or {}).get("requires_grad")
        ):
            places[story.span(event.step)].append(event)
    for losses in places.values():
        found = _sorted(story, losses) if len(losses) >= FEWEST_BATCHES and _steps_between(story, losses) else None
        if found is not None:
            yield _finding(story, found)


def _steps_between(story: Story, losses: list[Event]) -> bool:
    """Whether an optimizer makes a step between the first batches, so that each class changes the
    weights before the next one comes.
    """
    steps = [each.step for each in story.trace.optimizer_steps]
    return all(any(one.step < step <= other.step for step in steps) for one, other in pairwise(losses[:FEWEST_BATCHES]))


def _sorted(story: Story, losses: list[Event]) -> OneClassAfterAnother | None:
    if any(_is_made(story, loss, MADE) for loss in losses):
        return None
    batches = [_labels(story, loss) for loss in losses]
    batches = [batch for batch in batches if len(batch) >= FEWEST_LABELS]
    pure = [batch for batch in batches if len(set(batch)) == 1]
    if len(pure) < FEWEST_BATCHES or len({batch[0] for batch in pure}) < 2:
        return None
    runs = [label for label, _ in groupby(label for batch in batches for label in batch)]
    kinds, first = len(set(runs)), runs[: len(set(runs))]
    written = any(_is_made(story, loss, {"tensor"}) for loss in losses)
    if written and not any(len(set(one)) == 1 and set(one) == set(other) for one, other in pairwise(batches)):
        return None  # two kinds in turn, as real and fake
    again = all(label == first[number % kinds] for number, label in enumerate(runs))
    return (
        OneClassAfterAnother(losses, [(batch[0], batch[-1]) for batch in batches])
        if again and len(set(first)) == kinds
        else None
    )


def _labels(story: Story, loss: Event) -> list[float]:
    label = loss.operands[1].label
    shape = story.shape(label, loss.step) or ()
    if len([n for n in shape if n > 1]) != 1:
        return []
    return [value for _, value in sorted(Elements(story, label, loss.step).known()) if value % 1 == 0]


def _is_made(story: Story, loss: Event, makers: set[str]) -> bool:
    """Whether one of the calls ``makers`` made the targets of a loss, and these are all that it made."""
    label = loss.operands[1].label
    made = origin(story, label, loss.step)
    return (
        made is not None
        and made.name in makers
        and story.shape(made.results[0], made.step) == story.shape(label, loss.step)
    )


def _finding(story: Story, found: OneClassAfterAnother) -> Finding:
    loss = found.losses[0]
    here, target = at_line(story, story.span(loss.step)), expression(story, loss.operands[1].label, loss.step)
    shown = ", ".join(f"{a:g}" if a == b else f"{a:g} and {b:g}" for a, b in found.classes[:5])
    given = _pass(story, loss)
    return RULE.finding(
        story.span(loss.step),
        loss.step,
        T(
            en=f"{capital(here.en)} learns one class after another: the targets {target.en} of its batches, as far as "
            f"they are known, are {shown}.",
            zh=f"{here.zh}一个类别接一个类别地学习：就已知的部分看，各批次的目标 {target.zh} 依次是 {shown}。",
        ),
        T(
            en="The examples are in the order of their classes, and nothing shuffles them. Each step moves the "
            "weights towards the one class of its batch, and what was learned of the others is forgotten; the loss "
            "within a batch looks fine. Shuffle the examples before they are cut into batches, anew in each round.",
            zh="样本按类别排序，而没有任何东西打乱它们。每一步都把权重推向该批次唯一的类别，其他类别学到的东西被忘掉；"
            "单看一个批次，损失却很好看。请在切成批次之前打乱样本，每一轮重新打乱。",
        ),
        related=[Related("used", given.span, given.step, T(en="the batches come from here", zh="批次来自这里"))]
        if given
        else [],
        fixes=_fixes(story) if given is not None else _permuted(story, loss),
        facts=[Fact("classes", shown, story.by(loss.step))],
    )


def _pass(story: Story, loss: Event) -> DataPass | None:
    """The last pass over a ``DataLoader`` that began before the loss; None if there is none."""
    return next((each for each in reversed(story.trace.beside.passes) if each.step <= loss.step), None)


def _fixes(story: Story) -> tuple[Fix, ...]:
    program, title = story.program, T(en="Shuffle: `shuffle=True`", zh="打乱顺序：`shuffle=True`")
    fixes = []
    for call in program.nodes if program.tree is not None else ():
        if (
            not isinstance(call, ast.Call)
            or call_name(call) != "DataLoader"
            or any(k.arg in SAMPLERS for k in call.keywords)
        ):
            continue
        said = next((k for k in call.keywords if k.arg == "shuffle"), None)
        if said is not None:
            fixes.append(Fix(title, program.replace((said.value, "True")), meaning="later"))
        else:
            text = program.segment(call)[:-1].rstrip().rstrip(",")
            fixes.append(Fix(title, program.replace((call, f"{text}, shuffle=True)")), meaning="later"))
    return unique(program.text, fixes)


def _permuted(story: Story, loss: Event) -> tuple[Fix, ...]:
    """Fixes that put the tensors from which a loop takes batches into one random order, before the outermost loop.

    Empty if the targets are not taken from a plain name by an index in a loop.
    """
    program, torch = story.program, torch_name(story.program)
    label = loss.operands[1].label
    cut = story.event((story.tensor(label, loss.step) or {}).get("born"))
    while cut is not None and cut.name != "__getitem__" and cut.operands and cut.operands[0].label is not None:
        cut = story.event((story.tensor(cut.operands[0].label, cut.step) or {}).get("born"))
    node = program.at(story.span(cut.step)) if cut is not None and program.tree is not None else None
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or torch is None:
        return ()
    loops = [n for n in program.ancestors(node) if isinstance(n, ast.For | ast.While)]
    if not loops:
        return ()
    taken = {n.id for n in program.nodes if isinstance(n, ast.Name)}
    name = next((each for each in ("order", "shuffled", "permutation") if each not in taken), None)
    if name is None:
        return ()
    index = program.segment(node.slice)
    tables = [n.value.id for n in ast.walk(loops[0]) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)
              and program.segment(n.slice) == index]  # fmt: skip
    tables = list(dict.fromkeys(tables))
    line = f"{', '.join(tables)} = {', '.join(f'{table}[{name}]' for table in tables)}"
    edits = program.insert_before(loops[-1], f"{name} = {torch}.randperm(len({node.value.id}))", line)
    return unique(
        program.text, [Fix(T(en=f"Shuffle them together: `{line}`", zh=f"一起打乱：`{line}`"), edits, meaning="later")]
    )


RULE = Rule(
    code="PL934",
    name="one-class-after-another",
    severity="warning",
    title=T(en="A training reads its examples class by class", zh="训练按类别的顺序读取样本"),
    what=T(
        en="The examples of a data set are sorted by their classes, and the training reads them in that order. Each "
        "batch has one class, and what it teaches is forgotten when the next class comes. Let the loader shuffle: "
        "`DataLoader(data, batch_size=8, shuffle=True)`.",
        zh="数据集的样本按类别排序，训练就按这个顺序读取。每个批次只有一个类别，下一个类别到来时，它教的东西就被忘掉"
        "了。请让加载器打乱顺序：`DataLoader(data, batch_size=8, shuffle=True)`。",
    ),
    why=T(
        en="A step of stochastic gradient descent is right on average only if a batch is a random sample of the data. "
        "`DataLoader` reads in order by default (`shuffle=False`), as is right for measuring. Folders with one class "
        "each, tables joined with `cat`, and sorted files give such an order. Batch norm suffers twice: its "
        "statistics are those of one class.",
        zh="随机梯度下降的一步只有在批次是数据的随机样本时，平均来说才是对的。`DataLoader` 默认按顺序读取"
        "（`shuffle=False`），这对测量是对的。每个类别一个文件夹、用 `cat` 接起来的表、排过序的文件，都会给出这样的顺"
        "序。batch norm 会受两次害：它的统计量只来自一个类别。",
    ),
    bad="""import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
labels = torch.arange(32) // 16
data = TensorDataset(torch.randn(32, 3) + labels[:, None], labels)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for x, y in DataLoader(data, batch_size=8):  # used
    loss = F.cross_entropy(net(x), y)  # PL934
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
labels = torch.arange(32) // 16
data = TensorDataset(torch.randn(32, 3) + labels[:, None], labels)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for x, y in DataLoader(data, batch_size=8, shuffle=True):
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.5",
            "lr=0.05",
            T(
                en="Smaller steps forget more slowly, and learn more slowly.",
                zh="步子小一些，忘得慢一些，学得也慢一些。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",),
)
