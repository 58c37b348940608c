"""PL110: a custom Function wrote its input in place without ``mark_dirty``, and the input was used again with its old
history.

Found from the trace: a call inside the Function's forward wrote a tensor that requires a gradient, the tensor did not
get the Function's node, and a later computation that backward went through was given it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.custom_functions import Custom, customs, inside
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import written_root
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.rules.kit.writing_repairs import changing_repairs
from pitfall_lab.trace import Event, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each input that requires grad and that the forward of a custom Function wrote in place
    without ``mark_dirty``, if a later call used the input and a backward went through that.

    Functions that call ``mark_dirty`` anywhere in their ``setup_context`` or, without one, in their forward are left
    out.
    """
    for custom in customs(story.program) if story.program.tree else ():
        if any(isinstance(n, ast.Call) and call_name(n) == "mark_dirty" for n in ast.walk(custom.keeper)):
            continue
        for write, label in _writes(story, custom):
            use = _use(story, label, write.step)
            if use is not None:
                yield _finding(story, custom, write, use, label)


def _writes(story: Story, custom: Custom) -> Iterator[tuple[Event, str]]:
    """The first write, in each run of forward, to each tensor which was there before and requires
    grad, with the tensor's label.
    """
    began, seen, last = 0, set[str](), -2
    for event in story.calls():
        if not inside(custom, event, "forward"):
            continue
        if event.step != last + 1:
            began, seen = event.step, set()
        last = event.step
        label = event.operands[0].label if event.writes and event.operands else None
        tensor = story.tensor(label, began - 1) or {}
        if label is not None and label not in seen and tensor.get("requires_grad"):
            seen.add(label)
            yield event, label


def _use(story: Story, label: str, after: int) -> Event | None:
    """The first later call that was given the tensor and that a backward went back through; None if there is none."""
    for event in story.uses(label):
        grad_fns = [(story.tensor(result, event.step) or {}).get("grad_fn") for result in event.results]
        went_back = any((story.record("nodes", node) or {}).get("ran") is not None for node in grad_fns if node)
        if event.step > after and event.parent is None and went_back:
            return event
    return None


def _finding(story: Story, custom: Custom, write: Event, use: Event, label: str) -> Finding:
    what, code = called(story, label, None, use.step), statement_text(story, story.span(write.step))
    here, later = (at_line(story, story.span(event.step)) for event in (write, use))
    program = story.program
    calls = [n for n in program.nodes if isinstance(n, ast.Call) and program.segment(n.func) == f"{custom.name}.apply"]
    calls = calls if len(calls) == 1 else []
    return RULE.finding(
        story.span(write.step),
        write.step,
        T(
            en=f"`{custom.name}` writes into its input on {here.en} without saying so: {later.en} uses the new values "
            f"of {what.en}, and its gradient is that of the old ones.",
            zh=f"`{custom.name}` 在{here.zh}写入自己的输入，却没有说明：{later.zh}用的是 {what.zh} 的新"
            "值，它的梯度却是旧值的。",
        ),
        T(
            en=f"{capital(what.en)} was passed to `{custom.name}`, whose forward pass changes it in place: `{code}`. "
            f"Torch does not look inside and takes {what.en} for what it was: it still remembers how the old values "
            f"came about, and nothing of `{custom.name}`. When {later.en} uses {what.en}, backward leaves "
            f"`{custom.name}` out. `{custom.ctx}.mark_dirty(…)` tells torch, and {what.en} gets its new history.",
            zh=f"{what.zh} 被交给 `{custom.name}`，它的前向计算就地修改了它：`{code}`。torch 不看函数内部，仍把 "
            f"{what.zh} 当作原来的样子：它记得旧值是怎么来的，对 `{custom.name}` 一无所知。当{later.zh}继续使用 "
            f"{what.zh} 时，反向传播就漏掉了 `{custom.name}`。`{custom.ctx}.mark_dirty(…)` 会告诉 torch，"
            f"{what.zh} 便得到新的历史。",
        ),
        related=[
            story.related(
                "changed", write.step, T(en=f"{what.en} is written: `{code}`", zh=f"{what.zh} 在这里被写入：`{code}`")
            ),
            *(
                Related("forward", program.place(call), None, T(en="by this call", zh="由这次调用写入"))
                for call in calls[:1]
            ),
            story.related(
                "used",
                use.step,
                T(en=f"{what.en} is used with its old history", zh=f"{what.zh} 在这里带着旧的历史继续使用"),
            ),
        ],
        fixes=_fixes(story, custom, write),
        facts=[Fact("tensor", label)],
    )


