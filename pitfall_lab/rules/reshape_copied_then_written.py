"""PL706: the result of ``reshape`` was written.

Where the strides allow no view of that shape, it is a copy, and the write is lost.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.copies import LostWrite, lost_writes, whole_expression, written_back
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as method
from pitfall_lab.rules.kit.syntax import operand, root
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet, statement_text
from pitfall_lab.trace import T

COPYING = ("reshape", "reshape_as", "flatten", "ravel", "contiguous")
"""Calls that return a view or a copy, according to the strides."""
EVERYWHERE = {
    "zero_",
    "fill_",
    "add_",
    "sub_",
    "mul_",
    "div_",
    "clamp_",
    "neg_",
    "abs_",
    "exp_",
    "sqrt_",
    "normal_",
    "uniform_",
}
"""Writes that treat all elements alike, in whatever shape they come."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each write into a copy that ``reshape`` or a relative of it (``flatten``, for example)
    made, where nothing reads the copy afterwards.
    """
    for lost in lost_writes(story, *COPYING):
        yield _finding(story, lost)


def _finding(story: Story, lost: LostWrite) -> Finding:
    span, source = story.span(lost.write.step), _source(lost)
    here = at_line(story, span)
    record = story.tensor(lost.source, lost.copy.step) or {}
    strides = ", ".join(str(n) for n in record.get("stride") or ())
    return RULE.finding(
        span,
        lost.write.step,
        T(
            en=f"{capital(here.en)} changes a copy that `{lost.copy.name}` made; {source.en} itself "
            "keeps its old values.",
            zh=f"{here.zh}修改的是 `{lost.copy.name}` 做出的副本；{source.zh} 本身的值没有变。",
        ),
        T(
            en=f"`{_text(lost)}` needs the elements in an order in which they are not stored (a step "
            f"along each dimension moves by {strides} elements). So `{lost.copy.name}` puts them into new "
            f"memory. `{statement_text(story, span)}` writes there, and nothing reads that memory "
            "afterwards: the change is lost.",
            zh=f"`{_text(lost)}` 要求的元素次序与它们在内存中的次序不同（沿各维走一步分别跨过 {strides} 个元素），所"
            f"以 `{lost.copy.name}` 把它们放进新的内存。`{statement_text(story, span)}` 写入的是那里，之后没有任何地方"
            "读取它：这次修改丢失了。",
        ),
        related=[
            story.related("copied", lost.copy.step, T(en="the elements are copied here", zh="元素在这里被复制")),
            story.related("changed", lost.write.step, T(en="only the copy is changed here", zh="这里只修改了副本")),
        ],
        fixes=_fixes(lost),
        facts=[
            Fact("source", lost.source, story.by(lost.copy.step)),
            Fact("copy", lost.copy.results[0], story.by(lost.copy.step)),
        ],
    )


def _text(lost: LostWrite) -> str:
    made = whole_expression(lost)
    return (
        lost.story.program.segment(made) if made is not None else snippet(lost.story, lost.story.span(lost.copy.step))
    )


def _source(lost: LostWrite) -> T:
    made = whole_expression(lost)
    if made is None:
        return called(lost.story, lost.source, None, lost.copy.step)
    text = lost.story.program.segment(root(made))
    return T(en=f"`{text}`", zh=f"`{text}`")


def _fixes(lost: LostWrite) -> tuple[Fix, ...]:
    program, made = lost.story.program, whole_expression(lost)
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute) or method(made) not in COPYING:
        return ()
    before = program.segment(made.func.value)
    candidates = [written_back(lost, before), _laid_out(lost, made.func.value)]
    call = lost.statement.value if isinstance(lost.statement, ast.Expr) else None
    if (
        lost.name is None
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.value is made
    ):
        if method(call) in EVERYWHERE and all(isinstance(a, (ast.Constant, ast.UnaryOp)) for a in call.args):
            title = T(en=f"Write without `{method(made)}`: `{before}` is the tensor's own memory",
                      zh=f"不经过 `{method(made)}` 直接写：`{before}` 就是张量自己的内存")  # fmt: skip
            candidates.append(Fix(title, program.replace((made, before)), meaning="later"))
        text = program.segment(call)
        back = f"{before}.copy_({text}.view({before}.shape))"
        title = T(en=f"Put the changed copy back: `{before}.copy_(…)`", zh=f"把修改后的副本写回去：`{before}.copy_(…)`")
        candidates.append(Fix(title, program.replace((lost.statement, back)), meaning="later"))
    return unique(program.text, candidates)


def _laid_out(lost: LostWrite, source: ast.expr) -> Fix | None:
    """The fix that makes the tensor contiguous where it is created, so that a later reshape returns a view of it.

    None if the tensor has no statement of its own that creates it.
    """
    program = lost.story.program
    made = program.at(lost.story.span((lost.story.tensor(lost.source) or {}).get("born")))
    statement = program.statement(made)
    if not isinstance(statement, ast.Assign) or statement.value is not made or not isinstance(source, ast.Name):
        return None
    if [program.segment(target) for target in statement.targets] != [source.id]:
        return None
    new = f"{operand(program, statement.value)}.contiguous()"
    title = T(
        en=f"Lay `{source.id}` out in this order first: `.contiguous()`",
        zh=f"先让 `{source.id}` 按这个次序存放：`.contiguous()`",
    )
    return Fix(title, program.replace((statement.value, new)), meaning="later")


RULE = Rule(
    code="PL706",
    name="reshape-copied-then-written",
    severity="warning",
    title=T(en="A change went into a copy made by reshape and was lost", zh="修改写进了 reshape 做出的副本，因而丢失"),
    what=T(
        en="A program changed the elements of a tensor through `reshape`, `flatten` or `contiguous`, and the tensor "
        "kept its old values. These sometimes look at the same memory and sometimes make a copy, and here they made "
        "one. Write into the tensor itself, or put the changed copy back.",
        zh="程序通过 `reshape`、`flatten` 或 `contiguous` 修改张量的元素，而张量本身的值没有变。它们有时看着同一块内"
        "存，有时做一份副本，这里做的是副本。请直接写入张量，或把修改后的副本写回去。",
    ),
    why=T(
        en="A tensor is a piece of memory and a rule for walking through it: its shape, and its *strides*, the number "
        "of elements that one step along each dimension moves by. `t()`, `permute` and `expand` only change the rule. "
        "`reshape` gives a *view* (the same memory under another rule) whenever a rule for the new shape exists, and "
        "otherwise copies; it never says which. `view` never copies: it raises where no rule exists. Use `view` where "
        "you mean to write, and an error will tell you.",
        zh="张量是一块内存加上在其中行走的规则：形状，以及*步幅*，即沿各维走一步跨过多少个元素。`t()`、`permute`、"
        "`expand` 只改规则。只要新形状有相应的规则，`reshape` 就给出*视图*（同一块内存，另一种规则），否则就复制；它从"
        "不说明是哪一种。`view` 从不复制：没有规则时会报错。想要写入时请用 `view`，出错时你就会知道。",
    ),
    bad="""import torch

x = torch.arange(6.0).reshape(2, 3)
w = torch.ones(2, 3, requires_grad=True)
flat = x.t().reshape(-1)  # copied
flat[0] = 100.0  # PL706 changed
loss = (w * x).sum()
loss.backward()
print(x)
""",
    good="""import torch

x = torch.arange(6.0).reshape(2, 3)
w = torch.ones(2, 3, requires_grad=True)
flat = x.t().reshape(-1)
flat[0] = 100.0
x.t().copy_(flat.reshape(x.t().shape))
loss = (w * x).sum()
loss.backward()
print(x)
""",
    find=find,
    traps=(
        Trap(
            "flat = x.t().reshape(-1)",
            "flat = x.t().contiguous().view(-1)",
            T(
                en="Now `view` is content, but `contiguous()` has made the copy: the write is still lost.",
                zh="现在 `view` 满意了，但副本是 `contiguous()` 做的：写入同样丢失。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.reshape.html",
        "https://docs.pytorch.org/docs/stable/tensor_view.html",
    ),
)
