"""PL304: a fused optimizer stepped between a forward pass and its backward.

Its writes are not counted by the version counters: the gradient is wrong, and no error is raised. A special case of
PL301, and the silent form of PL104.
"""

from __future__ import annotations

from pitfall_lab.rules.kit.finding import Finding, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import capital, line_of, statement_text
from pitfall_lab.trace import T


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general`` (one of PL301) if the call that wrote was a fused optimizer
    step; else None.
    """
    event = story.event(general.step)
    if event is None or not event.name.startswith("_fused_"):
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    wrong, what, code = general.fact("wrong"), general.fact("called"), statement_text(story, general.span)
    return RULE.instead(
        general,
        T(
            en=f"{wrong.en}, because the fused optimizer on {here.en} moved the parameters before {later.en} "
            "had used the old ones.",
            zh=f"{wrong.zh}，因为{here.zh}的融合优化器在{later.zh}用到旧参数之前就移动了它们。",
        ),
        T(
            en=f"{capital(then.en)} was computed with the parameters of that moment, and torch kept the memory of "
            f"{what.en} for its gradient. `{code}` on {here.en} updates all parameters in one call, and this call "
            f"does not raise their versions. So {later.en} cannot see that they moved: it computes with the new "
            "values, without an error. With an optimizer that is not fused, torch would have stopped here.",
            zh=f"{then.zh}是用当时的参数计算的，torch 为它的梯度留下了 {what.zh} 的内存。{here.zh}的 `{code}` 在一次调"
            f"用中更新所有参数，而这次调用不增加它们的版本。所以{later.zh}看不出参数被移动过：它用新值来计算，没有报"
            "错。换成非融合的优化器，torch 会在这里停下来。",
        ),
        related=[related for related in general.related if related.role != "alias"],
    )


RULE = Rule(
    code="PL304",
    name="fused-step-before-backward",
    severity="warning",
    title=T(
        en="A fused optimizer moved parameters that a later backward needed",
        zh="融合的优化器移动了之后的反向传播还需要的参数",
    ),
    what=T(
        en="A model was improved by an optimizer with `fused=True` while a result that it had computed before still "
        "had to be used for training. The gradient then mixes old and new numbers and belongs to no model at all. "
        "With any other optimizer there would be an error; here there is none, and the training is only worse. Run "
        "all backward passes before the first step, or compute the result again after it.",
        zh="模型被 `fused=True` 的优化器改进了，而它之前算出的一个结果还要用来训练。这样得到的梯度把新旧数值混在一起，"
        "不属于任何模型。换成别的优化器会报错；这里没有报错，只是训练变差了。请在第一次更新之前做完所有反向传播，或者"
        "在更新之后重新计算结果。",
    ),
    why=T(
        en="Torch finds out that memory kept for backward was changed by its *version*: a number that each write in "
        "place makes larger. The usual optimizers write with `add_` and the like, which count. `fused=True` passes "
        "all parameters to one hand-written kernel, which is fast and does not count (measured on torch 2.13, on the "
        "CPU). So the check that works for all other optimizers does not see it. A fused optimizer is fine in "
        "ordinary training, where each step comes after all backwards that use the parameters.",
        zh="torch 靠*版本*发现为反向传播留下的内存被修改：每次就地写入都让这个数变大。普通优化器用 `add_` 之类写入，会"
        "被计数。`fused=True` 把所有参数交给一个手写的内核，速度快，却不计数（在 torch 2.13 的 CPU 上测得）。于是保护"
        "其他人的检查对它视而不见。在普通训练中，每一步更新都在用到参数的所有反向传播之后，融合优化器没有问题。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Linear(2, 3)
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(critic.parameters(), lr=0.5, fused=True)
fake = generator(torch.randn(5, 2))
score = critic(fake)  # saved
score.mean().backward(retain_graph=True)
opt.step()  # PL304 changed
(-2 * score.mean()).backward()  # backward
print(generator.bias.grad)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Linear(2, 3)
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(critic.parameters(), lr=0.5, fused=True)
fake = generator(torch.randn(5, 2))
score = critic(fake)
score.mean().backward(retain_graph=True)
opt.step()
score = critic(fake)
(-2 * score.mean()).backward()
print(generator.bias.grad)
""",
    refines=("PL301",),
    refine=refine,
    traps=(
        Trap(
            "fused=True",
            "fused=False",
            T(
                en="Now torch notices and raises. That is better than a wrong gradient, but the program needs another "
                "change: compute the result again after the step.",
                zh="现在 torch 会察觉并报错。这比错误的梯度好，但程序要改的是别处：在更新之后重新计算结果。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/optim.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
    ),
)
