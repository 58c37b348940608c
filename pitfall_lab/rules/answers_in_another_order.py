"""PL964: predictions were collected from a loader that shuffles, and are compared with
labels in the order of the data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_true
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.batches import Batch, behind, loaded, loaders
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

COMPARES = (
    spellings("eq", "ne") | spellings("sub", exchanged=True)
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "l1_loss", "mse_loss", "nll_loss"}
)  # fmt: skip
"""Calls that compare predictions with labels row by row."""
LOOKS_UP = ("__getitem__", "index_select", "take", "take_along_dim")
"""Calls that pick elements by position."""
ORDERS = ("topk", "sort", "argsort", "nonzero")
"""Calls that return positions of rows."""
FEWEST = 4
PLAIN = SAME_NUMBERS - spellings("cat") - {"stack"} | {"long", "int", "gt", "type"}
"""Calls that predictions are followed through: they keep the order of the rows."""


@dataclass(frozen=True, slots=True)
class AnswersInAnotherOrder:
    """``event`` is the call (``Event``) that compares ``answers``, the label of a tensor collected from batches in
    shuffled order, with ``labels``, the label of a tensor in the order of the data.

    ``batches`` are the batches that the answers were computed from, in the order in which they were given. ``looks_up``
    is True where the call does not compare: it takes rows of ``labels`` at the positions that the answers give.
    """

    event: Event
    answers: str
    labels: str
    batches: tuple[Batch, ...]
    looks_up: bool = False


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares predictions, collected over at least two batches of a loader in
    shuffled order, with as many labels in the order of the stored data, or that looks up such labels by the
    predictions.

    Only for at least ``FEWEST`` predictions, all from one pass of the loader.
    """
    passed = {each.event.step: each for each in loaded(story)}
    told = set()
    for event in story.calls(*COMPARES, *LOOKS_UP) if passed else ():
        given = [o.label for o in event.operands[:3] if o.label is not None][:2]
        if len(given) != 2 or event.error is not None or story.span(event.step) in told:
            continue
        pairs = (given, given[::-1]) if event.name in COMPARES else _looked_up(story, event, *given)
        for answers, labels in pairs:
            found = _mixed(story, event, answers, labels, passed)
            if found is not None:
                told.add(story.span(event.step))
                yield _finding(story, found)
                break


def _looked_up(story: Story, event: Event, rows: str, index: str) -> Iterator[tuple[str, str]]:
    """Yield, at most once, the tensor computed from the model's outputs by which a call chooses ``rows``, and ``rows``.

    That tensor is the index itself if this is a bool mask, or the operand of a ``topk``, ``sort``, ``argsort`` or
    ``nonzero`` that returned the positions.
    """
    for _ in range(FEWEST):
        record = story.tensor(index, event.step) or {}
        made = story.event(record.get("born"))
        if record.get("dtype") == "bool":
            yield index, rows
            return
        if made is None or not made.operands or made.operands[0].label is None or index not in made.results:
            return
        if made.name in ORDERS and index == made.results[-1]:
            yield made.operands[0].label, rows
            return
        if made.name not in (*PLAIN, "__getitem__"):
            return
        index = made.operands[0].label


def _mixed(
    story: Story, event: Event, answers: str, labels: str, passed: dict[int, Batch]
) -> AnswersInAnotherOrder | None:
    rows = (story.shape(answers, event.step) or (0,))[0]
    if (
        rows < FEWEST
        or (story.shape(labels, event.step) or (0,))[0] != rows
        or not _is_stored(story, labels, event.step)
    ):
        return None
    batches = tuple(passed[each.event.step] for each in behind(story, answers, event.step) if each.event.step in passed)
    taken = [row for each in batches for row in each.rows]
    one = {(each.storage, each.began.step if each.began else None) for each in batches}
    if len(one) != 1 or len(batches) < 2 or len(taken) > rows or len(set(taken)) < len(taken):
        return None
    drawn = any(b < a for a, b in pairwise(taken))
    return AnswersInAnotherOrder(event, answers, labels, batches, event.name in LOOKS_UP) if drawn else None


def _is_stored(story: Story, label: str, step: int) -> bool:
    """Whether a tensor has its rows in the order of the stored data.

    False if ``stack``, ``cat``, ``index_select`` or an index tensor made it, or if another call computed it from a
    loader's batch.
    """
    for _ in range(FEWEST * FEWEST):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or event.kind != "call":
            return True
        given = [o.label for o in event.operands if o.label is not None]
        if event.name in ("stack", "cat", "index_select") or (event.name == "__getitem__" and len(given) > 1):
            return False
        if event.name not in PLAIN or not given:
            return next(behind(story, label, step), None) is None
        label, step = given[0], event.step
    return False


