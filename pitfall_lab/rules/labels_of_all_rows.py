"""PL980: what a network is given was chosen, or computed, with the labels of all rows, of those
it is measured with as well.
"""

from __future__ import annotations

import ast
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.sequences import makers
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = (
    spellings("sub", exchanged=True) | operations_that("difference_loss")
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss"}
)  # fmt: skip
"""The losses, and the difference, that compare rows with labels."""
COMPARED = spellings("eq", "ne")
LAYERS = ("linear", "conv1d", "conv2d", "conv3d")
"""Layers whose input has one row for each example."""
SAME = {
    "float",
    "long",
    "int",
    "to",
    "double",
    "view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "flatten",
    "clone",
    "detach",
    "bool",
    "type",
}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
PARTS = {"__getitem__", "index_select", "split", "chunk", "narrow", "unbind", "tensor_split", "masked_select", "unfold"}
"""Calls that take a part of the rows."""
REDUCING = (
    spellings("index_add", "scatter_add", "scatter_reduce", in_place=True) | operations_that("matrix_product")
    | {"amax", "amin", "argmax", "argmin", "bincount", "corrcoef", "cov", "dot", "einsum", "histc", "index_put_",
       "linalg_lstsq", "linear", "logsumexp", "lstsq", "max", "mean", "median", "min", "norm", "quantile", "std", "sum",
       "topk", "var", "vector_norm"}
)  # fmt: skip
"""Calls that may compute one number of all rows."""
FEWEST, UPWARD, LOOKS = 4, 600, 2


