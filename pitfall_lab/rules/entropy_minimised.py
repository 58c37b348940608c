"""PL959: the entropy of a policy is added to its loss, so that each step makes the policy less random."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import apart, at_line, number
from pitfall_lab.rules.signals.loss_slopes import Slope
from pitfall_lab.rules.signals.policy_terms import DRAWS, Entropy, WeightedScore, policy_terms
from pitfall_lab.trace import Event, Span, T


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The loss of ``backward`` (an ``Event``) grows with an entropy, and falls with the log-probability of an action
    that was drawn from the same distribution.

    ``entropy`` is the entropy (:class:`Entropy`), ``score`` the log-probability with its weight
    (:class:`WeightedScore`). ``last`` is the value of the entropy in the last backward of the same line; None if it is
    not known, or there was one backward only.
    """

    backward: Event
    entropy: Entropy
    score: WeightedScore
    last: float | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes an entropy which is added to a policy's loss.

    The loss must also fall with the log-probability, times a weight, of an action that was drawn from the same
    distribution, and no entropy may be subtracted in it. Only if an optimizer steps afterwards, and not in programs
    that contain the word ``maximize``.
    """
    if "maximize" in story.program.text or not any(True for _ in story.calls(*DRAWS)):
        return
    steps = [update.step for update in story.trace.optimizer_steps]
    rounds: dict[Span | None, list[Event]] = {}
    for backward in story.backwards():
        if backward.error is None and len(backward.operands) == 1:
            rounds.setdefault(story.span(backward.step), []).append(backward)
    reported = set()
    for each in rounds.values():
        if not any(step > each[0].step for step in steps):
            continue
        found, last = (_rewarded(story, one) for one in (each[0], each[-1]))
        for place, (entropy, score) in (found or last).items():
            if place not in reported:
                reported.add(place)
                value = last[place][0].value if place in last and len(each) > 1 else None
                yield _finding(story, Rewarded(each[0] if found else each[-1], entropy, score, value))


def _rewarded(story: Story, backward: Event) -> dict[Span | None, tuple[Entropy, WeightedScore]]:
    """Return each entropy of a policy that is added to the loss of this backward, with the log-probability of an
    action, by the source position of the entropy; empty if an entropy is also subtracted in the loss, or the loss grows
    with a log-probability of an action.
    """
    terms = policy_terms(story, backward)
    pairs = terms.of_policy()
    if any(each.sign < 0 for each in terms.entropies) or any(s.sign > 0 for _, scores in pairs for s in scores):
        return {}
    return {story.span(entropy.made.step): (entropy, scores[0]) for entropy, scores in pairs}


def _finding(story: Story, found: Rewarded) -> Finding:
    made, backward = found.entropy.made, found.backward
    here, there = at_line(story, story.span(made.step)), at_line(story, story.span(backward.step))
    numbers = T(en="", zh="")
    seen = apart(found.entropy.value, found.last) if found.last is not None else None
    if seen is not None and found.entropy.value is not None:
        numbers = T(
            en=f" The entropy was {seen[0]} in the first round and is {seen[1]} in the last one that was seen.",
            zh=f"第一轮的熵是 {seen[0]}，看到的最后一轮是 {seen[1]}。",
        )
    elif found.entropy.value is not None:
        numbers = T(
            en=f" The entropy was {number(found.entropy.value)} in that round.",
            zh=f"那一轮的熵是 {number(found.entropy.value)}。",
        )
    return RULE.finding(
        story.span(made.step),
        made.step,
        T(
            en=f"The loss on {there.en} grows with the entropy of the policy on {here.en}: each step makes it smaller, "
            f"and the actions that are drawn less random.{numbers.en}",
            zh=f"{there.zh}的损失随{here.zh}的策略熵增大：每一步都使熵变小，抽出的动作越来越不随机。{numbers.zh}",
        ),
        T(
            en="An entropy bonus keeps a policy trying several actions. A bonus is to become large, and `step()` makes "
            "the loss small, so it enters with a minus, as the log-probability of the action does here.",
            zh="熵奖励使策略继续尝试多种动作。奖励应当变大，而 `step()` 使损失变小，所以它要带负号进入损失，正如这里动"
            "作的对数概率那样。",
        ),
        related=[story.related("backward", backward.step, T(en="the loss is made smaller", zh="损失在这里被减小"))],
        fixes=_fixes(story, found),
        facts=[Fact("first", found.entropy.value, story.by(made.step)), Fact("last", found.last)],
    )


def _fixes(story: Story, found: Rewarded) -> tuple[Fix, ...]:
    """Fixes that change one sign between the entropy and the line at which the loss combines it with the
    log-probability.

    Empty if no line between them has a sum, a difference, or a number as a factor.
    """
    program, fixes, factors = story.program, list[Fix](), list[Fix]()
    others = {id(step.towards) for step in found.score.slope.path()}
    for step in found.entropy.slope.path():
        node = program.at(story.span(step.event.step)) if step.event is not None and program.tree is not None else None
        text = _exchanged(story, node, step) if node is not None else None
        if node is not None and text is not None:
            title = T(en=f"Exchange the sign: `{text}`", zh=f"改变符号：`{text}`")
            is_factor = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
            (factors if is_factor else fixes).append(Fix(title, program.replace((node, text)), meaning="later"))
        if id(step.towards) in others:
            break
    return unique(program.text, fixes or factors)


def _exchanged(story: Story, node: ast.AST, step: Slope) -> str | None:
    """Return the source of a sum, a difference or a product in which the operand ``step`` has the opposite sign.

    None for other expressions, and for a sum whose two operands do not both require grad.
    """
    program, event = story.program, step.event
    if event is None:
        return None
    labels = [o.label for o in event.operands[:2]]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if (factor := _number(one)) is not None:
                new = f"{-factor:g}"
                return (
                    f"{new} * {operand(program, other)}" if one is node.left else f"{operand(program, other)} * {new}"
                )
    trained = [bool((story.tensor(label, event.step) or {}).get("requires_grad")) for label in labels]
    if len(labels) < 2 or not all(trained) or labels[0] == labels[1]:
        return None
    is_second = labels[1] == step.label
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        first, second = (node.left, node.right) if is_second else (node.right, node.left)
        product = isinstance(second, ast.BinOp) and isinstance(second.op, ast.Mult | ast.Div)
        return f"{program.segment(first)} - {program.segment(second) if product else operand(program, second)}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and is_second:
        return f"{program.segment(node.left)} + {program.segment(node.right)}"
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub) and is_second:
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        return f"{program.segment(node.target)} {sign}= {program.segment(node.value)}"
    return None


def _number(node: ast.expr) -> float | None:
    """Return the number of a literal, possibly with a minus before it; None if ``node`` is not a literal number."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and (inner := _number(node.operand)) is not None:
        return -inner
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


