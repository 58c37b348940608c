"""PL629: an attribute was set under a name that torch never reads, so nothing changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.trace import Stray, T

OWNERS = {
    "tensor": T(en="a tensor", zh="张量"),
    "module": T(en="a module", zh="模块"),
    "optimizer": T(en="an optimizer", zh="优化器"),
}


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that set an attribute of a tensor, module or optimizer under a name that torch
    never reads.

    Nothing if the program reads an attribute of this name itself, or if it would have frozen only parameters that no
    optimizer holds.
    """
    reported = set()
    for stray in story.trace.beside.strays:
        place = _set(story, stray)
        if place is None or place in reported or _is_read(story, stray) or not _matters(story, stray):
            continue
        reported.add(place)
        yield _finding(story, stray, place)


def _set(story: Story, stray: Stray) -> ast.Attribute | None:
    """Return the attribute in the program's assignment to it, if possible in one that assigns the recorded value; None
    if no statement assigns it.
    """
    stores = (
        n
        for n in story.program.nodes
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and n.attr == stray.attribute
    )
    found = [n for n in stores if isinstance(story.program.parents.get(n), ast.Assign)]
    same = [n for n in found if _value(story, n) == stray.value]
    return next(iter(same or found), None)


def _value(story: Story, target: ast.Attribute) -> object:
    statement = story.program.parents[target]
    value = statement.value if isinstance(statement, ast.Assign) else None
    return value.value if isinstance(value, ast.Constant) else None


def _is_read(story: Story, stray: Stray) -> bool:
    """Whether the program reads an attribute of this name; if torch reads that name too,
    only reads from ``self`` count.
    """
    reads = (
        n
        for n in story.program.nodes
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and n.attr == stray.attribute
    )
    return any(
        stray.attribute != stray.meant or (isinstance(n.value, ast.Name) and n.value.id == "self") for n in reads
    )


def _matters(story: Story, stray: Stray) -> bool:
    """Whether the attribute would have had an effect: False only if it was to freeze parameters none of which an
    optimizer holds.
    """
    if stray.kind == "optimizer" or stray.meant != "requires_grad" or stray.value:
        return True
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    return not stray.holds or bool(held & set(stray.holds))


def _finding(story: Story, stray: Stray, target: ast.Attribute) -> Finding:
    program = story.program
    span = program.place(program.parents[target])
    here, owner = at_line(story, span), OWNERS[stray.kind]
    text, meant = program.segment(target), _right(story, stray, target)
    actual = number(stray.actual)
    since = (
        stray.step if stray.kind == "optimizer" else 0
    )  # when a tensor or module got it is not known, only that it had it by then
    return RULE.finding(
        span,
        since,
        T(
            en=f"{capital(here.en)} sets `{text}`, which torch never reads: {_still(stray).en}.",
            zh=f"{here.zh}设置的 `{text}`，torch 从不读取：{_still(stray).zh}。",
        ),
        T(
            en=f"Python lets a program add any attribute to {owner.en}. This one has no meaning for torch; what torch "
            f"reads is `{meant}`, which is {actual}.",
            zh=f"Python 允许程序给{owner.zh}添加任何属性。这个属性对 torch 没有意义；torch 读取的是 "
            f"`{meant}`，它是 {actual}。",
        ),
        fixes=_fixes(story, stray, target),
        facts=[Fact("attribute", stray.attribute), Fact("value", stray.value), Fact("actual", stray.actual)],
    )


def _still(stray: Stray) -> T:
    """Return, as a phrase for a sentence, what stays unchanged because the attribute has no effect."""
    if stray.kind == "optimizer":
        return T(en=f"the optimizer continues with {number(stray.actual)}", zh=f"优化器继续使用 {number(stray.actual)}")
    if stray.meant == "training":
        mode = T(en="training", zh="训练") if stray.actual else T(en="evaluation", zh="评估")
        return T(en=f"the module stays in {mode.en} mode", zh=f"模块仍处在{mode.zh}模式")
    if stray.actual:
        return T(
            en="the gradients are computed as before and the optimizer uses them", zh="梯度照样计算，优化器照样使用"
        )
    return T(en="no gradient is recorded", zh="不会记录梯度")


