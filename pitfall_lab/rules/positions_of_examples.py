"""PL452: as many rows were taken out of a table of positions as there are examples, so each example, and not each
position, gets a vector of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.rules.signals.sequences import Attention, attentions, comes_from, is_among, makers
from pitfall_lab.rules.signals.value_origins import origin
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SUMS = spellings("add", in_place=True)
RANK = 3


@dataclass(frozen=True, slots=True)
class Swapped:
    """``added`` is the call (``Event``) that added rows of a table of positions to the tensor ``label`` along its axis
    0, that of the examples; ``rows`` is the label of these rows.

    ``cut`` is the call that took as many rows out of the table as there are examples. ``attention`` is a later
    attention that compares positions along axis 1 of the tensor ``label``.
    """

    added: Event
    cut: Event
    rows: str
    label: str
    attention: Attention


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds rows of a table of positions along the axis of the examples, where a
    later attention compares positions along another axis.
    """
    told = set()
    compared: list[Attention] | None = None
    for added in story.calls(*SUMS):
        pair = (
            _pair(story, added)
            if story.span(added.step) not in told and added.error is None and added.results
            else None
        )
        if pair is None:
            continue
        compared = list(attentions(story)) if compared is None else compared
        found = _swapped(story, added, pair, compared)
        if found is not None:
            told.add(story.span(added.step))
            yield _finding(story, found)


def _pair(story: Story, added: Event) -> tuple[str, str, Event] | None:
    """Rows of shape (n, 1, d), what they were added to, of shape (n, m, d), and the call that took
    the first n rows of a table.

    None if there is none; ``m`` must be neither 1 nor ``n``.
    """
    labels = [o.label for o in added.operands if o.label is not None]
    if len(labels) != 2:
        return None
    for rows, label in (labels, labels[::-1]):
        one, other = story.shape(rows, added.step) or (), story.shape(label, added.step) or ()
        if (
            len(one) == len(other) == RANK
            and one[1] == 1
            and one[0] == other[0] > 1
            and one[2] == other[2]
            and other[1] not in (1, one[0])
        ):
            cut = _cut(story, rows, added.step)
            if cut is not None:
                return rows, label, cut
    return None


def _cut(story: Story, rows: str, step: int) -> Event | None:
    """The call that took the first rows of a longer table, or looked up numbers counted
    from 0; None if there is none.
    """
    made = next(makers(story, rows, step), None)
    while (
        made is not None
        and made.name in ("unsqueeze", "to", "detach", "requires_grad_", "contiguous")
        and made.operands[0].label is not None
    ):
        made = next(makers(story, made.operands[0].label, made.step), None)
    if made is None or not made.operands or made.operands[0].label is None:
        return None
    if made.name == "embedding":
        counted = origin(story, made.operands[0].label, made.step)
        longer = (story.shape(made.operands[1].label, made.step) or (0,))[0] > (story.shape(rows, step) or (0,))[0]
        return made if longer and counted is not None and counted.name == "arange" else None
    table, part = (story.tensor(label, made.step) or {} for label in (made.operands[0].label, made.results[0]))
    longer = (table.get("shape") or [0])[0] > (part.get("shape") or [0])[0] and (table.get("shape") or [])[1:] == (
        part.get("shape") or []
    )[1:]
    same = table.get("storage") == part.get("storage") and table.get("offset") == part.get("offset")
    return made if longer and same and table.get("stride") == part.get("stride") else None


def _swapped(story: Story, added: Event, pair: tuple[str, str, Event], compared: list[Attention]) -> Swapped | None:
    rows, label, cut = pair
    shape = story.shape(label, added.step) or ()
    for attention in compared:
        positions = is_among(story, attention, shape[1]) and not is_among(story, attention, shape[0])
        if (
            attention.event.step > added.step
            and positions
            and comes_from(story, attention.keys, attention.product.step, added)
        ):
            return Swapped(added, cut, rows, label, attention)
    return None


