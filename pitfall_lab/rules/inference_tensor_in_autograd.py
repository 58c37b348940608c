"""PL204: a tensor created under ``inference_mode()`` was used where operations are recorded."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.trace import Failure, T

SWITCH = "inference_mode"


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call in which torch raised an error because an operand was created under
    ``inference_mode()``, if it is known which one.
    """
    for step, failure in story.failures("inference-tensor"):
        label = _made_inside(story, step, failure)
        if label is not None:
            yield _finding(story, step, failure, label)


def _made_inside(story: Story, step: int, failure: Failure) -> str | None:
    """Return the tensor that was created in inference mode: the one in torch's error message if it is an operand, else
    the first operand without a version counter.

    If every operand has one, the tensor of the error message, which may be None.
    """
    operands = [operand.label for operand in story.events[step].operands]
    found = [
        label for label in operands if (record := story.tensor(label, step)) is not None and not record.get("counter")
    ]
    return failure.tensor if failure.tensor in operands or not found else found[0]


def _finding(story: Story, step: int, failure: Failure, label: str) -> Finding:
    span = failure.span or story.span(step)
    born = story.event((story.tensor(label, step) or {}).get("born"))
    made = born.step if born is not None and label in born.results else None
    name = called(story, label, None, step)
    here = at_line(story, span)
    there = at_line(story, story.span(made)) if made is not None else T("before this program began", "在此程序开始之前")
    event = story.events[step]
    changes = event.name.endswith("_") and event.name != "requires_grad_"
    use = T(
        en=f"changes {name.en}" if changes else f"uses {name.en} where gradients are wanted",
        zh=f"修改 {name.zh}" if changes else f"在要求梯度的地方使用 {name.zh}",
    )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} {use.en}, but it was made inside `inference_mode()` ({there.en}) and "
            "can never be used so.",
            zh=f"{here.zh}{use.zh}，但它是在 `inference_mode()` 里创建的（{there.zh}），这样的张量永远不能这样用。",
        ),
        T(
            en=f"Inside `inference_mode()` ({there.en}) torch saves the work of counting how often the memory of a "
            "tensor is changed. Backward needs that count to know that what it kept is still as it was. "
            f"{capital(name.en)} has no count, so it can neither be kept for backward nor be changed or given a "
            "gradient outside. A copy made outside (`clone()`) has one. `no_grad()` leaves out the recording as well "
            "but makes ordinary tensors.",
            zh=f"在 `inference_mode()` 里（{there.zh}），torch 不再统计张量的内存被修改了几次。反向传播靠这个次数确认"
            f"它留下的数值没有变。{name.zh} 没有这个次数，所以不能为反向传播保留，也不能在外面被修改或要求梯度。在外面"
            "复制的副本（`clone()`）就有。`no_grad()` 同样不记录，但创建的是普通张量。",
        ),
        related=[
            *(
                [
                    story.related(
                        "made",
                        made,
                        T(
                            en=f"{name.en} is made here, inside `inference_mode()`",
                            zh=f"{name.zh} 在这里、在 `inference_mode()` 里创建",
                        ),
                    )
                ]
                if made is not None
                else []
            ),
            story.related(
                "used",
                step,
                T(
                    en=f"`{statement_text(story, span)}` needs an ordinary tensor, and torch raises",
                    zh=f"`{statement_text(story, span)}` 需要普通张量，torch 报错",
                ),
            ),
        ],
        fixes=_fixes(story, step, label),
        facts=[Fact("tensor", label, story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _fixes(story: Story, step: int, label: str) -> tuple[Fix, ...]:
    program = story.program
    if program.tree is None:
        return ()
    title = T(en="Use `no_grad()` there: it makes ordinary tensors", zh="那里改用 `no_grad()`：它创建普通张量")
    candidates: list[Fix | None] = [Fix(title, edits) for edits in _switches(program)]
    use, name = program.at(story.span(step)), story.name(label, step)
    if use is not None and name:
        title = T(en=f"Use a copy made outside: `{name}.clone()`", zh=f"使用在外面复制的副本：`{name}.clone()`")
        candidates += [
            Fix(title, program.replace((node, f"{name}.clone()")))
            for node in ast.walk(use)
            if isinstance(node, ast.Name | ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and program.segment(node) == name
        ][:1]
    return unique(program.text, candidates)


def _switches(program: Program) -> list[tuple[Edit, ...]]:
    """Return edits that change one ``inference_mode`` to ``no_grad``, for each of the first four in the program, and
    edits that change all.

    A call with arguments, such as ``inference_mode(False)``, is not changed.
    """
    nodes = [n for n in program.nodes if (isinstance(n, ast.Attribute) and n.attr == SWITCH)]
    nodes = [n for n in nodes if not (isinstance(call := program.parents.get(n), ast.Call) and call.args)]
    changes = [(n, program.segment(n).removesuffix(SWITCH) + "no_grad") for n in nodes]
    return [*(program.replace(change) for change in changes[:4]), program.replace(*changes)]


RULE = Rule(
    code="PL204",
    name="inference-tensor-in-autograd",
    severity="error",
    title=T(
        en="A tensor made inside `inference_mode()` was used for gradients",
        zh="在 `inference_mode()` 里创建的张量被用来求梯度",
    ),
    what=T(
        en="A tensor was made inside `torch.inference_mode()`, and later a line outside of it uses this tensor in a "
        "computation whose gradient is wanted, or changes it. Torch stops there with an error. Use `torch.no_grad()` "
        "for results that training will use, or make a copy with `clone()`.",
        zh="在 `torch.inference_mode()` 里创建了一个张量，后来它外面的一行在要求梯度的计算中使用它，或者修改它。torch "
        "在那里报错。训练还要用到的结果请用 `torch.no_grad()`，或者用 `clone()` 复制一份。",
    ),
    why=T(
        en="Both switch off the record of operations (the *graph*). `no_grad()` goes no further: what it makes are "
        "ordinary tensors without a history, fit to be targets or inputs. `inference_mode()` also leaves out the "
        "*version counter*, which every ordinary tensor has and by which backward notices that a saved tensor was "
        "overwritten; that makes it a little faster. A tensor without one cannot be trusted by backward, so it may "
        "not be saved for it. It is meant for predictions that leave torch. `detach()` does not help, because it "
        "shares the memory that is not counted; `clone()` copies the numbers into memory that is.",
        zh="两者都关闭运算的记录（*计算图*）。`no_grad()` 只做这一件事：它创建的是没有历史的普通张量，可以用作目标或输"
        "入。`inference_mode()` 还省去了*版本计数器*；每个普通张量都有它，它告诉反向传播保存的张量有没有被改写过；省去"
        "后会快一点。没有它的张量，反向传播无法信任，所以不允许为它保存。它适合那些离开 torch 的预测结果。`detach()` "
        "没有用，因为它共享同一块没有计数的内存；`clone()` 把数值复制到有计数的内存里。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
with torch.inference_mode():
    scale = torch.arange(3.0) + 1  # made
loss = (w * scale).sum()  # PL204 used
loss.backward()
print(w.grad)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
with torch.no_grad():
    scale = torch.arange(3.0) + 1
loss = (w * scale).sum()
loss.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "(w * scale)",
            "(w * scale.detach())",
            T(
                en="`detach()` gives another tensor on the same memory: it was made in inference mode as well, "
                "and the error stays.",
                zh="`detach()` 得到的是同一块内存上的另一个张量：它同样属于推理模式，错误依旧。",
            ),
        ),
        Trap(
            "(w * scale)",
            "(w.detach() * scale)",
            T(
                en="Now nothing in this line requires a gradient, and the backward that was wanted "
                "has no graph: it raises.",
                zh="现在这一行没有什么要求梯度，想要的反向传播无处可去：它会报错。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#inference-mode",
    ),
)
