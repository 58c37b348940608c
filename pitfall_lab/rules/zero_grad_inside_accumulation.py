"""PL602: gradients were cleared before an update could use them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import Loop, loops_around
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.training import Moment, cells, is_nothing, lives, stepper
from pitfall_lab.rules.kit.wording import at_line, called, capital, gradient_of, numbers
from pitfall_lab.trace import Span, T


@dataclass(frozen=True, slots=True)
class _Loss:
    """Gradients of the leaf ``label`` that were lost: they were added at ``added``, cleared at ``cleared``, and the
    statement ``update`` should have used them.

    ``again`` is the next moment at which gradients were added, if only those of earlier rounds are lost; None if all
    are. ``loop`` is the loop of the rounds, where the update comes after it; else None.
    """

    label: str
    added: Moment
    cleared: Moment
    again: Moment | None
    update: ast.stmt
    loop: Loop | None = None

    @property
    def always(self) -> bool:
        """Whether all gradients are lost, because they are cleared between backward and update."""
        return self.again is None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a ``zero_grad()`` that cleared gradients between their backward and the update
    that was to use them, or that clears them in each round of a loop whose update comes only after several rounds.
    """
    if story.program.tree is None:
        return
    reported: set[object] = set()
    for label, moments in lives(story).items():
        loss = _between(story, label, moments) or _inside(story, label, moments)
        if loss is not None and (place := story.span(loss.cleared.step)) not in reported:
            reported.add(place)
            yield _finding(story, loss)


def _lost(story: Story, moments: list[Moment]) -> Iterator[tuple[int, Moment, Moment]]:
    """Yield the gradients that a ``zero_grad()`` cleared before anything had used or read them.

    Each as the index of the moment at which it was added, that moment, and that of clearing.
    """
    for index, (one, other) in enumerate(itertools.pairwise(moments)):
        if one.kind != "added" or other.kind != "cleared" or story.said(other.step) != "zero_grad":
            continue
        if not any(one.step < use.step < other.step and use.span != other.event.span for use in story.uses(one.grad)):
            yield index, one, other


def _between(story: Story, label: str, moments: list[Moment]) -> _Loss | None:
    """The finding's data for ``loss.backward(); opt.zero_grad(); opt.step()``: the update
    gets no gradient, or only zeros.

    None if there is none.
    """
    program = story.program
    for index, added, cleared in _lost(story, moments):
        statement = program.statement_at(story.span(cleared.step))
        update = _step_after(story, statement) if statement is not None else None
        if statement is None or update is None:
            continue
        following = moments[index + 2] if index + 2 < len(moments) else None
        by_zeros = (
            following is not None
            and following.kind == "used"
            and program.statement_at(story.span(following.step)) is update
        )
        if by_zeros or not any(m.kind == "used" for m in moments):
            return _Loss(label, added, cleared, None, update)
    return None


def _step_after(story: Story, clearing: ast.stmt) -> ast.stmt | None:
    """The ``opt.step()`` after ``opt.zero_grad()`` in its block, with no backward in between; None if there is none."""
    program = story.program
    owner = _owner(clearing)
    block = program.block(clearing)
    for statement in block[block.index(clearing) + 1 :]:
        for call in [n for n in ast.walk(statement) if isinstance(n, ast.Call)]:
            if call_name(call) == "backward":
                return None
            if (
                call_name(call) == "step"
                and isinstance(call.func, ast.Attribute)
                and program.statement(call) is statement
            ):
                name = program.segment(call.func.value)
                if owner is not None and (
                    name == program.segment(owner) or _made_from(story, name, program.segment(owner))
                ):
                    return statement
    return None


