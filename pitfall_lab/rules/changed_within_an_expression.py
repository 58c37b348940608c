"""PL968: a call within an expression changed a network's result in place, and another line
used it as if it were unchanged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name
from pitfall_lab.rules.kit.wording import at_line, numbers
from pitfall_lab.rules.signals.shared_memory import OVERWRITING, changed_numbers
from pitfall_lab.trace import Event, T


@dataclass(frozen=True, slots=True)
class Changed:
    """``write`` is the call (``Event``) that changed a result in place inside a larger expression; ``node`` is this
    call in the program's syntax tree (``h.relu_()``) and ``name`` the source text of its receiver (``h``).

    ``read`` is the first call of another statement that used the tensor afterwards and wrote nothing.
    """

    write: Event
    node: ast.Call
    name: str
    read: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each in-place method call inside a larger expression that changes the numbers of a result
    which requires grad, is no leaf, and is used by another statement later.

    Nothing if no backward ran, or for writes that do not depend on the old numbers (``fill_``, ``copy_``,
    ``masked_fill_``, ``scatter_``).
    """
    reported = set()
    for event in story.calls() if story.program.tree is not None and story.backwards() else ():
        place = story.span(event.step)
        if (
            not event.writes
            or not event.name.endswith("_")
            or event.error is not None
            or event.parent is not None
            or place in reported
        ):
            continue
        found = _changed(story, event)
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _changed(story: Story, write: Event) -> Changed | None:
    label = write.operands[0].label if write.operands else None
    record = story.tensor(label, write.step - 1) or {}
    storage = record.get("storage")
    if (
        not record.get("requires_grad")
        or record.get("is_leaf")
        or storage not in write.writes
        or write.name in OVERWRITING
    ):
        return None
    node = story.program.at(story.span(write.step))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != write.name:
        return None
    statement = story.program.statement(node)
    if not is_name(node.func.value) or statement is None or not _goes_on(story, node, statement):
        return None
    for read in story.uses(label):
        other = story.program.statement_at(story.span(read.step))
        if (
            read.step > write.step
            and read.error is None
            and not read.writes
            and other is not None
            and other is not statement
        ):
            return (
                Changed(write, node, story.program.segment(node.func.value), read)
                if changed_numbers(story, storage, write.step)
                else None
            )
    return None


def _goes_on(story: Story, node: ast.Call, statement: ast.stmt) -> bool:
    """Whether the surrounding expression computes something else from the call's value.

    If the statement is only a chain of in-place calls, or only assigns their result, the change is intended and this is
    False.
    """
    here: ast.AST = node
    while isinstance(attribute := story.program.parents.get(here), ast.Attribute):
        call = story.program.parents.get(attribute)
        if not isinstance(call, ast.Call) or call.func is not attribute or not attribute.attr.endswith("_"):
            return True
        here = call
    return story.program.parents.get(here) is not statement


def _finding(story: Story, found: Changed) -> Finding:
    write, span = found.write, story.span(found.write.step)
    here, there = at_line(story, span), at_line(story, story.span(found.read.step))
    record = story.tensor(write.operands[0].label, write.step) or {}
    storage, born = record.get("storage"), record.get("born")
    before, after = ((story.record("storages", storage, at) or {}).get("cells") for at in (write.step - 1, write.step))
    shown = T(
        en=f" Its memory goes from {numbers(before)} to {numbers(after)}."
        if before is not None and after is not None
        else "",
        zh=f"它的内存从 {numbers(before)} 变成 {numbers(after)}。" if before is not None and after is not None else "",
    )
    plain = write.name.rstrip("_")
    return RULE.finding(
        span,
        write.step,
        T(
            en=f"`{found.name}.{write.name}` on {here.en} changes `{found.name}` itself, not only its result: "
            f"{there.en} then reads the changed numbers.",
            zh=f"{here.zh}的 `{found.name}.{write.name}` 不只给出结果，还改变了 `{found.name}` 本身：{there.zh}随"
            "后读到的是改变后的数。",
        ),
        T(
            en=f"`{write.name}` writes its result into the tensor that it is called on.{shown.en} `{plain}` "
            f"makes a new one and leaves `{found.name}` as it was. The gradient is right for what was "
            "computed, so nothing is raised.",
            zh=f"`{write.name}` 把结果写进调用它的张量。{shown.zh}`{plain}` 会生成新的张量，`{found.name}` 保持原样。"
            "对于实际算出的东西，梯度是正确的，所以不会报错。",
        ),
        related=[
            story.related("made", born, T(en=f"`{found.name}` is computed here", zh=f"`{found.name}` 在这里算出")),
            story.related(
                "changed",
                write.step,
                T(en=f"`{found.name}` itself is changed here", zh=f"`{found.name}` 本身在这里被改变"),
            ),
            story.related(
                "read", found.read.step, T(en="the changed numbers are read here", zh="被改变的数在这里被读取")
            ),
        ],
        fixes=_fixes(story, found, plain),
        facts=[Fact("storage", storage, story.by(write.step))],
    )