def _finding(story: Story, found: AnswersInAnotherOrder) -> Finding:
    span, step = story.span(found.event.step), found.event.step
    first = found.batches[0].event
    here, there = at_line(story, span), at_line(story, story.span(first.step))
    answers, labels = expression(story, found.answers, step), expression(story, found.labels, step)
    compared = T(
        en=f"{capital(here.en)} compares {answers.en}, collected on {there.en} in an order that a loader drew, with "
        f"{labels.en} in the order of the data: each answer meets the label of another example.",
        zh=f"{here.zh}把 {answers.zh}（在{there.zh}按加载器抽取的次序收集）与按数据次序排列的 {labels.zh} 比较：每个回"
        "答遇到的都是别的样本的标签。",
    )
    looked_up = T(
        en=f"{capital(here.en)} takes rows of {labels.en}, which is in the order of the data, at positions in "
        f"{answers.en}, collected on {there.en} in an order that a loader drew: the rows are those of other examples.",
        zh=f"{here.zh}按 {answers.zh}（在{there.zh}按加载器抽取的次序收集）中的位置取 {labels.zh} 的行，而后者按数据次"
        "序排列：取到的是别的样本的行。",
    )
    return RULE.finding(
        span,
        step,
        looked_up if found.looks_up else compared,
        T(
            en=f"The {len(found.batches)} batches whose rows are known begin elsewhere in the data than their places "
            "in the result. Take the labels from the same batches, or measure with a loader that does not shuffle.",
            zh=f"在行号已知的 {len(found.batches)} 批中，各行在数据里的位置与在结果中的位置不同。请从同样的批中取标"
            "签，或用不打乱的加载器来测量。",
        ),
        related=[
            story.related(
                "made", first.step, T(en="the examples come in a drawn order here", zh="样本在这里按抽取的次序到来")
            )
        ],
        fixes=_fixes(story, first),
        facts=[Fact("batches", len(found.batches), story.by(step))],
    )


def _fixes(story: Story, loaded: Event) -> tuple[Fix, ...]:
    """Fixes that read the data in its own order in the loop that ``loaded`` a batch, or that write ``False`` for a
    ``shuffle=True``.

    A loader that only this loop names, at the top level of the program, is not replaced in the loop: its ``shuffle`` is
    changed. Of several flags the last in the program is tried first.
    """
    program = story.program
    loops = [
        n
        for n in program.parents  # a comprehension has no place of its own
        if isinstance(n, (ast.For, ast.comprehension)) and isinstance(n.iter, (ast.Name, ast.Attribute, ast.Subscript))
    ]
    here = [n.iter for n in loops if loaded.span is not None and program.place(n.iter).line == loaded.span.line]
    made = loaders(story)
    own = []
    for node in here if made else ():
        loader = program.segment(node)
        text = f"{program.segment(made[0].func)}({loader}.dataset, batch_size={loader}.batch_size)"
        title = T(en="Read the data in its own order in this loop", zh="在这个循环里按数据自己的次序读取")
        several = sum(program.segment(each.iter) == loader for each in loops) > 1 or isinstance(node, ast.Subscript)
        if several or program.function(node) is not None:
            own.append(Fix(title, program.replace((node, text)), meaning="later"))
    return unique(program.text, [*own, *_unshuffled(story)])


def _unshuffled(story: Story) -> list[Fix]:
    title = T(
        en="Let this loader keep the order of the data: `shuffle=False`",
        zh="让这个加载器保持数据的次序：`shuffle=False`",
    )
    flags = [k.value for call in loaders(story) for k in call.keywords if k.arg == "shuffle" and is_true(k.value)]
    flags += [call.args[2] for call in loaders(story) if len(call.args) > 2 and is_true(call.args[2])]
    flags.sort(key=lambda node: node.lineno, reverse=True)
    nodes: list[ast.AST] = list(flags)
    return [Fix(title, story.program.replace((node, "False")), meaning="later") for node in nodes]


RULE = Rule(
    code="PL964",
    name="answers-in-another-order",
    severity="warning",
    title=T(
        en="Predictions in a shuffled order are compared with labels in the order of the data",
        zh="打乱次序的预测与按数据次序的标签相比较",
    ),
    what=T(
        en="A program collects a network's answers batch by batch from a loader that shuffles, and then compares them "
        "with the labels as they are stored. The accuracy is that of guessing. Collect the labels in the same loop, "
        "or make the loader with `shuffle=False`.",
        zh="程序从会打乱次序的加载器逐批收集网络的回答，再与存储次序的标签比较。得到的准确率与瞎猜一样。请在同一个循环"
        "里收集标签，或用 `shuffle=False` 创建加载器。",
    ),
    why=T(
        en="A `DataLoader` with `shuffle=True` draws a new order in each pass, also while a network is only measured. "
        "What `torch.cat` puts together is in that order. The stored labels are as many and of the same type, so `==` "
        "compares place by place and raises nothing.",
        zh="带 `shuffle=True` 的 `DataLoader` 每次循环都抽取新的次序，只测量网络时也一样。`torch.cat` 拼起来的结果就是"
        "这个次序。存储的标签数目与类型都相同，所以 `==` 按位置比较，不会报错。",
    ),
    advice=T(
        en="collect the labels in the loop on {made}, or let its loader keep the order: `shuffle=False`.",
        zh="在{made}的循环里收集标签，或让它的加载器保持次序：`shuffle=False`。",
    ),
    bad="""import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(12, 2)
y = (x[:, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
net = torch.nn.Linear(2, 2)
with torch.no_grad():
    net.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    net.bias.zero_()
    answers = [net(inputs).argmax(1) for inputs, _ in loader]  # made
    print((torch.cat(answers) == y).float().mean())  # PL964
""",
    good="""import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(12, 2)
y = (x[:, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=False)
net = torch.nn.Linear(2, 2)
with torch.no_grad():
    net.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    net.bias.zero_()
    answers = [net(inputs).argmax(1) for inputs, _ in loader]
    print((torch.cat(answers) == y).float().mean())
""",
    find=find,
    traps=(
        Trap(
            "batch_size=4, shuffle=True",
            "batch_size=6, shuffle=True",
            T(
                en="Other batches are drawn in an order of their own, too.",
                zh="换一种批大小，次序同样是抽取的。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html",),
)