def _owner(statement: ast.stmt) -> ast.expr | None:
    """The object of a method call: ``opt`` in ``opt.zero_grad()``; None if there is none."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def _made_from(story: Story, optimizer: str, model: str) -> bool:
    """Whether ``optimizer`` was made from ``model.parameters()``."""
    program = story.program
    made = [
        n.value
        for n in program.nodes
        if isinstance(n, ast.Assign) and optimizer in [program.segment(t) for t in n.targets]
    ]
    return any(f"{model}.parameters()" in program.segment(value) for value in made)


def _inside(story: Story, label: str, moments: list[Moment]) -> _Loss | None:
    """The data of the finding if gradients are cleared for each small batch, but updated only
    after several of them; else None.
    """
    for index, added, cleared in _lost(story, moments):
        again = next((m for m in moments[index + 2 :] if m.kind == "added"), None)
        used = next((m for m in moments[index + 2 :] if m.kind == "used"), None)
        if again is None or used is None or stepper(story, used.step) is None:
            continue
        kept = [m for m in moments[index + 2 :] if m.kind == "added" and m.step < used.step][-1:]
        if any(story.span(m.step) != story.span(added.step) for m in (again, *kept)):
            continue  # what the update uses was computed by another line: these gradients were for something else
        update = story.program.statement_at(story.span(used.step))
        rounds = loops_around(story, cleared.event)
        both = next(iter(loops_around(story, added.event)), None)
        if update is None or both is None or both not in rounds:
            continue  # cleared before the loop over the batches: the last ones of a pass are lost, not all but one
        if both not in loops_around(story, used.event):
            return _Loss(label, added, cleared, again, update, both)
        if _now_and_then(story, used, both) and not _now_and_then(story, cleared, both):
            return _Loss(label, added, cleared, again, update)
    return None


def _now_and_then(story: Story, moment: Moment, loop: Loop) -> bool:
    """Whether the line is inside an ``if`` inside ``loop`` that counts rounds, such as ``if i % 4 == 0``."""
    program = story.program
    tests = [
        around.test
        for statement in call_chain(story, moment.event)
        for around in program.ancestors(statement)
        if isinstance(around, ast.If) and loop in program.ancestors(around)
    ]
    names = {n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)}
    given = (
        n.value
        for n in ast.walk(loop)
        if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id in names for t in n.targets)
    )
    return any(isinstance(n, ast.Mod) for part in [*tests, *given] for n in ast.walk(part))


def _finding(story: Story, loss: _Loss) -> Finding:
    added, cleared = loss.added, loss.cleared
    place: Span = story.program.place(loss.update)
    gradient = gradient_of(called(story, loss.label, None, added.step))
    here, before, update = (
        at_line(story, story.span(cleared.step)),
        at_line(story, story.span(added.step)),
        at_line(story, place),
    )
    lost = cells(story, added.storage, added.step)
    shown = lost is not None and not is_nothing(story, added.storage, added.step)
    numbered = T(en=f" Here {gradient.en} = {numbers(lost)} is lost." if shown else "",
                 zh=f"这里丢掉了 {gradient.zh} = {numbers(lost)}。" if shown else "")  # fmt: skip
    if loss.always:
        message = T(
            en=f"{capital(here.en)} throws the gradients of {before.en} away before {update.en} can use them, "
            "so nothing is learned.",
            zh=f"{here.zh}在{update.zh}使用之前就丢掉了{before.zh}的梯度，所以什么也学不到。",
        )
        text = T(
            en="The order in each round is: clear, backward, step. `backward()` puts new gradients into `.grad`, "
            f"`step()` reads them there; `zero_grad()` between the two leaves nothing to read.{numbered.en}",
            zh="每一轮的顺序是：清零、反向传播、更新。`backward()` 把新的梯度放进 `.grad`，`step()` 从那里读取；"
            f"在两者之间 `zero_grad()`，就没有东西可读了。{numbered.zh}",
        )
    else:
        message = T(
            en=f"{capital(here.en)} clears the gradients in every round, but {update.en} uses them only after "
            "several; all but the last round's are lost.",
            zh=f"{here.zh}每一轮都把梯度清零，但{update.zh}要几轮之后才使用它们；除了最后一轮，其余各轮的梯度都丢了。",
        )
        text = T(
            en="To act like one large batch, the gradients of several small ones have to add up in `.grad` until the "
            f"update. Clear them once for each update, not once for each batch.{numbered.en}",
            zh="要让几个小批次等同于一个大批次，它们的梯度必须在 `.grad` 里累加到更新为止。应当每次更新清零一次，而不"
            f"是每个批次清零一次。{numbered.zh}",
        )
    return RULE.finding(
        story.span(cleared.step),
        cleared.step,
        message,
        text,
        related=[
            story.related(
                "backward", (loss.again or added).step, T(en="gradients are computed here …", zh="梯度在这里算出……")
            ),
            story.related("cleared", cleared.step, T(en="… thrown away here …", zh="……在这里被丢掉……")),
            Related("step", place, None, T(en="… and missing in this update", zh="……这次更新就缺了它们")),
        ],
        fixes=_fixes(story, loss),
        facts=[Fact("tensor", loss.label, story.by(cleared.step)), Fact("lost", lost)],
    )


def _fixes(story: Story, loss: _Loss) -> tuple[Fix, ...]:
    program = story.program
    clearing, backward = (program.statement_at(story.span(m.step)) for m in (loss.cleared, loss.added))
    if clearing is None or backward is None or not program.stands_alone(clearing):
        return ()
    text = program.segment(clearing)
    candidates: list[Fix | None] = []

    def moved(title: T, *edits: object) -> None:
        joined = merge(program.delete(clearing), *edits)  # type: ignore[arg-type]
        candidates.append(Fix(title, joined, meaning="recompute") if joined else None)

    if loss.always and backward in program.block(clearing):
        moved(
            T(en=f"Move `{text}` before the backward", zh=f"把 `{text}` 移到反向传播之前"),
            program.insert_before(backward, text),
        )
    if loss.loop is not None and program.function(loss.loop) is program.function(clearing):
        moved(T(en=f"Move `{text}` before the loop over the small batches", zh=f"把 `{text}` 移到小批次的循环之前"),
              program.insert_before(loss.loop, text))  # fmt: skip
    if program.function(loss.update) is program.function(clearing):
        moved(
            T(en=f"Move `{text}` after the update", zh=f"把 `{text}` 移到更新之后"),
            program.insert_after(loss.update, text),
        )
    return unique(program.text, candidates)


RULE = Rule(
    code="PL602",
    name="zero-grad-inside-accumulation",
    severity="warning",
    title=T(en="Gradients were cleared before the update could use them", zh="梯度在更新使用之前就被清零"),
    what=T(
        en="A program computes gradients and throws them away before the weights are updated. Clear them once for "
        "each update: right after it, or before the first backward that belongs to the next one.",
        zh="程序算出了梯度，却在更新权重之前把它们丢掉了。每次更新清零一次：在更新之后，或在属于下一次更新"
        "的第一个反向传播之前。",
    ),
    why=T(
        en="`backward()` adds to `.grad`, `step()` reads `.grad`, `zero_grad()` empties it. Nothing between a "
        "backward and its step must empty it. When the gradients of several small batches are to add up to one "
        "update (gradient accumulation), this holds for the whole time between two updates: a `zero_grad()` at "
        "the beginning of each small batch keeps only the last one. Nothing fails, the loss even goes down; most "
        "of the work was for nothing.",
        zh="`backward()` 累加到 `.grad`，`step()` 读取 `.grad`，`zero_grad()` 清空它。反向传播和它的更新之间不能清空。"
        "如果要把几个小批次的梯度累加成一次更新（梯度累积），那么两次更新之间的整段时间都是如此：在每个小批次开头 "
        "`zero_grad()`，就只留下最后一个批次。什么都不会报错，损失甚至还会下降；只是大部分计算都白做了。",
    ),
    bad="""import torch

w = torch.tensor(2.0, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for i, x in enumerate(torch.tensor([1.0, 5.0, 1.0, 5.0])):
    opt.zero_grad()  # PL602 cleared
    loss = (w - x) ** 2 / 2
    loss.backward()  # backward
    if i % 2 == 1:
        opt.step()  # step
        print(w.item())
""",
    good="""import torch

w = torch.tensor(2.0, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for i, x in enumerate(torch.tensor([1.0, 5.0, 1.0, 5.0])):
    loss = (w - x) ** 2 / 2
    loss.backward()
    if i % 2 == 1:
        opt.step()
        opt.zero_grad()
        print(w.item())
""",
    find=find,
    traps=(
        Trap(
            "loss.backward()",
            "loss.backward(retain_graph=True)",
            T(
                en="This keeps the record of the computation, not the gradients; they are still cleared.",
                zh="这保留的是计算的记录，而不是梯度；梯度照样被清零。",
            ),
        ),
        Trap(
            "lr=0.1",
            "lr=0.2",
            T(
                en="A larger learning rate makes up for the missing size but not for the missing batches: only "
                "every second one counts.",
                zh="更大的学习率能弥补大小，却弥补不了缺失的批次：仍然只从一半的批次中学习。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
    ),
)
