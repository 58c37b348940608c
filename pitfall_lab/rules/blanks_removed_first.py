"""PL958: the blanks of a CTC path are removed before its repetitions are merged: a label that comes twice is lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

UNEQUAL = spellings("ne")
GIVEN = 4
"""The position of the blank among the arguments of ``ctc_loss``."""
SHOWN = 8


@dataclass(frozen=True, slots=True)
class RemovedFirst:
    """``removal`` is the call (``Event``) that took the elements of the tensor ``path`` (a label) which are not
    ``blank``, and ``merging`` the later ``unique_consecutive`` of the rest.

    ``before`` are the elements of the path; None if not all are known.
    """

    removal: Event
    merging: Event
    path: str
    blank: int
    before: tuple[int, ...] | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that merges equal neighbours of a path from which the blanks of this program's
    CTC loss were removed before.

    Nothing for a line if all elements of its paths are known and the other order would give the same for each.
    """
    blanks = {whole(argument(loss, "blank", GIVEN) or "0") for loss in story.calls("ctc_loss") if loss.error is None}
    found = dict[object, RemovedFirst]()
    for merging in story.calls("unique_consecutive") if blanks else ():
        place = story.span(merging.step)
        one = _removed_first(story, merging, blanks)
        if one is None or not _differs(one):
            continue
        if place not in found or (found[place].before is None and one.before is not None):
            found[place] = one
    for each in found.values():
        yield _finding(story, each)


def _removed_first(story: Story, merging: Event, blanks: set[int | None]) -> RemovedFirst | None:
    if not merging.operands or merging.error is not None:
        return None
    removal = made_by(story, merging.operands[0].label, merging.step)
    if removal is None or removal.name not in ("__getitem__", "masked_select") or len(removal.operands) < 2:
        return None
    path, mask = (each.label for each in removal.operands[:2])
    compared = made_by(story, mask, removal.step)
    if path is None or compared is None or compared.name not in UNEQUAL or len(compared.operands) < 2:
        return None
    blank = whole(compared.operands[1].text) if compared.operands[1].label is None else None
    if blank not in blanks or blank is None or compared.operands[0].label != path:
        return None
    known = dict(Elements(story, path, removal.step).known())
    length = (story.shape(path, removal.step) or (0,))[0]
    values = tuple(int(known[key]) for key in sorted(known)) if len(known) == length else None
    return RemovedFirst(removal, merging, path, blank, values)


