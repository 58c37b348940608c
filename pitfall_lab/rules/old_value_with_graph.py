"""PL542: a value of the weights was kept with its graph: after an update it is an old value,
and still sends them gradients.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet
from pitfall_lab.rules.signals.old_values import Old, old_values
from pitfall_lab.trace import Span, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computed something from a parameter before an update, if one backward of a
    training goes back through that and through what was computed from the parameter after the update.

    Nothing where torch has raised because of the update: that error has its own finding.
    """
    if story.failures("saved-tensor-modified"):
        return
    reported = set()
    for found in old_values(story):
        if not found.new or not _goes_on(story, found):
            continue
        place = _place(story, found.old[0])
        if place is not None and place not in reported:
            reported.add(place)
            yield _finding(story, found)


def _place(story: Story, node: str) -> Span | None:
    return story.span((story.record("nodes", node) or {}).get("born"))


def _goes_on(story: Story, found: Old) -> bool:
    """Whether the update since the old value was made and the next one after the backward are of one
    line: two rounds of a training.
    """
    used = [m.step for m in lives(story)[found.leaf] if m.kind == "used"]
    following = used[bisect_right(used, found.backward.step) :]
    return bool(following) and story.span(following[0]) == story.span(found.update)


def _cancels(story: Story, found: Old) -> str | None:
    """The node of a difference between the parameter and an unchanged copy of it, whose two gradients
    cancel exactly; None if none is.
    """
    for node in found.new:
        record = story.record("nodes", node) or {}
        copies = [other for other in record.get("next") or () if other in found.old]
        if str(record.get("name")).startswith("SubBackward") and any(_is_copy(story, other) for other in copies):
            return node
    return None


def _is_copy(story: Story, node: str) -> bool:
    return (story.record("nodes", node) or {}).get("name") == "CloneBackward0"


def _finding(story: Story, found: Old) -> Finding:
    node = story.record("nodes", found.old[0]) or {}
    made, step, output = node.get("born"), found.backward.step, node.get("output")
    span = story.span(made)
    here, update, back = (at_line(story, each) for each in (span, story.span(found.update), story.span(step)))
    name, code = called(story, found.leaf, None, step), snippet(story, span)
    used = next((use for use in story.uses(output) if found.update < use.step < step and not use.writes), None)
    difference = _cancels(story, found)
    related = [story.related("made", made, T(en="computed here, with its graph", zh="在这里算出，带着计算图"))]
    related.append(
        story.related(
            "step",
            found.update,
            T(en="the parameter is changed here: from now on it is an old value", zh="参数在这里改变：从此它就是旧值"),
        )
    )
    if used is not None:
        related.append(story.related("used", used.step, T(en="the old value is used here", zh="旧值在这里被使用")))
    related.append(
        story.related(
            "backward", step, T(en="goes back through the old and the new value", zh="同时穿过旧值和新值往回走")
        )
    )
    return RULE.finding(
        span,
        made,
        _cancelled(story, found, difference, name)
        if difference is not None
        else T(
            en=f"{capital(here.en)} keeps `{code}` with its graph. After the update on {update.en} it is an old "
            f"value, but the backward on {back.en} still sends its gradient to {name.en}.",
            zh=f"{here.zh}保留了带着计算图的 `{code}`。{update.zh}的更新之后它已是旧值，但{back.zh}的反向传播仍把它的"
            f"梯度送到 {name.zh}。",
        ),
        T(
            en=f"`{code}` was computed from {name.en} as it was before the update on {update.en}; the graph says that "
            "it still depends on it. What is to stay as it was must be a number without a history: `detach()`.",
            zh=f"`{code}` 是由{update.zh}更新之前的 {name.zh} 算出的；计算图却说它仍依赖于 {name.zh}。要保持原样的东西"
            "应当是没有历史的数：`detach()`。",
        ),
        related=related,
        fixes=_fixes(story, found),
        facts=[
            Fact("tensor", found.leaf, story.by(step)),
            Fact("old", output, story.by(made)),
            Fact("cancels", difference is not None),
        ],
    )


def _cancelled(story: Story, found: Old, difference: str, name: T) -> T:
    """The message where a parameter is compared with an old copy of it, so that the two gradients cancel."""
    kept, span = _place(story, found.old[0]), _place(story, difference)
    here, where, back = (at_line(story, each) for each in (kept, span, story.span(found.backward.step)))
    code, shown = snippet(story, kept), snippet(story, span)
    return T(
        en=f"{capital(here.en)} keeps `{code}` with its graph, so the gradients of `{shown}` on {where.en} reach "
        f"{name.en} twice, with opposite signs: for the backward on {back.en} this difference does not exist.",
        zh=f"{here.zh}保留了带着计算图的 `{code}`，所以{where.zh}的 `{shown}` 的梯度以相反的符号两次到达 {name.zh}："
        f"对{back.zh}的反向传播来说，这个差并不存在。",
    )


def _fixes(story: Story, found: Old) -> tuple[Fix, ...]:
    """At most one fix: it detaches the old value where it is made. Empty if that line shows no expression."""
    program = story.program
    node = program.at(_place(story, found.old[0])) if program.tree is not None else None
    if not isinstance(node, ast.expr):
        return ()
    text = f"{operand(program, node)}.detach()"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and call_name(node) == "clone":
        text = f"{operand(program, node.func.value)}.detach().clone()"
    title = T(en=f"Keep it without its history: `{text}`", zh=f"保留它，但不带历史：`{text}`")
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="term")])


RULE = Rule(
    code="PL542",
    name="old-value-with-graph",
    severity="warning",
    title=T(en="An old value of the weights still sends them gradients", zh="权重的旧值仍在给权重送梯度"),
    what=T(
        en="A program kept a copy of the weights to compare them with later, and the copy remembers what it was "
        "copied from. The gradient of the comparison then goes to the weights twice, once through the copy, and "
        "cancels. Keep the copy without its history: `w.detach().clone()`.",
        zh="程序保留了权重的副本，以便之后与之比较，而副本记得自己是从哪里复制来的。于是比较的梯度两次到达权重，一次经"
        "过副本，并互相抵消。请保留不带历史的副本：`w.detach().clone()`。",
    ),
    why=T(
        en="`clone()` is an operation like any other: its result has a *graph* that leads back to the parameter. An "
        "update changes the parameter in place, and torch only checks the version of tensors that were saved for "
        "backward; `clone`, sums and concatenations save nothing, so the next backward goes through the old result "
        "and adds its gradient to the new parameter. That is the derivative of no function: the loss was computed "
        "from two different values, and the graph takes them for one.",
        zh="`clone()` 和其他运算一样：它的结果有一张通回参数的*计算图*。更新就地改变参数，而 torch 只检查为反向传播保"
        "存的张量的版本；`clone`、求和与拼接什么都不保存，所以下一次反向传播会穿过旧的结果，把它的梯度加到新的参数上。"
        "这不是任何函数的导数：损失由两个不同的值算出，计算图却把它们当成一个。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
start = w.clone()  # PL542 made
for _ in range(3):
    loss = (w - 5).square().sum() + 10 * (w - start).square().sum()  # used
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()  # step
print(w)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
start = w.detach().clone()
for _ in range(3):
    loss = (w - 5).square().sum() + 10 * (w - start).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(w)
""",
    find=find,
    traps=(
        Trap(
            "start = w.clone()",
            "start = w.detach()",
            T(
                en="Without `clone()` it is the same memory, so it moves along and the difference is always 0.",
                zh="没有 `clone()`，它就是同一块内存，会跟着一起变，差总是 0。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
    ),
)
