"""PL106: a buffer of plain numbers (an index, a mask, a target, a batch) was filled again before
backward used what it had held.

A special case of PL101: nothing about the buffer has to do with gradients, so one does not
expect it to be saved for them.
"""

from __future__ import annotations

from pitfall_lab.rules.kit.finding import Finding, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import capital, line_of, snippet, statement_text
from pitfall_lab.trace import T
from pitfall_lab.trace.operation_facts import operations_that, spellings

ROLES = {
    "index": T(en="as an index", zh="作为下标"),
    "indices": T(en="as an index", zh="作为下标"),
    "condition": T(en="as a condition", zh="作为条件"),
    "mask": T(en="as a mask", zh="作为掩码"),
    "target": T(en="as the target", zh="作为目标"),
}
PRODUCTS = spellings("mul") | operations_that("matrix_product") | {"addmm", "dot", "einsum", "inner", "linear", "outer"}
"""Calls that the message names a product."""


def refine(story: Story, general: Finding) -> Finding | None:
    """This rule's finding in place of ``general`` (one of PL101) if no tensor on the overwritten storage has ever
    required a gradient; else None.
    """
    storage = general.fact("storage")
    on = dict(story.tensors_on(storage))
    own = (story.record("nodes", general.fact("node")) or {}).get("output")
    if not on or own in on or any(tensor.get("requires_grad") for tensor in on.values()):
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    what, code = general.fact("called"), statement_text(story, general.span)
    role = ROLES.get(str(general.fact("saved")).rstrip("0123456789")) or _role(story, general)
    return RULE.instead(
        general,
        T(
            en=f"{capital(here.en)} writes new values into {what.en}, but the backward pass on {later.en} still needs "
            f"the values that {then.en} used {role.en}.",
            zh=f"{here.zh}把新值写进 {what.zh}，但{later.zh}的反向传播还需要{then.zh}{role.zh}用过的值。",
        ),
        T(
            en=f"{what.en} needs no gradient itself, yet the gradient of {then.en} is made with it, so torch kept its "
            f"memory there: no copy. `{code}` on {here.en} writes other values into that memory. On {later.en} torch "
            "finds that it was written since and stops.",
            zh=f"{what.zh} 自己不需要梯度，但{then.zh}的梯度要用到它，所以 torch 在那里留下了它的内存，而不是副本。"
            f"{here.zh}的 `{code}` 把别的值写进这块内存。到了{later.zh}，torch 发现它此后被写过，于是停下来。",
        ),
    )


def _role(story: Story, general: Finding) -> T:
    """Words for what the line that saved the buffer used it for, where :data:`ROLES` has none: with the code of a
    product, else only ``in its computation``.
    """
    step = next((each.step for each in general.related if each.role == "saved"), None)
    event = story.event(step)
    if event is None or event.name.strip("_").removeprefix("r") not in PRODUCTS:
        return T(en="in its computation", zh="在计算中")
    code = snippet(story, story.span(step))
    return T(en=f"for the product `{code}`", zh=f"为求乘积 `{code}` ")


RULE = Rule(
    code="PL106",
    name="saved-buffer-refilled",
    severity="error",
    title=T(en="A buffer was filled again before backward had used it", zh="缓冲区在反向传播用过之前又被重新填写"),
    what=T(
        en="A tensor of plain data (a batch, an index, a mask, targets) was filled with new values for the next round "
        "while gradients of the last round still had to be computed with the old ones. Reusing one buffer saves an "
        "allocation, and torch stops in `backward()` because the old values are gone. Make a new tensor in each "
        "round, or call `backward()` before the buffer is filled again.",
        zh="一个装普通数据的张量（批次、下标、掩码、目标）在下一轮被填入新值，而上一轮的梯度还要用旧值来计算。重复使用"
        "一个缓冲区能省一次分配，torch 却会停在 `backward()`，因为旧值已经没有了。请每一轮生成新张量，或者在重新填写缓"
        "冲区之前调用 `backward()`。",
    ),
    why=T(
        en="The gradient of `table[index]` puts numbers back where `index` took them from, the gradient of `batch @ "
        "w` is made of `batch`. So torch keeps (*saves*) these tensors for backward although they require no "
        "gradient: their memory, no copy, and its *version*, a number that grows with each write in place. `index[:] "
        "= …`, `copy_()` and `out=` write in place. As long as each round calls `backward()` before the next one "
        "fills the buffer, reusing it is right; summing the losses of several rounds first is what breaks it.",
        zh="`table[index]` 的梯度要把数放回 `index` 取数的地方，`batch @ w` 的梯度由 `batch` 构成。所以这些张量虽然不"
        "需要梯度，torch 也会为反向传播留下（*保存*）它们：是内存而不是副本，以及它的*版本*，即每次就地写入就增大的一"
        "个数。`index[:] = …`、`copy_()` 和 `out=` 都是就地写入。只要每一轮在下一轮填写缓冲区之前调用 `backward()`，重"
        "复使用就是对的；先把几轮的损失加起来才会出错。",
    ),
    advice=T(
        en="make a new {tensor} on {changed} in each round, or run the backward on {backward} "
        "before it is filled again.",
        zh="每一轮都在{changed}产生新的 {tensor}，或者在重新填写之前先做{backward}的反向传播。",
    ),
    bad="""import torch

torch.manual_seed(0)
table = torch.randn(6, 2, requires_grad=True)
index = torch.empty(2, dtype=torch.long)
loss = torch.zeros(())
for part in range(3):
    index[:] = torch.tensor([part, part + 2])  # PL106 changed
    loss = loss + table[index].square().sum()  # saved
loss.backward()  # backward
print(table.grad[:, 0])
""",
    good="""import torch

torch.manual_seed(0)
table = torch.randn(6, 2, requires_grad=True)
index = torch.empty(2, dtype=torch.long)
loss = torch.zeros(())
for part in range(3):
    index = index.clone()
    index[:] = torch.tensor([part, part + 2])
    loss = loss + table[index].square().sum()
loss.backward()
print(table.grad[:, 0])
""",
    refines=("PL101",),
    refine=refine,
    traps=(
        Trap(
            "index[:] = torch.tensor([part, part + 2])",
            "index.data[:] = torch.tensor([part, part + 2])",
            T(
                en="Torch no longer notices the write, and all rounds put their gradients into the "
                "rows of the last one.",
                zh="torch 不再察觉这次写入，于是每一轮都把梯度放进最后一轮的那些行。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors",
    ),
)
