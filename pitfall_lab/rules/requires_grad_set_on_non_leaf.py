"""PL207: ``requires_grad`` of a computed tensor was set. Only that of a leaf can be."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.trace import Event, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call or assignment by which the program set ``requires_grad`` of a computed tensor and
    which torch refused.
    """
    for event in story.calls("requires_grad", "requires_grad_"):
        if event.error is not None and event.error.kind == "other" and event.operands:
            record = story.tensor(event.operands[0].label, event.step) or {}
            if record.get("grad_fn") and not record.get("is_leaf"):
                yield _finding(story, event, wanted=_wanted(event))


def _wanted(event: Event) -> bool:
    """Whether the event that failed is ``h.requires_grad = True``; the method ``requires_grad_()`` fails only for
    False.
    """
    return event.name == "requires_grad" and any(operand.text == "True" for operand in event.operands)


def _finding(story: Story, event: Event, *, wanted: bool) -> Finding:
    step, label = event.step, event.operands[0].label
    span = story.span(step)
    born = (story.tensor(label, step) or {}).get("born")
    name = _name(story, event) or called(story, label, None, step)
    here, there = at_line(story, span), at_line(story, story.span(born))
    does = T(en="requests", zh="要求") if wanted else T(en="switches off", zh="关闭")
    instead = (
        T(
            en="No request is needed: a result of something that requires a gradient requires one itself. "
            "`retain_grad()` makes torch keep it.",
            zh="不需要要求：由要求梯度的张量算出来的结果本身就要求梯度。`retain_grad()` 让 torch 保留它。",
        )
        if wanted
        else T(
            en="To continue without the history, use another tensor with the same numbers: `detach()`.",
            zh="要不带历史地继续计算，请使用数值相同的另一个张量：`detach()`。",
        )
    )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} {does.en} the gradient of {name.en}, but {name.en} was computed from other "
            f"tensors ({there.en}), and this can be set only where a computation begins.",
            zh=f"{here.zh}{does.zh} {name.zh} 的梯度，但 {name.zh} 是由别的张量算出来的（{there.zh}），而这只"
            "能在计算的起点设置。",
        ),
        T(
            en=f"Whether {name.en} takes part in backward follows from what it was computed from on "
            f"{there.en}. {instead.en}",
            zh=f"往回走时是否经过 {name.zh}，取决于它在{there.zh}是由什么算出来的。{instead.zh}",
        ),
        related=[
            story.related("made", born, T(en=f"{name.en} is computed here", zh=f"{name.zh} 在这里算出")),
            story.related(
                "changed",
                step,
                T(
                    en=f"`{statement_text(story, span)}` would change the flag, and torch raises",
                    zh=f"`{statement_text(story, span)}` 要改变这个标志，torch 报错",
                ),
            ),
        ],
        fixes=_fixes(story, event, wanted=wanted),
        facts=[Fact("tensor", label, story.by(step))],
        predicted=event.by == "agreed",
    )


def _name(story: Story, event: Event) -> T | None:
    """The name of the tensor in the line itself, because names inside a function are not always
    known; None if there is none.
    """
    node = story.program.at(story.span(event.step)) if story.program.tree else None
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    text = story.program.segment(owner) if isinstance(owner, ast.Name) else ""
    return T(en=f"`{text}`", zh=f"`{text}`") if text else None


def _fixes(story: Story, event: Event, *, wanted: bool) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step)) if program.tree else None
    statement = program.statement(node)
    if node is None or statement is None:
        return ()
    target: ast.expr | None = None
    if (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Attribute)
    ):
        target = statement.targets[0].value
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
    ):
        target = statement.value.func.value
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "requires_grad_"
        and not wanted
    ):
        title = T(
            en="Use the same numbers without their history: `detach()`", zh="使用同样的数值，但不带历史：`detach()`"
        )
        return unique(
            program.text, [Fix(title, program.replace((node, f"{program.segment(node.func.value)}.detach()")))]
        )
    if not isinstance(target, ast.Name):
        return ()
    name = target.id
    if wanted:
        title = T(
            en=f"Make torch keep its gradient: `{name}.retain_grad()`",
            zh=f"请 torch 保留它的梯度：`{name}.retain_grad()`",
        )
        return unique(program.text, [Fix(title, program.replace((statement, f"{name}.retain_grad()")))])
    title = T(
        en=f"Use the same numbers, without history: `{name}.detach()`",
        zh=f"用同样的数值、不带历史地继续：`{name}.detach()`",
    )
    return unique(program.text, [Fix(title, program.replace((statement, f"{name} = {name}.detach()")))])


RULE = Rule(
    code="PL207",
    name="requires-grad-set-on-non-leaf",
    severity="error",
    title=T(en="`requires_grad` was set on a computed tensor", zh="对算出来的张量设置了 `requires_grad`"),
    what=T(
        en="A line sets `requires_grad` of a tensor that was computed from others, and torch stops there with an "
        "error. Only a tensor at the beginning of a computation can have `requires_grad` set. To use a result as a "
        "plain number, write `h = h.detach()`; to see its gradient, write `h.retain_grad()`.",
        zh="有一行设置了一个由别的张量算出来的张量的 `requires_grad`，torch 在那里报错。只有计算起点上的张量才能设置要"
        "不要梯度。要把结果当作普通数值使用，请写 `h = h.detach()`；要查看它的梯度，请写 `h.retain_grad()`。",
    ),
    why=T(
        en="A tensor that was not computed is a *leaf*, and `requires_grad` is yours to choose there. For a result it "
        "says that the record of operations (the *graph*) leads back through it to some leaf; switching it off would "
        "tear a hole into that record, which other results may need. `detach()` leaves the record as it is and gives "
        "a second tensor on the same memory, outside of it. To freeze a part of a model, switch `requires_grad` off "
        "at its parameters, which are leaves, before the computation.",
        zh="不是算出来的张量叫作*叶子*，它的 `requires_grad` 由你决定。对于一个结果，它表示运算的记录（*计算图*）"
        "经过它可以回到某个叶子；关闭它就会在记录中撕开一个口子，而别的结果可能还需要这份记录。`detach()` 不动这份"
        "记录，而是给出同一块内存上、记录之外的另一个张量。要冻结模型的一部分，请在计算之前关闭它的参数的 "
        "`requires_grad`：参数是叶子。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = w * 2
scale = h.sum()  # made
scale.requires_grad = False  # PL207 changed
loss = (h / scale).square().sum()
loss.backward()
print(w.grad)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = w * 2
scale = h.sum()
scale = scale.detach()
loss = (h / scale).square().sum()
loss.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "scale.requires_grad = False",
            "scale = scale.clone()",
            T(
                en="A copy has other memory but the same history: the gradient still passes through `scale`, as if "
                "nothing had been switched off.",
                zh="副本的内存不同，但历史相同：梯度仍然经过 `scale`，就像什么也没有关闭。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#setting-requires-grad",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
    ),
)
