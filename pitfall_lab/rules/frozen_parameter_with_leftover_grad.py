"""PL607: a parameter was frozen, but its old gradient was still there, and the optimizer continued to move it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import Moment, cells, lives, stepper
from pitfall_lab.rules.kit.wording import at_line, called, capital, difference, gradient_of, numbers
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that froze parameters without clearing their ``.grad``, if an optimizer's step
    then still changed their values.
    """
    reported: set[object] = set()
    for label, moments in lives(story).items():
        frozen: Moment | None = None
        for moment in moments:
            if moment.kind == "frozen":
                frozen = moment
            elif moment.kind == "added":
                frozen = None  # it was thawed
            elif (
                moment.kind == "used"
                and frozen is not None
                and stepper(story, moment.step) is not None
                and moment.grad is not None
            ):
                place = story.span(frozen.step)
                if place not in reported and _moved(story, label, moment):
                    reported.add(place)
                    yield _finding(story, label, frozen, moment)


def _storage(story: Story, label: str, step: int) -> str | None:
    return (story.tensor(label, step) or {}).get("storage")


def _moved(story: Story, label: str, used: Moment) -> bool:
    """Whether the update is known to have changed values of the parameter."""
    storage = _storage(story, label, used.step)
    old, new = cells(story, storage, used.step - 1), cells(story, storage, used.step)
    return old is not None and new is not None and bool(difference(old, new))


def _finding(story: Story, label: str, frozen: Moment, used: Moment) -> Finding:
    name = called(story, label, None, used.step)
    gradient = gradient_of(name)
    storage = _storage(story, label, used.step)
    old, new, left = (
        cells(story, storage, used.step - 1),
        cells(story, storage, used.step),
        cells(story, used.storage, used.step),
    )
    backward = max((b.step for b in story.backwards() if b.step < used.step), default=None)
    froze, update = at_line(story, story.span(frozen.step)), at_line(story, story.span(used.step))
    return RULE.finding(
        story.span(frozen.step),
        frozen.step,
        T(
            en=f"{capital(froze.en)} freezes {name.en}, but its old gradient is still there, so {update.en} keeps "
            f"moving it: {numbers(old)} became {numbers(new)}.",
            zh=f"{froze.zh}冻结了 {name.zh}，但它的旧梯度还在，所以{update.zh}继续移动它：{numbers(old)} "
            f"变成了 {numbers(new)}。",
        ),
        T(
            en=(
                "`requires_grad = False` only says that no new gradient is computed. The optimizer does not read it: "
                f"it moves every parameter it was given whose `.grad` is not `None`. {capital(gradient.en)} is "
                f"{numbers(left)} here"
            )
            + (
                "; even a gradient of zero moves it, by momentum or weight decay."
                if left is not None and not difference(left, [0.0] * 999)
                else "."
            )
            + " Set it to `None` when you freeze.",
            zh="`requires_grad = False` 只表示不再计算新的梯度。优化器并不查看它：凡是交给它、且 `.grad` 不是 `None` "
            f"的参数，它都会移动。这里 {gradient.zh} 是 {numbers(left)}；即使梯度为零，动量或权重衰减也会移动它。冻结"
            "时请把它设为 `None`。",
        ),
        related=[
            story.related(
                "changed",
                frozen.step,
                T(en="it is frozen here, with a gradient left over", zh="在这里被冻结，但梯度还留着"),
            ),
            *(
                [
                    story.related(
                        "around", backward, T(en="later gradients are computed without it", zh="之后的梯度不再包含它")
                    )
                ]
                if backward is not None
                else []
            ),
            story.related("step", used.step, T(en="the optimizer still moves it", zh="优化器照样移动它")),
        ],
        fixes=_fixes(story, frozen),
        facts=[
            Fact("tensor", label, story.by(used.step)),
            Fact("before", old),
            Fact("after", new),
            Fact("gradient", left),
        ],
    )