def _fixes(story: Story, found: Changed, plain: str) -> tuple[Fix, ...]:
    program, text = story.program, story.program.segment(found.node)
    rest = text[len(found.name) :].lstrip()
    if not rest.startswith(f".{found.write.name}("):
        return ()
    title = T(en=f"Make a new tensor: `{plain}`", zh=f"生成新的张量：`{plain}`")
    new = f"{found.name}.{plain}{rest[len(found.write.name) + 1 :]}"
    return unique(program.text, [Fix(title, program.replace((found.node, new)), meaning="later")])


RULE = Rule(
    code="PL968",
    name="changed-within-an-expression",
    severity="warning",
    title=T(en="An expression changed a result that another line still needed", zh="一个表达式改变了别处还需要的结果"),
    what=T(
        en="A program computes `log_variance.mul_(0.5).exp()` and uses `log_variance` again for another term of its "
        "loss. The name ends with an underscore, so the first line halves the tensor itself, and the second term is "
        "computed from half of it. Write `log_variance.mul(0.5).exp()`.",
        zh="程序计算 `log_variance.mul_(0.5).exp()`，之后又在损失的另一项里使用 `log_variance`。名字以下划线结尾，所以"
        "第一行把张量本身减半了，第二项是由减半后的数算出的。请写 `log_variance.mul(0.5).exp()`。",
    ),
    why=T(
        en="Functions whose name ends with an underscore write *in place* and return the same tensor, so they can be "
        "used in a chain like all others. The change shows under every name of the tensor, in other functions too. "
        "Autograd differentiates what was really computed and raises only if a backward needs the old numbers, which "
        "a product with a constant does not.",
        zh="名字以下划线结尾的函数是*就地*写入的，并返回同一个张量，所以可以像其他函数一样写在链中。这个改变在"
        "张量的所有名字下都能看到，在别的函数里也一样。自动求导按实际的计算求导，只有反向传播需要旧的数时才报"
        "错，而与常数相乘并不需要。",
    ),
    advice=T(
        en="use the function without the underscore on {line}.",
        zh="在{line}使用不带下划线的函数。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
x = torch.randn(5, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    mean, log_variance = net(x).split(2, dim=1)
    mean, log_variance = mean.clone(), log_variance.clone()
    sample = mean + log_variance.mul_(0.5).exp()  # PL968
    divergence = (log_variance.exp() + mean**2 - log_variance).mean()  # read
    loss = (sample**2).mean() + divergence
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(divergence.item(), net.bias.grad)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
x = torch.randn(5, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    mean, log_variance = net(x).split(2, dim=1)
    mean, log_variance = mean.clone(), log_variance.clone()
    sample = mean + log_variance.mul(0.5).exp()
    divergence = (log_variance.exp() + mean**2 - log_variance).mean()
    loss = (sample**2).mean() + divergence
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(divergence.item(), net.bias.grad)
""",
    find=find,
    traps=(
        Trap(
            "log_variance.mul_(0.5).exp()",
            "log_variance.detach().mul_(0.5).exp()",
            T(
                en="What `detach` returns is the same memory, so the numbers still change.",
                zh="`detach` 返回的是同一块内存，所以数仍然被改变。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.mul_.html",),
)
