"""PL206: an optimizer was given a computed tensor. It can update leaf tensors only, not results."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_true, operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.trace import Failure, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each error by which an optimizer refused a tensor because it is no leaf, if the place in
    the source and the tensor are known.
    """
    for step, failure in story.failures("non-leaf-optimized"):
        if failure.span is not None and failure.tensor is not None:
            yield _finding(story, step, failure, failure.tensor)


def _finding(story: Story, step: int, failure: Failure, tensor: str) -> Finding:
    record = story.tensor(tensor, step) or {}
    born, name = record.get("born"), expression(story, tensor, step)
    statement = story.program.statement_on(failure.span.line) if failure.span and failure.span.source == 0 else None
    span = story.program.place(statement) if statement is not None else failure.span
    here, made = at_line(story, span), at_line(story, story.span(born))
    code = snippet(story, story.span(born))
    leaves = [at for leaf in _leaves(story, tensor, step) if (at := _elsewhere(story, leaf, born)) is not None]
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} gives the optimizer {name.en}, but {name.en} is a result, computed on {made.en}: "
            "there is nothing in it to train.",
            zh=f"{here.zh}把 {name.zh} 交给优化器，但 {name.zh} 是一个结果，在{made.zh}算出：它本"
            "身没有可以训练的东西。",
        ),
        T(
            en=f"`{code}` makes a new tensor out of one that requires gradients. Gradients go to that first one, "
            "which has no name or another; the result keeps none, and changing it would not change what it was "
            "computed from. The optimizer refuses it.",
            zh=f"`{code}` 由一个要求梯度的张量得到新的张量。梯度会流向最初的那个，而它没有名字，或者叫别的名字；结果不"
            "保留梯度，修改它也不会改变它的来源。优化器因此拒绝。",
        ),
        related=[
            story.related("made", born, T(en=f"{name.en} is computed here", zh=f"{name.zh} 在这里算出")),
            *[
                story.related("leaf", at, T(en="this is the tensor that gets gradients", zh="得到梯度的是这个张量"))
                for at in leaves
            ],
        ],
        fixes=_fixes(story, statement, born, tensor, step),
        facts=[Fact("tensor", tensor, story.by(born))],
    )


def _leaves(story: Story, tensor: str, step: int) -> list[str]:
    """The leaves that a tensor was computed from, as its graph says."""
    nodes = set(story.behind((story.tensor(tensor, step) or {}).get("grad_fn")))
    used = {
        label: [story.tensor(result, use.step) or {} for use in story.uses(label) for result in use.results]
        for label in story.leaves
    }
    return [label for label, results in used.items() if any(result.get("grad_fn") in nodes for result in results)]


def _elsewhere(story: Story, leaf: str, born: int | None) -> int | None:
    """The step at which a leaf was made, if that is another line than ``born``; else None."""
    at = (story.tensor(leaf) or {}).get("born")
    spans = story.span(at), story.span(born)
    return at if spans[0] is not None and spans[1] is not None and spans[0].line != spans[1].line else None


def _fixes(story: Story, optimizer: ast.stmt | None, born: int | None, tensor: str, step: int) -> tuple[Fix, ...]:
    program = story.program
    statement = program.statement_at(story.span(born)) if program.tree else None
    candidates: list[Fix | None] = []
    leaves, wrong = (
        [name for leaf in _leaves(story, tensor, step) if (name := story.name(leaf))],
        story.name(tensor, step),
    )
    for leaf in leaves:
        inside = ast.walk(optimizer) if optimizer is not None else ()
        used = [n for n in inside if isinstance(n, ast.Name | ast.Attribute) and program.segment(n) == wrong]
        title = T(en=f"Give the optimizer `{leaf}`, from which it was computed", zh=f"把它的来源 `{leaf}` 交给优化器")
        candidates.append(Fix(title, program.replace(*((n, leaf) for n in used[:1]))) if used else None)
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        candidates += _made_leaf(program, statement.value)
    return unique(program.text, candidates)