def _merged(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(each for at, each in enumerate(values) if not at or values[at - 1] != each)


def _differs(found: RemovedFirst) -> bool:
    """Whether the other order of the two calls gives another result; True if the elements are not known."""
    return found.before is None or _wrong(found, found.before) != _meant(found, found.before)


def _wrong(found: RemovedFirst, values: tuple[int, ...]) -> tuple[int, ...]:
    return _merged(tuple(each for each in values if each != found.blank))


def _meant(found: RemovedFirst, values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(each for each in _merged(values) if each != found.blank)


def _finding(story: Story, found: RemovedFirst) -> Finding:
    step = found.merging.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.removal.step))
    path = expression(story, found.path, found.removal.step)
    what = T(
        en=f"{capital(there.en)} removes the blanks ({found.blank}) of {path.en}, and then {here.en} merges equal "
        "neighbours: a label that comes twice with a blank between is kept once.",
        zh=f"{there.zh}先去掉 {path.zh} 中的空白（{found.blank}），{here.zh}再合并相同的相邻元素：中间隔着空白、"
        "出现两次的标签只留下一个。",
    )
    if found.before is not None and len(found.before) <= SHOWN * SHOWN:
        wrong, meant = (list(f(found, found.before)) for f in (_wrong, _meant))
        what = T(
            en=f"{what.en} This path gives {wrong} where it says {meant}.",
            zh=f"{what.zh}这条路径给出 {wrong}，而它表示的是 {meant}。",
        )
    return RULE.finding(
        story.span(step),
        step,
        what,
        T(
            en="In a CTC path the blank keeps two equal labels apart: `a a - a` means `a a`, and `a a a` means `a`. "
            "Merge equal neighbours first, then remove the blanks.",
            zh="在 CTC 路径中，空白把两个相同的标签隔开：`a a - a` 表示 `a a`，而 `a a a` 表示 `a`。应当先合并相同的"
            "相邻元素，再去掉空白。",
        ),
        related=[
            story.related("operand", found.removal.step, T(en="the blanks are removed here", zh="在这里去掉空白"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("blank", found.blank, story.by(found.removal.step))],
    )


def _fixes(story: Story, found: RemovedFirst) -> tuple[Fix, ...]:
    """A fix that merges the path before its blanks are removed; empty if the path is not a variable on that line, or
    the merging is not a call with the path as its only argument.
    """
    program = story.program
    removal, merging = (program.at(story.span(event.step)) for event in (found.removal, found.merging))
    while isinstance(removal, ast.Attribute):
        removal = program.parents.get(removal)
    source = (
        removal.value
        if isinstance(removal, ast.Subscript)
        else removal.func.value
        if isinstance(removal, ast.Call) and isinstance(removal.func, ast.Attribute)
        else None
    )
    statement = program.statement(removal)
    if isinstance(source, ast.Name) and source.id == "torch" and isinstance(removal, ast.Call) and removal.args:
        source = removal.args[0]
    if not isinstance(source, ast.Name) or not isinstance(merging, ast.Call) or statement is None:
        return ()
    method = isinstance(merging.func, ast.Attribute) and not merging.args
    kept = merging.func.value if method and isinstance(merging.func, ast.Attribute) else next(iter(merging.args), None)
    if kept is None or merging.keywords or len(merging.args) > 1:
        return ()
    first = f"{source.id} = {source.id}.unique_consecutive()"
    edits = merge(program.insert_before(statement, first), program.replace((merging, program.segment(kept))))
    title = T(en=f"Merge first: `{first}`", zh=f"先合并：`{first}`")
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits is not None else ()


RULE = Rule(
    code="PL958",
    name="blanks-removed-first",
    severity="warning",
    title=T(en="CTC blanks were removed before repeated labels were merged", zh="先去掉了 CTC 空白，才合并重复的标签"),
    what=T(
        en="A program reads the labels from a path of a network that was trained with a CTC loss. It removes the "
        "blanks and then merges equal neighbours, so a label that really comes twice in a row is read once. Merge "
        "first, then remove the blanks.",
        zh="网络用 CTC 损失训练，程序从它的路径中读出标签：先去掉空白，再合并相同的相邻元素，于是真正连续出现两次的标签"
        "只读到一次。请先合并，再去掉空白。",
    ),
    why=T(
        en="The network says one label, or the blank, for each time step. A label that lasts several steps is "
        "repeated, and two equal labels in a row have a blank between them. Without the blanks the two cases look "
        "the same. `ctc_loss` sums over the paths that give the targets by merging first.",
        zh="网络在每个时间步给出一个标签或空白。持续多步的标签会重复，而连续两个相同的标签之间有空白。去掉空白之后，两种情"
        "形就无法区分。`ctc_loss` 求和的那些路径，都是先合并、再去空白得到目标的。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
scores = torch.randn(6, 1, 3, requires_grad=True)
targets = torch.tensor([[1, 1]])
loss = F.ctc_loss(scores.log_softmax(2), targets, torch.tensor([6]), torch.tensor([2]))
loss.backward()
path = torch.tensor([1, 1, 0, 1, 0, 0])
labels = path[path != 0]  # operand
print(torch.unique_consecutive(labels))  # PL958
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
scores = torch.randn(6, 1, 3, requires_grad=True)
targets = torch.tensor([[1, 1]])
loss = F.ctc_loss(scores.log_softmax(2), targets, torch.tensor([6]), torch.tensor([2]))
loss.backward()
path = torch.tensor([1, 1, 0, 1, 0, 0])
labels = torch.unique_consecutive(path)
print(labels[labels != 0])
""",
    find=find,
    traps=(
        Trap(
            "path != 0",
            "path > 0",
            T(
                en="The same elements are removed, and equal labels are still neighbours afterwards.",
                zh="去掉的是同样的元素，之后相同的标签仍然相邻。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html",),
)
