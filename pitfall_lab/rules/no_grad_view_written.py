"""PL203: a view that was made under ``no_grad()`` was written where operations are recorded."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.trace import Event, Failure, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each in-place write that torch refused because the written view was made under
    ``no_grad()``.
    """
    for step, failure in story.failures("no-grad-view-modified"):
        if _writes(
            story.events[step]
        ):  # torch refuses some reads in the same way, after a write inside no_grad(): another story
            yield _finding(story, step, failure)


def _writes(event: Event) -> bool:
    """Whether the call itself writes: ``add_``, ``h[0] = 1``, ``out=h``."""
    in_place = event.name.endswith("_") and not event.name.endswith("__")
    return in_place or event.name == "__setitem__" or any(operand.name == "out" for operand in event.operands)


def _finding(story: Story, step: int, failure: Failure) -> Finding:
    span = failure.span or story.span(step)
    label = failure.tensor or next((o.label for o in story.events[step].operands if o.label), None)
    record = story.tensor(label, step) or {}
    made, base = record.get("born"), record.get("base")
    is_leaf = bool((story.tensor(base, step) or {}).get("is_leaf"))
    view, whole = story.name(label, step), called(story, base, None, step)
    part = T(en=f"`{view}`, a part of {whole.en}", zh=f"`{view}`（{whole.zh} 的一部分）") if view else T(
        en=f"a part of {whole.en}", zh=f"{whole.zh} 的一部分")  # fmt: skip
    here, there = at_line(story, span), at_line(story, story.span(made))
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} changes {part.en}; it was taken while torch recorded no graph ({there.en}) and is "
            "changed while torch records one, and torch cannot decide which of the two is meant.",
            zh=f"{here.zh}修改了 {part.zh}；取出它时 torch 不记录计算图（{there.zh}），修改它时又记录，"
            "torch 无法判断你要哪一种。",
        ),
        T(
            en=f"On {there.en}, inside `no_grad()`, torch did not note how the part comes from {whole.en}. If it "
            f"recorded the change on {here.en}, {whole.en} would hold changed numbers without a record of the "
            "change. If it did not record it, the gradient would leave the change out. Take and change the part "
            "in the same mode: both recorded, when the change belongs to the computation, or both inside "
            "`no_grad()`, when it is an update.",
            zh=f"{there.zh}在 `no_grad()` 里，torch 没有记录这一部分是怎样来自 {whole.zh} 的。"
            f"如果把{here.zh}的修改记录下来，{whole.zh} 里的数变了，却没有一条经过这次修改往回走的路；"
            "如果不记录，梯度就会漏掉这次修改。请在同一种模式下取出和修改：修改属于计算时，两者都记录；"
            "只是更新时，两者都放在 `no_grad()` 里。",
        ),
        related=[
            story.related(
                "made",
                made,
                T(
                    en=f"the part of {whole.en} is taken here, where torch records no graph",
                    zh=f"在这里取出 {whole.zh} 的一部分，此时 torch 不记录计算图",
                ),
            ),
            story.related(
                "changed",
                step,
                T(
                    en=f"`{statement_text(story, span)}` would change it where torch records a graph, and torch raises",
                    zh=f"`{statement_text(story, span)}` 要在 torch 记录计算图时修改它，torch 报错",
                ),
            ),
        ],
        fixes=_fixes(story, step, made, is_leaf=is_leaf),
        facts=[Fact("tensor", label, story.by(step)), Fact("base", base, story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _fixes(story: Story, step: int, made: int | None, *, is_leaf: bool) -> tuple[Fix, ...]:
    """Fixes: write to a leaf under ``no_grad()``; make the view of a computed tensor outside ``no_grad()``.

    Empty if the program's source does not show both statements.
    """
    program = story.program
    write, view = (program.statement_at(story.span(at)) if program.tree else None for at in (step, made))
    if write is None or view is None:
        return ()
    candidates: list[Fix | None] = []
    if is_leaf:
        if (name := torch_name(program)) and program.stands_alone(write) and not hasattr(write, "body"):
            title = T(en="Change it inside `no_grad()` too: it is an update", zh="修改也放进 `no_grad()`：它是一次更新")
            candidates.append(Fix(title, guarded(program, write, name)))
    else:
        title = T(
            en="Take the part outside `no_grad()`, so that the change is recorded",
            zh="在 `no_grad()` 之外取出，让修改被记录",
        )
        candidates.append(Fix(title, _outside(program, view)))
        candidates.append(Fix(title, _undecorated(program, view)))
        if isinstance(view, ast.Assign) and program.function(view) is program.function(write):
            candidates.append(Fix(title, program.insert_before(write, program.segment(view))))
    return unique(program.text, candidates)


def guarded(program: Program, statement: ast.stmt, torch: str) -> tuple[Edit, ...]:
    """Return the edit that puts ``with torch.no_grad():`` around all lines of ``statement``, as a tuple of one;
    ``torch`` is the program's name for the module.

    No other statement may be on these lines.
    """
    place, indent = program.place(statement), program.indent(statement)
    inner = "".join("    " + line if line.strip() else line for line in program.lines[place.line - 1 : place.end_line])
    return (
        Edit(
            place.line,
            place.end_line,
            f"{indent}with {torch}.no_grad():\n" + (inner if inner.endswith("\n") else inner + "\n"),
        ),
    )


def _outside(program: Program, view: ast.stmt) -> tuple[Edit, ...]:
    """Return edits that move ``view`` out of the ``with`` block around it: before it if it is the
    first statement, else after it.

    If ``view`` is all that the block contains, the block is removed. Empty if there is no such block of a grad mode.
    """
    block = program.parents.get(view)
    if not isinstance(block, ast.With) or "grad" not in _head(program, block):
        return ()
    if not program.stands_alone(view) or block.lineno == view.lineno:
        return ()
    text = program.segment(view)
    if len(block.body) == 1:
        place = program.place(block)
        return (Edit(place.line, place.end_line, f"{program.indent(block)}{text}\n"),)
    if view is block.body[0]:
        return merge(program.delete(view), program.insert_before(block, text)) or ()
    return merge(program.delete(view), program.insert_after(block, text)) or ()


def _head(program: Program, block: ast.With) -> str:
    return " ".join(program.segment(item.context_expr) for item in block.items)


def _undecorated(program: Program, view: ast.stmt) -> tuple[Edit, ...]:
    """Return edits that remove ``@torch.no_grad()`` from the function that makes the view;
    empty unless it has exactly one.
    """
    function = program.function(view)
    marks = [mark for mark in function.decorator_list if "no_grad" in program.segment(mark)] if function else []
    return (Edit(marks[0].lineno, marks[0].lineno, ""),) if len(marks) == 1 else ()


RULE = Rule(
    code="PL203",
    name="no-grad-view-written",
    severity="error",
    title=T(
        en="A part taken inside `no_grad()` was changed outside of it", zh="在 `no_grad()` 里取出的部分在外面被修改"
    ),
    what=T(
        en="A part of a tensor (`first = h[:2]`) was taken inside `torch.no_grad()`, and a line outside of it changes "
        "that part (`first *= 3`). Torch stops there with an error, because it cannot know whether the change counts "
        "for the gradient. Take the part and change it in the same place: both outside, or both inside.",
        zh="在 `torch.no_grad()` 里取出了张量的一部分（`first = h[:2]`），而它外面的一行修改了这一部分（`first *= "
        "3`）。torch 在那里报错，因为它不知道这次修改算不算进梯度。请在同一处取出和修改：都在外面，或者都在里面。",
    ),
    why=T(
        en="`h[:2]` is a *view*: it looks at the memory of `h`. When a view of a computed tensor is changed, torch "
        "rewrites its record (the *graph*) so that `h` is the result of the change, and the view is taken again from "
        "there. For that it must know how the view was taken. Inside `no_grad()` nothing is recorded, and a view made "
        "there looks like a constant. Recording the change would make `h` hold numbers that its graph does not "
        "explain; not recording it would silently drop it from the gradient. Torch refuses to guess. Reading such a "
        "view is fine, and so is writing it inside `no_grad()`.",
        zh="`h[:2]` 是*视图*：它看的是 `h` 的内存。修改一个算出来的张量的视图时，torch 会改写它的记录（*计算图*），让 "
        "`h` 成为这次修改的结果，视图再从那里重新取得。为此它必须知道视图是怎么取的。`no_grad()` 里什么也不记录，在那"
        "里得到的视图看起来像常量。如果记录这次修改，`h` 里的数就无法由它的计算图解释；如果不记录，梯度就会悄悄漏掉"
        "它。torch 拒绝猜测。读这样的视图没有问题，在 `no_grad()` 里写它也没有问题。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = x * 2
with torch.no_grad():
    first = h[:2]  # made
first *= 3  # PL203 changed
loss = h.sum()
loss.backward()
print(x.grad)
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = x * 2
first = h[:2]
first *= 3
loss = h.sum()
loss.backward()
print(x.grad)
""",
    find=find,
    traps=(
        Trap(
            "first *= 3",
            "with torch.no_grad():\n    first *= 3",
            T(
                en="The error is gone, and `h` holds the changed numbers, but torch has not recorded the factor: "
                "`x.grad` is 2 everywhere instead of 6, 6, 2.",
                zh="不再报错，`h` 里的数也变了，但 torch 不知道这个因数：`x.grad` 处处是 2，而不是 6、6、2。",
            ),
        ),
        Trap(
            "first *= 3",
            "first = first * 3",
            T(
                en="Now `h` keeps its old numbers: the loss does not contain the change at all.",
                zh="现在 `h` 保持原来的数值：损失里根本没有这次修改。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html",
        "https://docs.pytorch.org/docs/stable/tensor_view.html",
    ),
)