def _fixes(story: Story, frozen: Moment) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(frozen.step)) if program.tree is not None else None
    statement = program.statement(node)
    if statement is None:
        return ()
    target: ast.expr | None = None
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
        target = statement.targets[0].value
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
    ):
        target = statement.value.func.value
    if target is None:
        return ()
    text = program.segment(target)
    # of a module its zero_grad() clears the gradients; a tensor's gradient is an attribute
    tensors = Fix(
        T(
            en=f"Throw the gradient away when freezing: `{text}.grad = None`",
            zh=f"冻结时丢掉梯度：`{text}.grad = None`",
        ),
        program.insert_after(statement, f"{text}.grad = None"),
        meaning="recompute",
    )
    module = Fix(
        T(
            en=f"Throw the gradients away when freezing: `{text}.zero_grad()`",
            zh=f"冻结时丢掉梯度：`{text}.zero_grad()`",
        ),
        program.insert_after(statement, f"{text}.zero_grad()"),
        meaning="recompute",
    )
    return unique(program.text, [tensors] if story.said(frozen.step) != "requires_grad_" else [module, tensors])


RULE = Rule(
    code="PL607",
    name="frozen-parameter-with-leftover-grad",
    severity="warning",
    title=T(en="A frozen parameter was still moved by its old gradient", zh="冻结的参数仍被旧梯度移动"),
    what=T(
        en="A part of a model was frozen during training, but the optimizer still moved it, because its last gradient "
        "had not been thrown away. Set `.grad` to `None` when you freeze.",
        zh="训练中冻结了模型的一部分，但优化器仍然移动了它，因为最后一次的梯度没有丢掉。冻结时请把 "
        "`.grad` 设为 `None`。",
    ),
    why=T(
        en="`requires_grad` belongs to the recording of computations: without it no gradient is computed for the "
        "parameter in later backwards. `.grad` and the optimizer's own memory (momentum, Adam's averages) stay as "
        "they are. `step()` updates every parameter of its list that has a `.grad`, be it old or zero; with momentum, "
        "Adam or weight decay even a zero gradient moves it. `zero_grad()` sets gradients to `None` by default, and a "
        "parameter with `.grad` equal to `None` is left alone.",
        zh="`requires_grad` 只影响计算的记录：关掉之后，以后的反向传播不再为这个参数计算梯度。`.grad` 和优化器自己的记"
        "忆（动量、Adam 的平均值）都不变。`step()` 更新列表中每个有 `.grad` 的参数，不管它是旧的还是零；有动量、Adam "
        "或权重衰减时，零梯度也会移动它。`zero_grad()` 默认把梯度设为 `None`，而 `.grad` 为 `None` 的参数不会被动。",
    ),
    bad="""import torch

base = torch.tensor([1.0], requires_grad=True)
head = torch.tensor([1.0], requires_grad=True)
opt = torch.optim.SGD([base, head], lr=0.1, momentum=0.9)
for epoch in range(4):
    if epoch == 2:
        base.requires_grad = False  # PL607 changed
    loss = (base * head - 3).pow(2).sum()
    opt.zero_grad(set_to_none=False)
    loss.backward()
    opt.step()  # step
    print(epoch, base.item())
""",
    good="""import torch

base = torch.tensor([1.0], requires_grad=True)
head = torch.tensor([1.0], requires_grad=True)
opt = torch.optim.SGD([base, head], lr=0.1, momentum=0.9)
for epoch in range(4):
    if epoch == 2:
        base.requires_grad = False
        base.grad = None
    loss = (base * head - 3).pow(2).sum()
    opt.zero_grad(set_to_none=False)
    loss.backward()
    opt.step()
    print(epoch, base.item())
""",
    find=find,
    traps=(
        Trap(
            "base.requires_grad = False",
            "base.grad.zero_()",
            T(
                en="A gradient of zero is still a gradient: momentum continues to move `base`, and the next "
                "backward fills it again.",
                zh="零梯度也是梯度：动量继续移动 `base`，下一次反向传播又会填上新的梯度。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#setting-requires-grad",
    ),
)
