"""PL952: a backward starts from logarithms of probabilities as they are, so each step makes what was observed less probable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Span, T

SAME_SIGN = SAME_NUMBERS | {"mean", "sum", "gather", "take_along_dim", "index_select"}
LOGARITHMS = ("log_softmax", "logsigmoid")
MOST = 30


@dataclass(frozen=True, slots=True)
class Minimised:
    """``backward`` starts from the mean or the sum of the logarithms that ``made`` computed at ``place``."""

    backward: Event
    made: Event
    place: Span | None


def find(story: Story) -> Iterator[Finding]:
    """One finding for each backward whose loss is the mean or the sum of logarithms of probabilities, without a minus."""
    reported = set()
    steps = [update.step for update in story.trace.optimizer_steps]
    if "maximize" in story.program.text:
        return
    for backward in story.backwards():
        if backward.error is not None or len(backward.operands) != 1 or not any(s > backward.step for s in steps):
            continue
        made = _logarithms(story, backward.operands[0].label, backward.step)
        if made is not None and (place := story.span(made.step)) not in reported:
            reported.add(place)
            yield _finding(story, Minimised(backward, made, place))


def _logarithms(story: Story, label: str | None, step: int) -> Event | None:
    """The call that computed the logarithms of which the number is a mean or a sum."""
    chosen = False
    for _ in range(MOST):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            return None
        node = story.program.at(event.span)
        if isinstance(node, ast.Call) and called(node) == "log_prob":
            return event
        if event.name in LOGARITHMS:
            return event if chosen else None
        if event.name not in SAME_SIGN:
            return None
        chosen = chosen or event.name in ("gather", "__getitem__", "take_along_dim", "index_select") or event.name == LOGARITHMS[1]
        given = [o.label for o in event.operands if o.label is not None]
        if not given or given[0] == label or (event.name in ("stack", "cat") and len(given) == 0):
            return None
        label, step = given[0], event.step
    return None


def _finding(story: Story, found: Minimised) -> Finding:
    here, there = at_line(story, found.place), at_line(story, story.span(found.backward.step))
    step = found.made.step
    return RULE.finding(
        found.place, step,
        T(
            en=f"The loss on {there.en} is made of the logarithms of probabilities on {here.en} as they are, without a minus: the "
            f"optimizer "
            "makes it smaller, and with it the probability of what was observed.",
            zh=f"{there.zh}的损失直接由{here.zh}的对数概率组成，没有负号：优化器使它变小，也就使观察到的结果的概率变小。",
        ),
        T(
            en="A logarithm of a probability grows with the probability. An optimizer goes down, so what is to become probable has to "
            "enter the loss with a minus: the negative log-likelihood.",
            zh="概率越大，它的对数越大。优化器是往下走的，所以想让什么变得更可能，它就必须带着负号进入损失：即负对数似然。",
        ),
        related=[story.related("backward", found.backward.step, T(en="the loss is made smaller", zh="损失在这里被减小"))],
        fixes=_fixes(story, found),
        facts=[Fact("made", found.made.name, story.by(step))],
    )  # fmt: skip


def _fixes(story: Story, found: Minimised) -> tuple[Fix, ...]:
    """Fixes that put a minus before the logarithms."""
    program = story.program
    node = program.at(found.place)
    if not isinstance(node, ast.Call):
        return ()
    title = T(en="Take the negative logarithm", zh="取负的对数")
    return unique(program.text, [Fix(title, program.replace((node, f"(-{program.segment(node)})")), meaning="later")])


RULE = Rule(
    code="PL952",
    name="likelihood-minimised",
    severity="warning",
    title=T(en="A loss is a log-probability without a minus", zh="损失是没有负号的对数概率"),
    what=T(
        en="A program takes the logarithm of the probability of its data as the loss. Training makes a loss smaller, so the data become "
        "less and less probable. Put a minus before it.",
        zh="程序把数据的对数概率当作损失。训练使损失变小，于是数据变得越来越不可能。请在它前面加上负号。",
    ),
    why=T(
        en="`log_prob` and `log_softmax` return numbers that are larger where something is more probable. `step()` always goes "
        "against the "
        "gradient. `nll_loss` and `cross_entropy` contain the minus; a loss that is written out needs it: "
        "`-dist.log_prob(y).mean()`. Without it the loss falls without end, which looks like progress.",
        zh="越可能的事，`log_prob` 和 `log_softmax` 返回的数越大。`step()` 总是沿梯度的反方向走。`nll_loss` 和 `cross_entropy` 已含负"
        "号；自己写出"
        "的损失需要加上它：`-dist.log_prob(y).mean()`。没有负号时，损失会无止境地下降，看上去像是进步。",
    ),
    bad="""import torch

torch.manual_seed(0)
y = torch.tensor([1.0, 2.0, 3.0])
mean = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([mean], lr=0.1)
for _ in range(3):
    loss = torch.distributions.Normal(mean, 1.0).log_prob(y).mean()  # PL952
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
    print(loss.item(), mean.item())
""",
    good="""import torch

torch.manual_seed(0)
y = torch.tensor([1.0, 2.0, 3.0])
mean = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([mean], lr=0.1)
for _ in range(3):
    loss = -torch.distributions.Normal(mean, 1.0).log_prob(y).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), mean.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=0.001",
            T(en="Smaller steps in the wrong direction.", zh="只是往错误方向走得慢一些。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html",),
)
