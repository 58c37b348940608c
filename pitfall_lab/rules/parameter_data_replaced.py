"""PL303: ``p.data = …`` gave a parameter another storage between forward and backward.

The version number is still the old one, so the gradient is wrong without an error. A special case of PL301: nothing was
written in place; the tensor that backward reads has other values.
"""

from __future__ import annotations

from pitfall_lab.rules.kit.finding import Finding, Related, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import capital, line_of, statement_text
from pitfall_lab.trace import T


def refine(story: Story, general: Finding) -> Finding | None:
    """This rule's finding in place of ``general`` (one of PL301) if the change was an assignment to ``.data``; else
    None.
    """
    event = story.event(general.step)
    if event is None or not event.op.endswith(".data.__set__"):
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    wrong, what, code = general.fact("wrong"), general.fact("called"), statement_text(story, general.span)
    given = T(en=f"{what.en} is given other memory here: `{code}`", zh=f"{what.zh} 在这里得到另一块内存：`{code}`")
    return RULE.instead(
        general,
        T(
            en=f"{wrong.en}, because {here.en} gave {what.en} other numbers before {later.en} had used the old ones.",
            zh=f"{wrong.zh}，因为{here.zh}在{later.zh}用到旧的数之前就给了 {what.zh} 别的数。",
        ),
        T(
            en=f"On {then.en} torch kept {what.en} for backward: the tensor itself. `{code}` on {here.en} puts other "
            "memory under the same tensor, and its version stays as it was, since nothing was written. "
            f"{capital(later.en)} looks into the tensor, finds the version it expects and numbers that had no part in "
            "the computation, and uses them without an error.",
            zh=f"在{then.zh}，torch 为反向传播留下了 {what.zh}：是张量本身。{here.zh}的 `{code}` 给同一个张量换上了另"
            f"一块内存，版本却保持不变，因为什么都没有被写入。{later.zh}查看这个张量，版本符合预期，里面的数却与当时的"
            "计算无关，它就这样用了，没有报错。",
        ),
        related=[
            Related(r.role, r.span, r.step, given) if r.role == "changed" else r
            for r in general.related
            if r.role != "alias"
        ],
    )


RULE = Rule(
    code="PL303",
    name="parameter-data-replaced",
    severity="warning",
    title=T(
        en="The numbers of a parameter were exchanged before backward had used them",
        zh="参数里的数在反向传播用到之前被换掉了",
    ),
    what=T(
        en="A line `w.data = …` put new numbers into a parameter although gradients still had to be computed with the "
        "old ones. Torch does not notice such an exchange. There is no error, and the gradient is that of a "
        "computation that never happened. Exchange the numbers after `backward()`, and with `w.copy_(…)` under "
        "`torch.no_grad()`, which torch does notice.",
        zh="一行 `w.data = …` 给参数换上了新的数，而梯度还要用旧的数来计算。torch 察觉不到这种替换。没有报错，得到"
        "的却是从未发生过的计算的梯度。请在 `backward()` 之后再替换，并且在 `torch.no_grad()` 之下用 "
        "`w.copy_(…)`，这样 torch 能够察觉。",
    ),
    why=T(
        en="For backward torch keeps (*saves*) the inputs of an operation as tensors, and compares their *version*, a "
        "number that grows with each write in place. Assigning `.data` writes nothing: it gives the tensor another "
        "piece of memory and leaves the version alone. So the check passes and the gradient is computed from the new "
        "numbers. `model.double()` and `model.to(…)` exchange the data of parameters in the same way, and are "
        "harmless only because they are not called between forward and backward.",
        zh="为了反向传播，torch 把运算的输入作为张量留下（*保存*），并比较它们的*版本*，即每次就地写入就增大的一个数。"
        "给 `.data` 赋值什么都不写：它让张量看向另一块内存，版本保持原样。于是检查通过，梯度却由新的数算出。"
        "`model.double()` 和 `model.to(…)` 也是这样换掉参数的数据，只因为没人在前向和反向之间调用它们，才没有害处。",
    ),
    advice=T(
        en="exchange the numbers on {changed} only after the backward on {backward}, with `copy_` "
        "inside `torch.no_grad()`.",
        zh="等{backward}的反向传播之后再在{changed}更换数值，并在 `torch.no_grad()` 里用 `copy_`。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
loss = (w ** 2).sum()  # saved
w.data = w.data / w.data.norm()  # PL303 changed
loss.backward()  # backward
print(w.grad)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
loss = (w ** 2).sum()
loss.backward()
w.data = w.data / w.data.norm()
print(w.grad)
""",
    refines=("PL301",),
    refine=refine,
    traps=(
        Trap(
            "w.data = w.data / w.data.norm()",
            "w.data.div_(w.data.norm())",
            T(
                en="The same numbers in the same memory, written past the version counter: the gradient is "
                "wrong in the same way.",
                zh="同样的数写进同一块内存，绕过了版本计数器：梯度以同样的方式出错。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
    ),
)
