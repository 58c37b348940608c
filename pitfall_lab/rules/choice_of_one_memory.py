"""PL733: ``torch.where`` chooses between the new and the old numbers, and both are one piece of a storage that was
written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.trace import Event, Span, T

SIDES = 2


@dataclass(frozen=True, slots=True)
class ChoiceOfOne:
    """The call ``event`` (``torch.where``) chose between two tensors of the same storage, offset, shape and strides;
    ``written`` is the step of the last write to the storage before.

    ``one`` and ``other`` are the expressions of the two tensors in the program.
    """

    event: Event
    written: int
    one: ast.expr
    other: ast.expr


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that chooses, by ``where``, between two tensors of the same storage, offset,
    shape and strides that are written as two different expressions, if the storage was written before.
    """
    reported: set[Span | None] = set()
    for event in story.calls("where"):
        found = _of_one(story, event) if event.error is None and story.span(event.step) not in reported else None
        if found is not None:
            reported.add(story.span(event.step))
            yield _finding(story, found)


def _of_one(story: Story, event: Event) -> ChoiceOfOne | None:
    sides = _sides(story.program, story.program.at(story.span(event.step)))
    tensors = [(o.label, story.tensor(o.label, event.step) or {}) for o in event.operands if o.label is not None]
    chosen = [(label, record) for label, record in tensors if record.get("dtype") != "bool"]
    if sides is None or len(chosen) != SIDES:
        return None
    (one, first), (other, second) = chosen
    storage = first.get("storage")
    if storage is None or not (one == other or same_piece(first, second)):
        return None
    written = story.writes(str(storage), first.get("born") or 0, event.step)
    return ChoiceOfOne(event, written[-1], *sides) if written else None


def _sides(program: Program, node: ast.AST | None) -> tuple[ast.expr, ast.expr] | None:
    """Return the two expressions between which a call of ``where`` chooses; None if ``node`` is no such call, or both
    expressions are the same.
    """
    if not isinstance(node, ast.Call) or called(node) != "where" or not isinstance(node.func, ast.Attribute):
        return None
    given = node.args if len(node.args) > SIDES else [node.func.value, *node.args[1:]]
    if len(given) < SIDES or program.segment(given[-1]) == program.segment(given[-2]):
        return None
    return given[-2], given[-1]


def _finding(story: Story, found: ChoiceOfOne) -> Finding:
    program, step = story.program, found.event.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.written))
    one, other = program.segment(found.one), program.segment(found.other)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} chooses between `{one}` and `{other}`, which are one tensor's memory: "
            f"{there.en} has "
            "written it, so both hold the new numbers and the choice has no effect.",
            zh=f"{here.zh}在 `{one}` 与 `{other}` 之间选择，而两者是同一块内存：{there.zh}已经写入它，所以两者都是新"
            "的数，选择不起作用。",
        ),
        T(
            en="A function that changes its argument in place returns the argument itself: no second tensor holds "
            "the old numbers any more. A step that is to be taken back needs a copy of what was there, made before "
            "the first write: `clone()`.",
            zh="就地修改参数的函数，返回的就是那个参数：再没有别的张量保存旧的数。需要撤回的一步，必须在第一次写入之"
            "前复制原来的内容：`clone()`。",
        ),
        related=[
            story.related("changed", found.written, T(en="both change here", zh="两者在这里一起改变")),
            story.related("used", step, T(en="nothing is left to choose", zh="这里已没有可选择的")),
        ],
        fixes=_fixes(program, found),
        facts=[Fact("tensor", found.event.operands[-1].label, story.by(step))],
    )


def _fixes(program: Program, found: ChoiceOfOne) -> tuple[Fix, ...]:
    """Fixes that copy one side in the statement that assigned the other side from it; empty if no statement did."""
    texts = [program.segment(found.one), program.segment(found.other)]
    fixes: list[Fix] = []
    for node in program.nodes:
        if not isinstance(node, ast.Assign) or found.one in ast.walk(node):
            continue
        names = [
            program.segment(each)
            for target in node.targets
            for each in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        given = [node.value, *node.value.args] if isinstance(node.value, ast.Call) else [node.value]
        for name, rest in (texts, texts[::-1]):
            for each in given if name in names else ():
                if program.segment(each) == rest:
                    new = f"{operand(program, each)}.clone()"
                    title = T(en=f"Change a copy: `{new}`", zh=f"修改副本：`{new}`")
                    fixes.append(Fix(title, program.replace((each, new)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL733",
    name="choice-of-one-memory",
    severity="warning",
    title=T(
        en="`where` chooses between new and old numbers, and both are one memory",
        zh="`where` 在新旧两组数之间选择，而两者是同一块内存",
    ),
    what=T(
        en="A program makes a step on trial and keeps the old numbers where the step is refused: `torch.where(accept, "
        "new, old)`. The step was made in place, so `new` is `old`, and every step is kept. Change a copy.",
        zh="程序先试着走一步，被拒绝的地方保留旧的数：`torch.where(accept, new, old)`。这一步是就地进行的，`new` 就是 "
        "`old`，于是每一步都被保留。请修改副本。",
    ),
    why=T(
        en="`q += step` and `q.add_(step)` in a function write the caller's tensor, and `return q` gives it back. "
        "Rejection in Metropolis and Hamiltonian Monte Carlo, a line search that goes back, and rows that have "
        "ended and are to stay all need the state before the step.",
        zh="函数里的 `q += step` 与 `q.add_(step)` 写的是调用者的张量，`return q` 又把它还回去。Metropolis 与哈密顿"
        "蒙特卡洛的拒绝、要退回的线搜索、已经结束而应保持不变的行，都需要这一步之前的状态。",
    ),
    bad="""import torch

torch.manual_seed(0)
state = torch.zeros(6)
def propose(x):
    x += torch.randn(6)  # changed
    return x
energy = state.square()
new = propose(state)
accept = new.square() < energy + torch.rand(6)
state = torch.where(accept, new, state)  # PL733 used
print(accept, state)
""",
    good="""import torch

torch.manual_seed(0)
state = torch.zeros(6)
def propose(x):
    x += torch.randn(6)
    return x
energy = state.square()
new = propose(state.clone())
accept = new.square() < energy + torch.rand(6)
state = torch.where(accept, new, state)
print(accept, state)
""",
    find=find,
    traps=(
        Trap(
            "new = propose(state)",
            "new = propose(state.detach())",
            T(en="A detached tensor is on the same memory.", zh="detach 得到的张量用的是同一块内存。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.where.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.clone.html",
    ),
)