def _right(story: Story, stray: Stray, target: ast.Attribute) -> str:
    """Return the attribute that torch reads, as the program would write it; for a ``requires_grad`` of something else
    than a tensor, that of its ``weight``.
    """
    base = operand(story.program, target.value)
    if stray.kind == "optimizer":
        return f'{base}.param_groups[0]["{stray.meant}"]'
    return (
        f"{base}.{stray.meant}"
        if stray.kind == "tensor" or stray.meant == "training"
        else f"{base}.weight.requires_grad"
    )


def _fixes(story: Story, stray: Stray, target: ast.Attribute) -> tuple[Fix, ...]:
    program, statement = story.program, story.program.parents[target]
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ()
    base, value = operand(program, target.value), program.segment(statement.value)
    glue = "\n" + program.indent(statement)
    if stray.kind == "optimizer":
        text = f'for group in {base}.param_groups:{glue}    group["{stray.meant}"] = {value}'
    elif stray.meant == "training":
        text = f"{base}.train({value})" if stray.attribute != "eval" else f"{base}.train(not {value})"
    elif stray.kind == "module":
        text = f"{base}.requires_grad_({value})"
    else:
        text = f"{base}.{stray.meant} = {value}"
    shown = text.split("\n", 1)[0].rstrip(":") if stray.kind != "optimizer" else f'group["{stray.meant}"] = {value}'
    title = T(en=f"Set what torch reads: `{shown}`", zh=f"设置 torch 会读取的：`{shown}`")
    return unique(program.text, [Fix(title, program.replace((statement, text)), meaning="later")])


RULE = Rule(
    code="PL629",
    name="attribute-never-read",
    severity="warning",
    title=T(en="An attribute was set that torch never reads", zh="设置了一个 torch 从不读取的属性"),
    what=T(
        en="A program sets `require_grad`, `optimizer.lr` or `module.requires_grad`. Such an attribute does not exist "
        "in torch, so the line does nothing. Python does not complain: any name may be set on an object.",
        zh="程序设置了 `require_grad`、`optimizer.lr` 或 `module.requires_grad`。torch 里没有这样的属性，所以这一行什"
        "么也不做。Python 不会抱怨：对象上可以设置任何名字。",
    ),
    why=T(
        en="Whether a gradient is recorded for a tensor is its attribute `requires_grad`; a module has none, but a "
        "method `requires_grad_()` that sets it for all its parameters. An optimizer reads its learning rate from "
        "`param_groups`, a list of dictionaries with the parameters, and not from an attribute. An assignment to "
        "another name makes a new attribute.",
        zh="张量是否记录梯度，由它的属性 `requires_grad` 决定；模块没有这个属性，但有方法 `requires_grad_()`，会为"
        "它的所有参数设置。优化器从 `param_groups`（带有参数的字典列表）读取学习率，而不是从某个属性。给别的名字赋"
        "值只会新建一个属性。",
    ),
    advice=T(
        en="correct the name on {line}: the reason below says which attribute torch reads.",
        zh="改正{line}的名称：下面的原因说明了 torch 读取的是哪个属性。",
    ),
    bad="""import torch

torch.manual_seed(0)
body, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
for p in body.parameters():
    p.require_grad = False  # PL629
before = body.weight.detach().clone()
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = (head(body(x)) - y).square().mean()
    loss.backward()
    opt.step()
print(torch.equal(before, body.weight))
""",
    good="""import torch

torch.manual_seed(0)
body, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
for p in body.parameters():
    p.requires_grad = False
before = body.weight.detach().clone()
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = (head(body(x)) - y).square().mean()
    loss.backward()
    opt.step()
print(torch.equal(before, body.weight))
""",
    find=find,
    traps=(
        Trap(
            "    opt.zero_grad()\n",
            "    opt.zero_grad()\n    body.eval()\n",
            T(
                en="Evaluation mode changes dropout and batch normalisation; parameters learn as before.",
                zh="评估模式改变的是 dropout 和批归一化；参数照样学习。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.requires_grad.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.requires_grad_",
    ),
)