def _made_leaf(program: Program, value: ast.expr) -> Iterator[Fix]:
    """Fixes that set ``requires_grad`` on the finished tensor: ``(torch.randn(3) * 0.1).requires_grad_()`` for a call
    with ``requires_grad=True`` inside it, and ``(…).detach().requires_grad_()``.
    """
    text = program.segment(value)
    for call in (n for n in ast.walk(value) if isinstance(n, ast.Call)):
        flag = next((k for k in call.keywords if k.arg == "requires_grad" and is_true(k.value)), None)
        if flag is not None and text.count(program.segment(call)) == 1:
            arguments = [program.segment(a) for a in [*call.args, *call.keywords] if a is not flag]
            plain = f"{program.segment(call.func)}({', '.join(arguments)})"
            rest = plain if value is call else text.replace(program.segment(call), plain)
            whole = rest if isinstance(value, ast.Call) else f"({rest})"
            title = T(
                en="Set `requires_grad` on the finished tensor: `.requires_grad_()`",
                zh="张量完成之后再要求梯度：`.requires_grad_()`",
            )
            yield Fix(title, program.replace((value, f"{whole}.requires_grad_()")))
    title = T(
        en="Begin anew with the numbers: `.detach().requires_grad_()`",
        zh="用这些数重新开始：`.detach().requires_grad_()`",
    )
    yield Fix(title, program.replace((value, f"{operand(program, value)}.detach().requires_grad_()")))


RULE = Rule(
    code="PL206",
    name="non-leaf-given-to-optimizer",
    severity="error",
    title=T(en="An optimizer was given a computed tensor", zh="把算出来的张量交给了优化器"),
    what=T(
        en="A program made a tensor with `requires_grad=True`, scaled or converted it in the same line, and gave the "
        "result to an optimizer, which refuses it. Finish the tensor first and set `requires_grad` last: "
        "`(torch.randn(3) * 0.1).requires_grad_()`.",
        zh="程序用 `requires_grad=True` 创建张量，在同一行里又缩放或转换了它，然后把结果交给优化器，被优化器拒绝。请先"
        "把张量做好，最后再要求梯度：`(torch.randn(3) * 0.1).requires_grad_()`。",
    ),
    why=T(
        en="The tensors that a computation starts from are its *leaves*. `backward()` puts gradients into leaves, and "
        "an optimizer changes leaves in place. `torch.randn(3, requires_grad=True) * 0.1` is a product: the leaf is "
        "the unnamed tensor inside, and `w` is one step after it. `.to(device)`, `.double()`, `.reshape(…)` behind a "
        "leaf do the same, and so does `nn.Parameter(x) * 0.1`. See `w.is_leaf`. A module moved with "
        "`model.to(device)` keeps its parameters leaves.",
        zh="计算的起点叫作*叶子*。`backward()` 把梯度放进叶子，优化器就地修改叶子。`torch.randn(3, "
        "requires_grad=True) * 0.1` 是一个乘积：叶子是里面那个没有名字的张量，`w` 在它之后一步。在叶子后面加上 "
        "`.to(device)`、`.double()`、`.reshape(…)` 也一样，`nn.Parameter(x) * 0.1` 也是如此。`w.is_leaf` 会告诉你。用 "
        "`model.to(device)` 移动模块时，参数仍是叶子。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(4, 3)
w = torch.randn(3, requires_grad=True) * 0.1  # made
opt = torch.optim.SGD([w], lr=0.1)  # PL206
for step in range(2):
    opt.zero_grad()
    loss = (x @ w - 1.0).square().mean()
    loss.backward()
    opt.step()
    print(f"{loss.item():.4f}")
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(4, 3)
w = (torch.randn(3) * 0.1).requires_grad_()
opt = torch.optim.SGD([w], lr=0.1)
for step in range(2):
    opt.zero_grad()
    loss = (x @ w - 1.0).square().mean()
    loss.backward()
    opt.step()
    print(f"{loss.item():.4f}")
""",
    find=find,
    traps=(
        Trap(
            "opt = torch.optim.SGD([w], lr=0.1)",
            "w.retain_grad()\nopt = torch.optim.SGD([w], lr=0.1)",
            T(
                en="An optimizer accepts a result that keeps its gradient. But `w` still hangs on the computation "
                "that made it, which the first backward uses up: the second one fails.",
                zh="优化器会接受保留梯度的结果。但 `w` 仍然连着产生它的计算，而第一次反向传播已经把它用"
                "掉：第二次就会失败。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_leaf.html",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
)
