"""PL105: an activation with ``inplace=True``, or a residual added with ``+=``, wrote over a tensor that backward needs.

A special case of PL101: the line does not look like a write (``act(h)``), or looks like the formula of the paper (``h
+= x``).
"""

from __future__ import annotations

from collections import defaultdict, deque

from pitfall_lab.rules.kit.finding import Finding, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import FLAG_POSITIONS
from pitfall_lab.rules.kit.wording import line_of, statement_text
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.used_names import operand_names

ACTIVATIONS = {name for name in FLAG_POSITIONS if name.islower()} | {
    "tanh",
    "sigmoid",
    "rrelu",
    "softplus",
    "logsigmoid",
}
"""Activations: their in-place forms have an explanation of their own."""
LIMIT = 500  # calls to look through for where a residual branched off


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general``, a finding of PL101, if the call that wrote was an in-place
    activation or the sum of a residual block; else None.
    """
    event = story.event(general.step)
    if event is None or len(event.operands) == 0:
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    what, code = _written(story, event) or general.fact("called"), statement_text(story, general.span)
    if event.name.rstrip("_") in ACTIVATIONS:
        does = T(en=f"`{code}` writes its result over {what.en}", zh=f"`{code}` 把结果写在 {what.zh} 上")
        hint = T(en="An activation with `inplace=True` saves one tensor", zh="带 `inplace=True` 的激活函数节省一个张量")
    elif _is_residual(story, event):
        does = T(en=f"`{code}` adds onto {what.en} in place", zh=f"`{code}` 就地加到 {what.zh} 上")
        hint = T(
            en=f"`{code}` makes no new tensor, and so needs less memory", zh=f"`{code}` 不生成新张量，因此少用内存"
        )
    else:
        return None
    return RULE.instead(
        general,
        T(
            en=f"On {here.en} {does.en}, but the backward pass on {later.en} still needs the values from {then.en}.",
            zh=f"在{here.zh}，{does.zh}，但{later.zh}的反向传播还需要{then.zh}时的值。",
        ),
        T(
            en=f"{general.explanation.en} {hint.en}: that is right after an operation that needs only its inputs for "
            f"its gradient, and wrong here, because {then.en} needs the very tensor that is written.",
            zh=f"{general.explanation.zh}{hint.zh}：如果前一个运算的梯度只需要它的输入，这样做是对的；这里不对，因"
            f"为{then.zh}需要的正是被写入的张量。",
        ),
    )


def _written(story: Story, event: Event) -> T | None:
    """Return the name by which the line itself writes the tensor that it changes (a later line may have another name
    for it); None if the line has no name for it.
    """
    name = operand_names(story.trace, event).get(event.operands[0].name or 0)
    return T(en=f"`{name}`", zh=f"`{name}`") if name else None


def _is_residual(story: Story, event: Event) -> bool:
    """Whether the call adds in place, of two tensors of one shape (not 0-dim), one that was computed from the other."""
    labels = [operand.label for operand in event.operands[:2]]
    if event.name not in ("add_", "__iadd__") or len(labels) < 2 or None in labels:
        return False
    one, other = labels
    if story.shape(one, event.step) != story.shape(other, event.step) or not story.shape(one, event.step):
        return False
    return _comes_from(story, one, other, event.step) or _comes_from(story, other, one, event.step)


def _comes_from(story: Story, label: str | None, source: str | None, until: int) -> bool:
    """Whether ``label`` was computed from ``source`` before step ``until``."""
    made: dict[str, list[Event]] = defaultdict(list)
    for event in story.events[:until]:
        for result in event.results if event.kind == "call" else ():
            made[result].append(event)
    pending, seen = deque([label]), {label}
    while pending and len(seen) < LIMIT:
        for event in made[pending.popleft() or ""]:
            for operand in event.operands:
                if operand.label == source:
                    return True
                if operand.label is not None and operand.label not in seen:
                    seen.add(operand.label)
                    pending.append(operand.label)
    return False


RULE = Rule(
    code="PL105",
    name="inplace-activation-or-residual",
    severity="error",
    title=T(en="A layer working in place overwrote what backward needs", zh="就地工作的层覆盖了反向传播需要的内容"),
    what=T(
        en="A layer of a network wrote its result over its input to save memory, but that input was still needed "
        "to compute gradients. It is `nn.ReLU(inplace=True)` after a sigmoid, or the `out += x` of a residual "
        "block after a ReLU. The same line is harmless after other layers, so models break when one layer is "
        "exchanged for another.",
        zh="网络中的一层为了节省内存，把结果写在它的输入上，而计算梯度还需要那个输入。常见的是 sigmoid 之后的 "
        "`nn.ReLU(inplace=True)`，或残差块里 ReLU 之后的 `out += x`。同样的一行放在别的层之后并无害处，所以换"
        "掉一层时模型就会坏掉。",
    ),
    why=T(
        en="Each operation keeps (*saves*) for backward what its gradient is made of. A convolution or linear layer "
        "saves its input and weights, so its *output* may be overwritten. Sigmoid, tanh, exp, softmax and ReLU save "
        "their *output*, because their gradient is easiest to compute from it: `sigmoid'(x) = s · (1 - s)`. What is "
        "saved is the memory, not a copy, with the number of times it had been written (its *version*). Writing in "
        "place changes both, and backward raises an error.",
        zh="每个运算都会为反向传播留下（*保存*）构成其梯度的东西。卷积层或线性层保存输入和权重，所以它的*输出*可以被覆"
        "盖。sigmoid、tanh、exp、softmax 和 ReLU 保存自己的*输出*，因为由它计算梯度最方便：`sigmoid'(x) = s · (1 - "
        "s)`。保存的是内存而不是副本，还有它被写入过的次数（*版本*）。就地写入同时改变两者，反向传播便拒绝继续。",
    ),
    advice=T(
        en="make a new tensor on {changed} (`a = a + b`, not `a += b`), because the backward on {backward} needs "
        "the result of {saved}.",
        zh="在{changed}产生新的张量（写 `a = a + b`，不写 `a += b`），因为{backward}的反向传播需要{saved}的结果。",
    ),
    bad="""import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        out = torch.relu(self.layer(x))  # saved
        out += x  # PL105 changed
        return out


torch.manual_seed(0)
block = Block()
x = torch.ones(2, 3)
for _ in range(2):
    x = block(x)
x.sum().backward()  # backward
print(block.layer.bias.grad)
""",
    good="""import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        out = torch.relu(self.layer(x))
        out = out + x
        return out


torch.manual_seed(0)
block = Block()
x = torch.ones(2, 3)
for _ in range(2):
    x = block(x)
x.sum().backward()
print(block.layer.bias.grad)
""",
    refines=("PL101",),
    refine=refine,
    traps=(
        Trap(
            "out += x",
            "out.data += x",
            T(
                en="The write is hidden from torch, and so is the addition: the gradient through `x` is lost, "
                "and ReLU's is wrong.",
                zh="写入对 torch 隐藏了，加法也一样：经过 `x` 的梯度丢失了，ReLU 的梯度也是错的。",
            ),
        ),
        Trap(
            "x.sum().backward()",
            "x.sum().backward(retain_graph=True)",
            T(
                en="This keeps the record of the computation for a second backward. The numbers are still overwritten.",
                zh="这只为第二次反向传播保留计算的记录。数值照样已经被覆盖。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
    ),
)