def _finding(story: Story, found: Swapped) -> Finding:
    added, cut = found.added, found.cut
    here, there = at_line(story, story.span(added.step)), at_line(story, story.span(found.attention.event.step))
    what, label = snippet(story, story.span(cut.step)), expression(story, found.label, added.step)
    n, m = (story.shape(found.label, added.step) or (0, 0))[:2]
    size = "×".join(map(str, story.shape(found.label, added.step) or ()))
    return RULE.finding(
        story.span(added.step),
        added.step,
        T(
            en=f"{capital(here.en)} adds one vector for each of {n} examples, `{what}`, in place of one for "
            f"each of {m} positions.",
            zh=f"{here.zh}给 {n} 个样本各加一个向量 `{what}`，而不是给 {m} 个位置各加一个。",
        ),
        T(
            en=f"{capital(label.en)} has shape {size}, and the attention on {there.en} compares its {m} "
            f"positions on axis 1. The table was cut to {n} rows and added along axis 0, so all positions of "
            "one example get the same vector: the model cannot use their order, and what an example gets "
            "depends on its place in the batch.",
            zh=f"{label.zh} 的形状是 {size}，{there.zh}的注意力比较的是第 1 轴上的 {m} 个位置。表被截成 {n} "
            "行，沿第 0 轴排列，于是同一个样本的所有位置得到同一个向量：模型分不清它们的先后，而样本得到什么"
            "取决于它在批次中的位置。",
        ),
        related=[
            story.related("made", cut.step, T(en="the table is cut here", zh="在这里截取表")),
            story.related(
                "used", found.attention.event.step, T(en="positions are compared here", zh="在这里比较各个位置")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("examples", n, story.by(added.step)), Fact("positions", m, story.by(added.step))],
    )


def _fixes(story: Story, found: Swapped) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(found.cut.step)) if program.tree is not None else None
    fixes = [Fix(_title(text), edits, meaning="shape") for text, edits in _candidates(story, found, node)]
    return unique(program.text, fixes)


def _title(text: str) -> T:
    return T(en=f"One vector for each position: `{text}`", zh=f"每个位置一个向量：`{text}`")


def _candidates(story: Story, found: Swapped, node: ast.AST | None) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Yield at most one candidate fix: the new source of the expression that takes rows of the table, and the edits
    that put it there.

    It takes as many rows as the tensor that they are added to has along its second axis, and exchanges the first two
    axes of the rows.
    """
    program = story.program
    if not isinstance(node, ast.Subscript):
        return
    cut = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
    upper = cut.upper if isinstance(cut, ast.Slice) else None
    if upper is None:
        return
    zeros = [n for n in ast.walk(upper) if isinstance(n, ast.Constant) and n.value == 0]
    text = program.segment(upper)
    if len(zeros) == 1:
        text = text.replace("0", "1") if text.count("0") == 1 else ""
    else:
        text = str((story.shape(found.label, found.added.step) or (0, 0))[1])
    if text:
        new = f"{operand(program, node.value)}[:{text}].transpose(0, 1)"
        yield new, program.replace((node, new))


RULE = Rule(
    code="PL452",
    name="positions-of-examples",
    severity="warning",
    title=T(en="A table of positions is added along the examples", zh="位置表沿着样本的轴相加"),
    what=T(
        en="A model adds a vector to each position of a sequence so that it knows their order, and the table is laid "
        "along the wrong axis: each example of the batch gets one vector, for all of its positions. Cut the table to "
        "the length of the sequence: `table[:x.size(1)].transpose(0, 1)`.",
        zh="模型给序列的每个位置加一个向量，以便知道先后，而表却沿着错误的轴排列：批次中的每个样本得到一个向量，用于它"
        "的所有位置。请把表截成序列的长度：`table[:x.size(1)].transpose(0, 1)`。",
    ),
    why=T(
        en="A widespread class for positions keeps a table of shape (longest, 1, width) and adds `table[:x.size(0)]`: "
        "that is for tensors of shape (positions, examples, width). With `batch_first=True` axis 0 counts the "
        "examples. Broadcasting stretches the axis of length 1, whichever it meets, so nothing fails. The output of a "
        "batch then changes when its examples change places.",
        zh="一个流传很广的位置类保存形状为（最大长度, 1, 宽度）的表，然后加上 `table[:x.size(0)]`：它适用于形状为（位"
        "置, 样本, 宽度）的张量。`batch_first=True` 时第 0 轴是样本。广播会拉伸长度为 1 的轴，不管它遇到的是哪个轴，所"
        "以不会报错。这样，样本在批次中换位置，输出就会变。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
table = torch.randn(20, 1, 4)
layer, head = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), torch.nn.Linear(4, 2)
opt = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)
x, y = torch.randn(3, 5, 4), torch.tensor([0, 1, 0])
for _ in range(2):
    h = x + table[:x.size(0)]  # PL452 made
    h = layer(h)  # used
    loss = F.cross_entropy(head(h[:, 0]), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
table = torch.randn(20, 1, 4)
layer, head = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), torch.nn.Linear(4, 2)
opt = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)
x, y = torch.randn(3, 5, 4), torch.tensor([0, 1, 0])
for _ in range(2):
    h = x + table[:x.size(1)].transpose(0, 1)
    h = layer(h)
    loss = F.cross_entropy(head(h[:, 0]), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "table[:x.size(0)]",
            "table[:x.size(0)].expand(3, 5, 4)",
            T(en="Broadcasting did the same before.", zh="广播之前做的就是同样的事。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoderLayer.html",
        "https://docs.pytorch.org/docs/stable/notes/broadcasting.html",
    ),
)