RULE = Rule(
    code="PL959",
    name="entropy-minimised",
    severity="warning",
    title=T(en="The entropy of a policy is added to its loss", zh="策略的熵被加到它的损失上"),
    what=T(
        en="A program wants its policy to stay random for a while and adds a measure of that to the loss. Training "
        "makes a loss smaller, so the policy soon takes one action only. Subtract the entropy from the loss.",
        zh="程序希望策略在一段时间里保持随机，于是把衡量随机程度的量加到损失上。训练使损失变小，策略很快就只选一个动作。"
        "请从损失中减去熵。",
    ),
    why=T(
        en="`dist.entropy()` is large where many actions are probable and 0 where one is certain. A policy gradient "
        "goes up in the log-probability of an action times its advantage, which is written as a loss with a minus: "
        "`-(dist.log_prob(a) * advantage).mean()`. The bonus goes up too, so it needs the same minus: "
        "`- 0.01 * dist.entropy().mean()`. With a plus nothing fails, and the reward may even rise at first; the "
        "policy then stays with the first action that was good enough. An entropy alone, without a scored action, may "
        "rightly be minimised, as on unlabelled data.",
        zh="许多动作都可能时 `dist.entropy()` 大，只有一个动作确定时它是 0。策略梯度要使动作的对数概率与优势的乘积变"
        "大，写成损失时带负号：`-(dist.log_prob(a) * advantage).mean()`。熵奖励同样要变大，所以也需要这个负号："
        "`- 0.01 * dist.entropy().mean()`。写成加号时什么都不会报错，奖励起初甚至可能上升；但策略会停留在第一个足够好"
        "的动作上。若损失里只有熵而没有被打分的动作，例如在无标签数据上，使熵变小可以是对的。",
    ),
    advice=T(
        en="exchange the sign of the term with the entropy of {line} in the loss on {backward}.",
        zh="在{backward}的损失中，改变含有{line}的熵的那一项的符号。",
    ),
    bad="""import torch
from torch.distributions import Categorical

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
opt = torch.optim.Adam(net.parameters(), lr=0.05)
for _ in range(20):
    state = torch.randn(16, 3)
    dist = Categorical(logits=net(state))
    action = dist.sample()
    reward = (action == state.argmax(1)).float()
    policy_loss = -(dist.log_prob(action) * (reward - reward.mean())).mean()
    loss = policy_loss + 0.1 * dist.entropy().mean()  # PL959
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
print(dist.entropy().mean().item())
""",
    good="""import torch
from torch.distributions import Categorical

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
opt = torch.optim.Adam(net.parameters(), lr=0.05)
for _ in range(20):
    state = torch.randn(16, 3)
    dist = Categorical(logits=net(state))
    action = dist.sample()
    reward = (action == state.argmax(1)).float()
    policy_loss = -(dist.log_prob(action) * (reward - reward.mean())).mean()
    loss = policy_loss - 0.1 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(dist.entropy().mean().item())
""",
    find=find,
    traps=(
        Trap(
            "0.1 * dist",
            "0.01 * dist",
            T(en="A smaller part in the wrong direction.", zh="只是往错误方向走得少一些。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#score-function",),
)
