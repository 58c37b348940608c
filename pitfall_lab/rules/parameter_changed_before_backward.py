"""PL104: a parameter was updated between a forward pass and the backward that needs its old value (``opt.step()`` too
early).

A special case of PL101 with a repair of its own: the update is intended, only its moment is wrong.
"""

from __future__ import annotations

from pitfall_lab.rules.kit.finding import Finding, Rule, Trap
from pitfall_lab.rules.kit.reordering import is_leaf_memory
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import stepper
from pitfall_lab.rules.kit.wording import capital, line_of
from pitfall_lab.trace import T


def refine(story: Story, general: Finding) -> Finding | None:
    """This rule's finding in place of ``general`` (one of PL101) if an in-place call such as ``add_`` wrote the storage
    of a leaf that requires grad; else None.
    """
    event = story.event(general.step)
    if not is_leaf_memory(story, general.fact("storage")) or event is None or not event.name.endswith("_"):
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    by, what = stepper(story, event.step), general.fact("called")
    who = (
        T(en=f"`{by}` updates the parameters", zh=f"`{by}` 更新了参数")
        if by
        else T(en=f"{what.en} is updated", zh=f"{what.zh} 被更新")
    )
    return RULE.instead(
        general,
        T(
            en=f"On {here.en} {who.en}, but the backward pass on {later.en} still needs the values from before, which "
            f"{then.en} computed with.",
            zh=f"在{here.zh}，{who.zh}，但{later.zh}的反向传播还需要更新之前的值：{then.zh}是用它们计算的。",
        ),
        T(
            en=f"{capital(then.en)} was computed with the parameters of that moment, and torch kept {what.en} for its "
            f"gradient: the memory itself, not a copy. {capital(here.en)} moved the parameters. When {later.en} goes "
            f"back through {then.en}, the numbers it was computed with are gone, and torch stops: a gradient half of "
            "old and half of new parameters would belong to no model.",
            zh=f"{then.zh}是用当时的参数计算的，torch 为它的梯度留下了 {what.zh}：是内存本身，不是副本。{here.zh}移动"
            f"了参数。当{later.zh}沿着{then.zh}往回走时，当时用来计算的数已经没有了，torch 就停下来：一半旧参数、一半"
            "新参数的梯度不属于任何模型。",
        ),
    )


RULE = Rule(
    code="PL104",
    name="parameter-changed-before-backward",
    severity="error",
    title=T(
        en="Parameters were updated before a backward pass that needs their old values",
        zh="参数在需要其旧值的反向传播之前就被更新了",
    ),
    what=T(
        en="A model was improved (`opt.step()`) while a result that it had computed before still had to be used for "
        "training. That result belongs to the old parameters, and they are gone: `backward()` stops with *one of the "
        "variables needed for gradient computation has been modified by an inplace operation*. It happens where two "
        "losses or two models share a computation: in GANs, with actor and critic, with two optimizers. Either run "
        "all backward passes before the first step, or compute the result again after it.",
        zh="一个模型被改进了（`opt.step()`），而它之前算出的一个结果还要用来训练。那个结果属于旧的参数，旧参数却已经没"
        "有了：`backward()` 停下来，报告 *one of the variables needed for gradient computation has been modified by "
        "an inplace operation*。两个损失或两个模型共用一段计算时常会这样：GAN、演员–评论家、两个优化器。要么在第一次更"
        "新之前做完所有反向传播，要么在更新之后重新计算结果。",
    ),
    why=T(
        en="The gradient of `x @ w` with respect to `x` is made of `w`. So the product keeps `w` for backward: "
        "its memory, no copy, and the *version* (a number that grows by one with each write in place) it had. An "
        "optimizer's step writes all parameters in place. Which repair is right depends on what you mean: in a "
        "GAN the generator is usually trained against the *improved* discriminator, so its score is computed "
        "again after the step. `retain_graph=True` keeps the record of the computation for a second backward; it "
        "does not keep the old parameters.",
        zh="`x @ w` 对 `x` 的梯度由 `w` 构成。因此乘法为反向传播留下 `w`：是它的内存而不是副本，以及它当时的*版"
        "本*（每次就地写入加一的一个数）。优化器的一步会就地写入所有参数。哪种修法对，取决于你的意思：在 GAN 里，"
        "生成器通常对着*改进后*的判别器训练，所以更新之后重新计算它的得分。`retain_graph=True` 只为第二次反向传播"
        "保留计算的记录，并不保留旧参数。",
    ),
    advice=T(
        en="run the backward on {backward} before {changed} updates the parameters, or compute {saved} "
        "again after the update.",
        zh="先做{backward}的反向传播，再由{changed}更新参数；或者在更新之后重新计算{saved}。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Linear(2, 3)
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
fake = generator(torch.randn(5, 2))
score = critic(fake)  # saved
score.mean().backward(retain_graph=True)
opt.step()  # PL104 changed
(-score.mean()).backward()  # backward
print(generator.bias.grad)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Linear(2, 3)
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
fake = generator(torch.randn(5, 2))
score = critic(fake)
score.mean().backward(retain_graph=True)
opt.step()
score = critic(fake)
(-score.mean()).backward()
print(generator.bias.grad)
""",
    refines=("PL101",),
    refine=refine,
    traps=(
        Trap(
            "lr=0.1)",
            "lr=0.1, fused=True)",
            T(
                en="A fused optimizer writes without the version counter noticing: no error, and a gradient that "
                "mixes old and new parameters.",
                zh="融合的优化器写入时版本计数器察觉不到：没有报错，得到的却是新旧参数混在一起的梯度。",
            ),
        ),
        Trap(
            "score = critic(fake)",
            "score = critic(fake.detach())",
            T(
                en="`detach()` is right for the critic's own loss. Here the generator's loss uses the same score, and "
                "its backward no longer reaches the generator (and still meets the moved parameters).",
                zh="`detach()` 用在评论家自己的损失上是对的。这里生成器的损失用的是同一个得分，反向传播再也到不了生成"
                "器（而且还是会遇到被移动的参数）。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
)