def _fixes(story: Story, custom: Custom, write: Event) -> tuple[Fix, ...]:
    """Return the repairs: declare the write with ``ctx.mark_dirty``, or compute a new tensor instead of writing.

    Empty if the statement writes into no name.
    """
    program = story.program
    statement = program.statement_at(story.span(write.step))
    name = written_root(statement) if statement is not None else None
    if statement is None or name is None:
        return ()
    text = program.segment(name)
    title = T(en=f"Declare that `{text}` is written: `mark_dirty`", zh=f"用 `mark_dirty` 告诉 torch `{text}` 被写入")
    dirty = Fix(title, program.insert_before(statement, f"{custom.ctx}.mark_dirty({text})"), meaning="later")
    others = [
        Fix(fix.title, fix.edits, meaning="later")
        for fix in changing_repairs(program, story, write.step)
        if fix is not None
    ]
    return unique(
        program.text, [dirty, *others] if text in custom.inputs and custom.keeper is custom.forward else others
    )


RULE = Rule(
    code="PL110",
    name="missing-mark-dirty",
    severity="warning",
    title=T(
        en="A custom Function changed its input without telling torch", zh="自定义 Function 修改了输入却没有告诉 torch"
    ),
    what=T(
        en="An operation of your own wrote its result over its input and did not announce it. The input then holds "
        "new numbers, but whatever is computed from it gets the gradient of the old ones. There is no error. Call "
        "`ctx.mark_dirty(x)` in `forward`, or do not write into the input.",
        zh="你自己写的运算把结果写在输入上，却没有声明。输入里已经是新的数，但由它算出的一切得到的都是旧数的梯度。没有"
        "报错。请在 `forward` 中调用 `ctx.mark_dirty(x)`，或者不要写入输入。",
    ),
    why=T(
        en="Every tensor that takes part in gradients remembers the operation that made it (its `grad_fn`). When "
        "torch's own in-place operations write a tensor, they also replace this memory by themselves. Inside the "
        "`forward` of a custom `Function` nothing is recorded: torch learns only from `ctx.mark_dirty(x)` that `x` "
        "was written. Then `apply` returns `x` itself with the Function as its maker. Without it, `apply` returns "
        "another tensor on the same numbers, which is right, and leaves `x` with a history that does not belong to "
        "its numbers any more. For a leaf (a parameter) `mark_dirty` brings the error that writing it deserves.",
        zh="参与求梯度的每个张量都记得是哪个运算产生了它（它的 `grad_fn`）。torch 自己的就地运算写入张量时，会"
        "同时把这个记忆换成自己。在自定义 `Function` 的 `forward` 里什么都不记录：torch 只有通过 "
        "`ctx.mark_dirty(x)` 才知道 `x` 被写过。这样 `apply` 会返回 `x` 本身，并把这个 Function 记为它的来源。"
        "没有这一句，`apply` 返回同一批数上的另一个张量，那个是对的；而 `x` 的历史不再属于它的数。对叶子张量"
        "（参数），`mark_dirty` 会带来写入它应得的报错。",
    ),
    bad="""import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)  # PL110 changed
        return x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


w = torch.tensor([1.0, 2.0], requires_grad=True)
h = w * 3
Double.apply(h)  # forward
h.sum().backward()  # used
print(h.detach(), w.grad)
""",
    good="""import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


w = torch.tensor([1.0, 2.0], requires_grad=True)
h = w * 3
Double.apply(h)
h.sum().backward()
print(h.detach(), w.grad)
""",
    find=find,
    traps=(
        Trap(
            "x.mul_(2)",
            "x.data.mul_(2)",
            T(
                en="The same write, hidden even better: not even the version of `x` grows now.",
                zh="同样的写入，藏得更深：现在连 `x` 的版本都不增大了。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.function.FunctionCtx.mark_dirty.html",
        "https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-autograd",
    ),
)
