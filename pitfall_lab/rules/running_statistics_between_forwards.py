"""PL305: a normalisation in train mode changed the running statistics that an earlier pass in eval mode needs for its
backward.

A special case of PL301: batch norm writes its statistics inside one call, and no version counts it.
"""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import reads
from pitfall_lab.rules.kit.wording import called, line_of, statement_text
from pitfall_lab.trace import Event, T

STATISTICS = ("running_mean", "running_var")


def refine(story: Story, general: Finding) -> Finding | None:
    """This rule's finding in place of ``general`` (one of PL301) if a normalisation in training mode wrote its running
    statistics; else None.
    """
    event = story.event(general.step)
    if event is None or event.name != "batch_norm":  # instance norm keeps copies of its statistics
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    wrong, code = general.fact("wrong"), statement_text(story, general.span)
    kept = T(en="the running statistics are kept here for backward", zh="运行统计量在这里被留下，供反向传播使用")
    return RULE.instead(
        general,
        T(
            en=f"{wrong.en}, because the pass on {here.en} (train mode) moved the running statistics that {then.en} "
            "(eval mode) was normalised with.",
            zh=f"{wrong.zh}，因为{here.zh}的计算（训练模式）移动了{then.zh}（评估模式）归一化时使用的运行统计量。",
        ),
        T(
            en=f"In eval mode the layer normalises with its running mean and variance, and on {then.en} torch kept "
            "their memory for the gradient. In train mode it normalises with the batch's own, and updates the "
            f"running ones: `{code}` on {here.en} writes into the very memory that was kept, and no version counts "
            f"it. So {later.en} takes the new statistics for the old pass, without an error.",
            zh=f"在评估模式下，这一层用运行均值和方差来归一化，在{then.zh}，torch 为梯度留下了它们的内存。在训练模式"
            f"下，它用批次自己的统计量归一化，并更新运行统计量：{here.zh}的 `{code}` 正好写进留下的那块内存，而没有版"
            f"本记下这件事。于是{later.zh}在旧的计算上用了新的统计量，没有报错。",
        ),
        related=[
            Related(r.role, r.span, r.step, kept) if r.role == "saved" else r
            for r in general.related
            if r.role != "alias"
        ],
        fixes=unique(story.program.text, [*_own_statistics(story, event), *general.fixes]),
    )


def _own_statistics(story: Story, event: Event) -> list[Fix]:
    """Fixes that give the layer copies of its statistics before the pass in train mode, so that the saved ones stay
    unchanged; empty if the layer has no expression.

    The line is ``norm.running_mean, norm.running_var = …clone(), …clone()``.
    """
    layer, chain = _layer(story, event), list(call_chain(story, event))
    if not layer or not chain:
        return []
    names = [f"{layer}.{name}" for name in STATISTICS]
    known = [statement for statement in chain if layer.split(".")[0].split("[")[0] in reads(story.program, statement)]
    line = f"{', '.join(names)} = {', '.join(f'{name}.clone()' for name in names)}"
    title = T(
        en=f"Give `{layer}` new running statistics, so that the old ones stay as they were",
        zh=f"让 `{layer}` 改用新的运行统计量，旧的就保持原样",
    )
    return [Fix(title, story.program.insert_before((known or chain)[-1], line))]


def _layer(story: Story, event: Event) -> str:
    """The expression for the layer at the program's top level (``net[1]``), found by the name of its weight.

    If that has no name: what is called on the line, or an empty text.
    """
    for operand in event.operands:
        tensor = story.tensor(operand.label, event.step) or {}
        name = called(story, operand.label, None, event.step).en.strip("`")
        if tensor.get("kind") == "parameter" and name.endswith((".weight", ".bias")):
            return name.rsplit(".", 1)[0]
    node = story.program.at(story.span(event.step))
    return story.program.segment(node.func) if isinstance(node, ast.Call) else ""


RULE = Rule(
    code="PL305",
    name="running-statistics-between-forwards",
    severity="warning",
    title=T(
        en="Running statistics moved between a forward pass and its backward",
        zh="运行统计量在一次前向与它的反向之间被移动了",
    ),
    what=T(
        en="A network with batch normalisation was run twice before `backward()`: once in evaluation mode and then "
        "once in training mode. The second run changed numbers inside the layer that the gradients of the first run "
        "still needed. There is no error; the gradient is simply wrong. Call `backward()` for the first result before "
        "the second run, or run in training mode first.",
        zh="带批归一化的网络在 `backward()` 之前被运行了两次：先在评估模式，再在训练模式。第二次运行改变了这一层内部的"
        "一些数，而第一次运行的梯度还需要它们。没有报错，梯度就是错的。请在第二次运行之前先对第一个结果调用 "
        "`backward()`，或者先在训练模式下运行。",
    ),
    why=T(
        en="Batch norm has two ways to normalise. In training it uses the mean and variance of the batch, and moves "
        "its *running statistics* (`running_mean`, `running_var`) a little towards them; in evaluation it uses the "
        "running ones, and keeps (*saves*) them for backward. The update writes in place inside torch's kernel, past "
        "the *version counter* by which torch notices that saved memory was changed (only `num_batches_tracked` "
        "counts). Two passes in training mode before one backward are fine: there the running statistics are written, "
        "but no gradient needs them.",
        zh="批归一化有两种归一化方式。训练时用批次的均值和方差，并把*运行统计量*（`running_mean`、`running_var`）向它"
        "们移动一点；评估时用运行统计量，并为反向传播留下（*保存*）它们。更新在 torch 的内核中就地写入，绕过了 torch "
        "用来发现保存的内存被修改的*版本计数器*（只有 `num_batches_tracked` 会计数）。一次反向之前在训练模式下前向两次"
        "没有问题：那时运行统计量会被写入，但没有梯度需要它们。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
layer, norm = nn.Linear(2, 3), nn.BatchNorm1d(3)
clean, noisy = torch.randn(4, 2), 5 * torch.randn(4, 2)
norm.eval()
goal = norm(layer(clean))  # saved
norm.train()
guess = norm(layer(noisy))  # PL305 changed
(goal - guess).square().mean().backward()  # backward
print(layer.bias.grad)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
layer, norm = nn.Linear(2, 3), nn.BatchNorm1d(3)
clean, noisy = torch.randn(4, 2), 5 * torch.randn(4, 2)
norm.eval()
goal = norm(layer(clean))
norm.train()
norm.running_mean, norm.running_var = norm.running_mean.clone(), norm.running_var.clone()
guess = norm(layer(noisy))
(goal - guess).square().mean().backward()
print(layer.bias.grad)
""",
    refines=("PL301",),
    refine=refine,
    traps=(
        Trap(
            "norm.train()",
            "norm.train(); norm.momentum = 0.01",
            T(
                en="A smaller step of the statistics makes the gradient a little less wrong. It is still wrong.",
                zh="统计量每次移动得小一些，梯度只是错得少一点，仍然是错的。",
            ),
        ),
        Trap(
            "(goal - guess)",
            "(goal.detach() - guess)",
            T(
                en="Right if `goal` is meant as a fixed target. Where it should learn as well, its part of the "
                "gradient is now lost.",
                zh="如果 `goal` 本来就是固定的目标，这样做是对的。如果它也应该学习，它那一部分梯度现在就丢失了。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
    ),
)
