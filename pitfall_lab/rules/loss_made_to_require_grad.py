"""PL505: ``requires_grad`` was set on a loss that has no graph. Backward then runs, and reaches only the loss."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.graph_cut import reconnections
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import Cut, Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet
from pitfall_lab.trace import Event, T

SETTING = ("requires_grad_", "requires_grad")


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source that makes the loss a new leaf that requires grad, although it was
    computed from tensors that require grad and had lost its graph.

    Found at backwards that start from such a leaf; not where the graph was lost only because the loss was computed from
    a gradient.
    """
    flow, reported = Flow(story), set()
    for backward in story.backwards():
        start = backward.operands[0].label if backward.operands else None
        record = story.tensor(start, backward.step) or {}
        if backward.error is not None or not record.get("is_leaf") or not record.get("requires_grad"):
            continue
        made = _made(story, start, backward.step)
        if made is None or story.span(made.step) in reported:
            continue
        cuts = flow.cuts(start, made.step)
        if cuts and cuts[0].kind != "gradient":
            reported.add(story.span(made.step))
            yield _finding(story, backward, made, cuts)


def _made(story: Story, label: str | None, step: int) -> Event | None:
    """The last call before ``step`` that set ``requires_grad`` on the tensor, or else the call that created it; None if
    there is neither.
    """
    setters = [e for e in story.uses(label) if e.name in SETTING and e.step < step and not e.op.endswith("__get__")]
    return setters[-1] if setters else story.event((story.tensor(label) or {}).get("born"))


def _finding(story: Story, backward: Event, made: Event, cuts: list[Cut]) -> Finding:
    start = backward.operands[0].label
    span, step = story.span(made.step), made.step
    name = called(story, start, None, backward.step, (story.tensor(start) or {}).get("born"))
    here, cut = at_line(story, span), at_line(story, story.span(cuts[0].event.step))
    code = snippet(story, story.span(cuts[0].event.step))
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} makes {name.en} a leaf (a tensor without `grad_fn`), so backward ends there: no "
            "parameter gets a gradient.",
            zh=f"{here.zh}让 {name.zh} 成为叶子（没有 `grad_fn` 的张量），反向传播因此就停在那里："
            "没有任何参数得到梯度。",
        ),
        T(
            en=f"On {cut.en}, `{code}` ended the record of how {name.en} was computed, and torch would have raised an "
            f"error. Setting `requires_grad` for {name.en} removes the error and not its cause: the only gradient is "
            f"that of {name.en} with respect to itself, 1.",
            zh=f"{cut.zh}的 `{code}` 中断了 {name.zh} 的计算记录，torch 本来会指出这一点。要求 {name.zh} 的梯度只是消"
            f"除了错误，没有消除原因：唯一的梯度是 {name.zh} 对它自己的梯度，即 1。",
        ),
        related=[
            story.related(
                "cut", cuts[0].event.step, T(en="the record of the computation ends here", zh="计算的记录在这里中断")
            ),
            story.related("leaf", step, T(en="this line makes the tensor a leaf", zh="这一行让张量成为叶子")),
            story.related(
                "backward", backward.step, T(en="backward begins and ends here", zh="反向传播在这里开始，也在这里结束")
            ),
        ],
        fixes=_fixes(story, story.program.at(span), cuts),
        facts=[Fact("cut", cuts[0].kind, story.by(cuts[0].event.step)), Fact("tensor", start, story.by(step))],
    )


def _fixes(story: Story, setter: ast.AST | None, cuts: list[Cut]) -> tuple[Fix, ...]:
    program = story.program
    removed = _without(program, setter)
    candidates = []
    for fix in reconnections(story, cuts):
        edits = merge(fix.edits, removed) if removed else None
        candidates += [Fix(fix.title, edits, meaning="connect")] if edits else []
        candidates.append(fix)
    return unique(program.text, candidates)


def _without(program: Program, setter: ast.AST | None) -> tuple[Edit, ...]:
    """The edits that remove ``requires_grad_()`` or ``loss.requires_grad = True``; empty if ``setter`` is neither."""
    statement = program.statement(setter)
    if (
        isinstance(setter, ast.Call)
        and call_name(setter) == "requires_grad_"
        and isinstance(setter.func, ast.Attribute)
    ):
        if isinstance(statement, ast.Expr) and statement.value is setter:
            return program.delete(statement)
        return program.replace((setter, program.segment(setter.func.value)))
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if statement is not None and isinstance(target, ast.Attribute) and target.attr == "requires_grad":
        return program.delete(statement)
    return ()


RULE = Rule(
    code="PL505",
    name="loss-made-to-require-grad",
    severity="warning",
    title=T(en="`requires_grad` was set for a loss without a graph", zh="让走不回参数的损失要求梯度"),
    what=T(
        en="Torch said that the loss cannot be traced back to any parameter, and the program silenced it with "
        "`loss.requires_grad = True`. Now backward runs and trains nothing: the loss itself is the only thing it "
        "reaches. Look for the line where the loss lost its graph, and repair that.",
        zh="torch 说从损失回不到任何参数，程序就用 `loss.requires_grad = True` 让它闭嘴。现在反向传播能运行了，却什么"
        "也没有训练：它只到达损失自己。请找到切断这条路的那一行，修好它。",
    ),
    why=T(
        en="`backward()` walks the *graph*, the record of how the loss was computed, down to its *leaves*, the "
        "tensors it starts from. `requires_grad = True` on a tensor without a record declares it a leaf: a beginning. "
        "A walk that begins and ends there is done at once, without an error. The record was lost earlier: "
        "`detach()`, `.data`, `.item()`, `torch.tensor(…)`, NumPy, `argmax`, or `torch.no_grad()` around the forward "
        "pass. Parameters keep `grad` `None`, and the optimizer skips them.",
        zh="`backward()` 沿着*计算图*（损失如何算出的记录）一直走到*叶子*，即计算的起点。对没有记录的张量设置 "
        "`requires_grad = True`，就是宣布它是叶子：一个起点。从那里开始又在那里结束的行走马上就完成了，不会报错。记录"
        "是在之前丢掉的：`detach()`、`.data`、`.item()`、`torch.tensor(…)`、NumPy、`argmax`，或者前向计算外面的 "
        "`torch.no_grad()`。参数的 `grad` 一直是 `None`，优化器会跳过它们。",
    ),
    advice=T(
        en="leave {leaf_code} out, and repair {cut}, where the loss lost its graph.",
        zh="去掉 {leaf_code}，并修改{cut}：损失在那里失去了计算图。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.05)
for step in range(2):
    opt.zero_grad()
    predicted = (w * x).detach()  # cut
    loss = ((predicted - 2 * x) ** 2).mean()
    loss.requires_grad = True  # PL505 leaf
    loss.backward()  # backward
    opt.step()
    print(w.item())
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.05)
for step in range(2):
    opt.zero_grad()
    predicted = w * x
    loss = ((predicted - 2 * x) ** 2).mean()
    loss.backward()
    opt.step()
    print(w.item())
""",
    find=find,
    traps=(
        Trap(
            "loss.requires_grad = True",
            "loss = loss.clone().requires_grad_()",
            T(
                en="The same in other words: this makes a leaf after the place where the graph ends.",
                zh="换一种写法而已：仍是在计算图断开之处后面创建一个叶子。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.requires_grad.html",
    ),
)