@dataclass(frozen=True, slots=True)
class LabelsOfAllRows:
    """The input of a layer depends on the labels of all rows, those included that the network is measured with.

    ``labels`` is the label of the tensor with the labels, ``rows`` their number. ``entered`` is the call (``Event``)
    that was given all of them, ``chosen`` the call that made a summary of all rows of it (a mean, indices of columns),
    on which the input of the call ``layer`` depends. ``learned`` took the labels that the network was trained with,
    ``measured`` those that it is measured with. ``sources`` are the calls on that way that were given named data of all
    rows, each with the label of these data.
    """

    labels: str
    rows: int
    entered: Event
    chosen: Event
    layer: Event
    learned: Event
    measured: Event
    sources: tuple[tuple[Event, str], ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each tensor of labels, of at least ``FEWEST`` rows, of which one part is used to train and
    another to measure, if the input of a layer through which no backward goes was chosen or computed with all of them.

    Only if a backward ran.
    """
    reported = set()
    for labels, rows, learned, measured in _split(story) if story.backwards() else ():
        leak = _leak(story, labels, rows, learned, measured) if labels not in reported else None
        if leak is not None:
            reported.add(labels)
            yield _finding(story, leak)


def _split(story: Story) -> Iterator[tuple[str, int, Event, Event]]:
    """Yield each tensor of labels of which one part is compared with a result that was trained, and another part with
    one that was not: its label, its number of rows and the calls that took the two parts.

    Only the first such call of each kind counts. Left out are tensors of fewer than ``FEWEST`` rows, and two calls
    known to take the same rows.
    """
    learned: dict[str, Event] = {}
    measured: dict[str, Event] = {}
    for event in story.calls(*LOSSES, *COMPARED):
        if event.error is not None or not event.results:
            continue
        graph = (story.tensor(event.results[0], event.step) or {}).get("grad_fn")
        trained = (story.record("nodes", graph) or {}).get("ran") is not None
        for operand in event.operands[:2]:
            if operand.label is None or (story.tensor(operand.label, event.step) or {}).get("requires_grad"):
                continue
            taken = _part_of(story, operand.label, event.step)
            if taken is not None:
                (learned if trained else measured).setdefault(str(taken.operands[0].label), taken)
    for labels, one in learned.items():
        other = measured.get(labels)
        rows = (story.shape(labels, one.step) or (0,))[0]
        if other is not None and rows >= FEWEST and not _is_same_part(story, one, other):
            yield labels, rows, one, other


def _part_of(story: Story, label: str, step: int) -> Event | None:
    """The call that took ``label`` as some of the rows of a vector or of a matrix of one column, if only conversions
    and reshapes follow it; None if there is none.
    """
    for _ in range(8):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is None or label not in made.results or not made.operands or made.operands[0].label is None:
            return None
        before, after = (story.shape(each, made.step) or () for each in (made.operands[0].label, label))
        if made.name in PARTS:
            column = len(before) == 1 or (len(before) == 2 and before[1] == 1)
            return made if column and after[:1] != before[:1] else None
        if made.name == "stack":
            step, label = made.step, str(made.operands[0].label)
            continue
        if made.name not in SAME:
            return None
        label, step = made.operands[0].label, made.step
    return None


def _is_same_part(story: Story, one: Event, other: Event) -> bool:
    """Whether two takes are known to be of the same rows: both by equal indices, the first as
    ``x[…]``, with results of one shape.
    """
    indices = [tuple(o.label or o.text for o in event.operands[1:]) for event in (one, other)]
    views = [story.tensor(event.results[0], event.step) or {} for event in (one, other)]
    if one.name != "__getitem__" or indices[0] != indices[1]:
        return False
    return indices[0] != () and all(views[0].get(key) == views[1].get(key) for key in ("shape",))


def _leak(story: Story, labels: str, rows: int, learned: Event, measured: Event) -> LabelsOfAllRows | None:
    root, seen = _root(story, labels), Counter[object]()
    for layer in story.calls(*LAYERS):
        weight = layer.operands[1].label if len(layer.operands) > 1 and layer.error is None and layer.results else None
        if weight not in story.leaves or (story.tensor(layer.operands[0].label, layer.step) or {}).get("requires_grad"):
            continue
        graph = (story.tensor(layer.results[0], layer.step) or {}).get("grad_fn")
        if (story.record("nodes", graph) or {}).get("ran") is not None:
            continue
        seen[layer.span, weight] += 1
        found = _way(story, layer, root, rows) if seen[layer.span, weight] <= LOOKS else None
        if found is not None:
            entered, chosen, sources = found
            return LabelsOfAllRows(labels, rows, entered, chosen, layer, learned, measured, sources)
    return None


def _root(story: Story, labels: str) -> str:
    """The label of the tensor that ``labels`` was converted or reshaped from, through at most eight calls; ``labels``
    itself if there is no such call.
    """
    step = None
    for _ in range(8):
        made = story.event((story.tensor(labels, step) or {}).get("born"))
        given = made.operands[0].label if made is not None and labels in made.results and made.operands else None
        if made is None or made.name not in SAME or given is None:
            break
        labels, step = given, made.step
    return labels


def _way(story: Story, layer: Event, root: str, rows: int) -> tuple[Event, Event, tuple[tuple[Event, str], ...]] | None:
    """How the labels of all rows influence the input of a layer; None if they do not.

    The call that used the labels, the call that reduced all rows, and the calls on the way that were
    given named data of all rows.
    """
    sources: dict[tuple[int, str], Event] = {}
    entered: tuple[Event, Event] | None = None
    for event, given, reduced in _summarised(story, layer, rows):
        if _root(story, given) == root:
            entered = entered or (event, reduced)
        if event.name not in SAME and story.name(given, event.step) and _is_data(story, _root(story, given), rows):
            sources[event.step, given] = event
    return (*entered, tuple((event, label) for (_, label), event in sources.items())) if entered is not None else None


PART, TABLE, SUMMARY, DATA = range(4)
"""Where the walk is: at some of the rows, at a table with all of them, at numbers without rows, at all rows again."""


def _summarised(story: Story, layer: Event, rows: int) -> Iterator[tuple[Event, str, Event]]:
    """Yield the tensors with all rows whose summary (a mean, indices of columns) influences the input of a layer, each
    as the call that used the tensor, the label of the tensor, and the call that reduced its rows.

    The search goes from the layer's input back to the table of inputs, from there to what was computed without rows,
    and from that to the tensors with rows that it was computed from: these may be labels.
    """
    pending: deque[tuple[str, int, int, Event]] = deque([(str(layer.operands[0].label), layer.step, PART, layer)])
    seen: set[tuple[str, int]] = set()
    while pending and len(seen) < UPWARD:
        label, step, place, reduced = pending.popleft()
        for event in makers(story, label, step):
            before = [o.label for o in event.operands if o.label is not None and not _is_weight(story, o.label)]
            for given in before:
                has_rows = rows in (story.shape(given, event.step) or ())
                new = (
                    TABLE if has_rows else PART,
                    TABLE if has_rows else SUMMARY,
                    DATA if has_rows else SUMMARY,
                    DATA,
                )[place]
                if (place == SUMMARY and has_rows and event.name not in REDUCING) or (place == DATA and not has_rows):
                    continue
                by = event if new != place else reduced
                if new == DATA:
                    yield event, given, by
                if (given, new) not in seen and given != label:
                    seen.add((given, new))
                    pending.append((given, event.step, new, by))


def _is_data(story: Story, label: str, rows: int) -> bool:
    """Whether a tensor with all rows was not computed from another one with all rows in the recorded program."""
    made = story.event((story.tensor(label) or {}).get("born"))
    return made is None or not any(
        rows in (story.shape(o.label, made.step) or ()) for o in made.operands if o.label is not None
    )


def _is_weight(story: Story, label: str) -> bool:
    record = story.tensor(label) or {}
    return record.get("kind") == "parameter" or bool(record.get("is_leaf") and record.get("requires_grad"))


def _finding(story: Story, leak: LabelsOfAllRows) -> Finding:
    entered = leak.entered
    here, there = at_line(story, story.span(entered.step)), at_line(story, story.span(leak.measured.step))
    labels = expression(story, leak.labels, entered.step)
    return RULE.finding(
        story.span(entered.step),
        entered.step,
        T(
            en=f"{capital(here.en)} uses {labels.en} of all {leak.rows} rows to compute what the network is given, "
            f"those that {there.en} measures it with as well: it gets hints at their answers.",
            zh=f"{here.zh}用全部 {leak.rows} 行的 {labels.zh} 来计算网络的输入，其中包括{there.zh}用来测量的行：网络由"
            "此得到了它们答案的线索。",
        ),
        T(
            en="Columns that agree with the labels of all rows by chance agree with those of the measured "
            "rows as well, even if there is nothing to be learned. A choice of features, an encoding by mean "
            "labels, and anything else that looks at labels belongs to the training: compute it from the rows "
            "that train, and apply it to all.",
            zh="碰巧与全部行的标签一致的列，也与被测量的行的标签一致，即使其中没有任何规律可学。选择特征、用标签均值编"
            "码，以及其他要看标签的步骤都属于训练：请只用训练的行来计算，再应用到所有行。",
        ),
        related=[
            story.related("read", leak.chosen.step, T(en="all rows are reduced here", zh="所有行在这里被归约")),
            story.related("used", leak.layer.step, T(en="the network is measured here", zh="在这里测量网络")),
            story.related(
                "made",
                leak.learned.step,
                T(en="the labels that train it are taken here", zh="用于训练的标签在这里取出"),
            ),
        ],
        fixes=_fixes(story, leak),
        facts=[Fact("rows", leak.rows, story.by(entered.step))],
    )


def _fixes(story: Story, leak: LabelsOfAllRows) -> tuple[Fix, ...]:
    """At most one fix: where the program reads the data of all rows, it adds the index that selects the training
    labels.

    Empty unless that index is a slice, or a name assigned before, and the data are read by a name above it in the same
    function.
    """
    program = story.program
    taken = program.at(story.span(leak.learned.step)) if program.tree is not None else None
    if not isinstance(taken, ast.Subscript) or not isinstance(taken.slice, ast.Name | ast.Slice):
        return ()
    index, changes = program.segment(taken.slice), dict[ast.AST, str]()
    for event, label in leak.sources:
        statement, name = program.statement_at(story.span(event.step)), story.name(label, event.step)
        if (
            statement is None
            or name is None
            or program.function(statement) is not program.function(taken)
            or statement.lineno > taken.lineno
        ):
            return ()
        if isinstance(taken.slice, ast.Name) and not _is_assigned_before(story, taken.slice.id, statement):
            return ()
        value = statement.value if isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr) else None
        for node in ast.walk(value) if value is not None else ():
            if isinstance(node, ast.Name) and node.id == name and not _is_taken(program.parents.get(node), node):
                changes[node] = f"{name}[{index}]"
    title = T(en=f"Look at the rows of the training alone: `[{index}]`", zh=f"只看训练的行：`[{index}]`")
    return unique(program.text, [Fix(title, program.replace(*changes.items()), meaning="later")]) if changes else ()


def _is_taken(parent: ast.AST | None, node: ast.Name) -> bool:
    """Whether the name is indexed by something that selects rows: ``labels[train]``; not by ``:``
    for the rows, which takes all.
    """
    if not isinstance(parent, ast.Subscript) or parent.value is not node:
        return False
    first = parent.slice.elts[0] if isinstance(parent.slice, ast.Tuple) and parent.slice.elts else parent.slice
    return not (isinstance(first, ast.Slice) and first.lower is None and first.upper is None)


def _is_assigned_before(story: Story, name: str, statement: ast.stmt) -> bool:
    function = story.program.function(statement)
    stores = (
        n for n in story.program.nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
    )
    return any(n.lineno < statement.lineno and story.program.function(n) is function for n in stores)


RULE = Rule(
    code="PL980",
    name="labels-of-all-rows",
    severity="warning",
    title=T(en="The inputs were computed with the labels of the test rows, too", zh="计算输入时也用到了测试行的标签"),
    what=T(
        en="A program looks for the columns that go best with the labels, over all its rows, and afterwards splits "
        "the rows into those to learn from and those to measure with. The choice has seen the answers of both, and "
        "the measured accuracy is far too good. Split first, and choose by the rows to learn from.",
        zh="程序用全部的行寻找与标签最相关的列，之后才把行分成用来学习的和用来测量的。这个选择已经看过两者的答案，测得"
        "的准确率于是好得多。请先划分，再只用学习的行来选择。",
    ),
    why=T(
        en="Among thousands of columns of noise some fit the labels by chance. Chosen by all rows, they fit the "
        "labels of the test rows too, so a network that learned nothing of use is right there. The same holds for "
        "categories that are replaced by their mean label, and for weights fitted to all rows. No number of the test "
        "rows' inputs is changed, so nothing shows in the shapes.",
        zh="在成千上万列噪声中，总有一些碰巧与任何标签相关。如果用全部的行来选，它们也会与测试行的标签相关，于是没学到"
        "任何规律的网络在那里也能答对。用标签均值代替类别、用全部行拟合的权重也是如此。测试行的输入一个数也没有改变，"
        "所以从形状上看不出来。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, y = torch.randn(24, 300), torch.randn(24)
learn, test = torch.arange(16), torch.arange(16, 24)
score = (x * y[:, None]).sum(0)  # PL980 read
best = score.abs().topk(3).indices
inputs = x[:, best]
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(30):
    loss = (net(inputs[learn]).squeeze(1) - y[learn]).square().mean()  # made
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print((net(inputs[test]).squeeze(1) - y[test]).square().mean())  # used
""",
    good="""import torch

torch.manual_seed(0)
x, y = torch.randn(24, 300), torch.randn(24)
learn, test = torch.arange(16), torch.arange(16, 24)
score = (x[learn] * y[learn][:, None]).sum(0)
best = score.abs().topk(3).indices
inputs = x[:, best]
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(30):
    loss = (net(inputs[learn]).squeeze(1) - y[learn]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print((net(inputs[test]).squeeze(1) - y[test]).square().mean())
""",
    find=find,
    traps=(
        Trap(
            "topk(3)",
            "topk(30)",
            T(
                en="More columns chosen by all labels know the answers as well.",
                zh="用全部标签选出更多的列，它们同样知道答案。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html",),
)
