"""PL932: a loss of a distribution was given its parameter in another form: a rate for its
logarithm, a deviation for a variance.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, origin
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

RATES = spellings("exp", in_place=True) | {"softplus"}
"""Calls whose result is a positive number, as a rate is; a loss that takes the logarithm of
the rate must not be given it.
"""
HALF = {("mul", "0.5"), ("div", "2"), ("div", "2.0"), ("__rmul__", "0.5"), ("__mul__", "0.5"), ("truediv", "2")}
THIRD = 2


@dataclass(frozen=True, slots=True)
class RateForItsLogarithm:
    """``loss`` is the call (``Event``) of a loss of a distribution that was given the parameter labelled ``label``,
    made by the call ``maker``, in another form than it takes.

    With ``rate`` that is a rate for its logarithm, else a deviation for a variance.
    """

    loss: Event
    label: str
    maker: Event
    rate: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that gives ``poisson_nll_loss`` a rate where it takes the logarithm, or
    ``gaussian_nll_loss`` a deviation where it takes a variance, as the call that made the parameter shows.
    """
    told = set()
    for loss in story.calls("poisson_nll_loss", "gaussian_nll_loss"):
        place = story.span(loss.step)
        found = _form(story, loss) if place not in told and loss.error is None and loss.results else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _form(story: Story, loss: Event) -> RateForItsLogarithm | None:
    rate = loss.name == "poisson_nll_loss"
    given = [o.label for o in loss.operands if o.label is not None]
    label = (given[0] if rate else given[THIRD] if len(given) > THIRD else None) if given else None
    maker = origin(story, label, loss.step)
    if label is None or maker is None:
        return None
    if rate:
        logarithm = (argument(loss, "log_input", THIRD) or "False") == "True"
        return RateForItsLogarithm(loss, label, maker, True) if logarithm and maker.name in RATES else None
    return RateForItsLogarithm(loss, label, maker, False) if maker.name == "sqrt" or _is_half(story, maker) else None


def _is_half(story: Story, maker: Event) -> bool:
    """Whether the parameter is ``exp(x / 2)``: the deviation, if ``x`` is the logarithm of a variance."""
    before = origin(story, maker.operands[0].label, maker.step) if maker.name == "exp" and maker.operands else None
    texts = {operand.text for operand in before.operands if operand.label is None} if before is not None else set()
    return before is not None and any((before.name, text) in HALF for text in texts)


def _finding(story: Story, found: RateForItsLogarithm) -> Finding:
    loss, maker = found.loss, found.maker
    here, there = at_line(story, story.span(loss.step)), at_line(story, story.span(maker.step))
    what, how = expression(story, found.label, loss.step), snippet(story, story.span(maker.step))
    said = T(
        en=f"{capital(here.en)} gives `poisson_nll_loss` a rate, {what.en}, and it takes the logarithm of a rate.",
        zh=f"{here.zh}交给 `poisson_nll_loss` 的 {what.zh} 是速率，而它需要的是速率的对数。",
    ) if found.rate else T(
        en=f"{capital(here.en)} gives `gaussian_nll_loss` a standard deviation, {what.en}, and it takes a variance.",
        zh=f"{here.zh}交给 `gaussian_nll_loss` 的 {what.zh} 是标准差，而它需要的是方差。",
    )  # fmt: skip
    why = (
        T(
            en=f"`{how}` on {there.en} makes a positive number. With `log_input=True`, the default, the loss takes the "
            "exponential of it once more: what the model calls a rate r counts as a rate of exp(r), never below 1.",
            zh=f"{there.zh}的 `{how}` 得到的是正数。`log_input=True` 是默认值，此时损失会再取一次指数：模型所说的速率 "
            "r 被当作 exp(r)，永远不会小于 1。",
        )
        if found.rate
        else T(
            en=f"`{how}` on {there.en} makes the root of a variance. The loss divides the squared error by "
            "it, so the model learns a deviation that is the square of the right one: too large where it is "
            "above 1, too small below.",
            zh=f"{there.zh}的 `{how}` 得到的是方差的平方根。损失用它去除误差的平方，于是模型学到的标准差是正确值的平"
            "方：大于 1 时过大，小于 1 时过小。",
        )
    )
    return RULE.finding(
        story.span(loss.step), loss.step, said, why,
        related=[story.related("made", maker.step, T(en="made here", zh="在这里得到"))],
        fixes=_fixes(story, found),
        facts=[Fact("made", maker.name, story.by(maker.step)), Fact("loss", loss.name, story.by(loss.step))],
    )  # fmt: skip


def _fixes(story: Story, found: RateForItsLogarithm) -> tuple[Fix, ...]:
    program, loss = story.program, found.loss
    fixes = []
    if not found.rate:
        given = written_as(story, loss, found.label)
        if given is not None:
            text = f"{operand(program, given)} ** 2"
            fixes.append(
                Fix(
                    T(en=f"Give it the variance: `{text}`", zh=f"交给它方差：`{text}`"),
                    program.replace((given, text)),
                    meaning="shape",
                )
            )
        return unique(program.text, fixes)
    calls = [
        n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) in ("poisson_nll_loss", "PoissonNLLLoss")
    ]
    for call in calls:
        text, added = program.segment(call)[:-1].rstrip().rstrip(","), "log_input=False"
        new = f"{text}, {added})" if call.args or call.keywords else f"{text}{added})"
        title = T(en=f"Say that it is a rate: `{added}`", zh=f"说明这是速率：`{added}`")
        said = [k for k in call.keywords if k.arg == "log_input"]
        fixes += [Fix(title, program.replace((keyword.value, "False")), meaning="shape") for keyword in said]
        if not said:
            fixes.append(Fix(title, program.replace((call, new)), meaning="shape"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL932",
    name="rate-for-its-logarithm",
    severity="warning",
    title=T(
        en="A loss has a rate where it takes its logarithm, or a deviation for a variance",
        zh="损失需要速率的对数，却得到速率；或需要方差，却得到标准差",
    ),
    what=T(
        en="A model makes its output positive with `exp`, and the loss does this once more; or it gives the root of "
        "the variance for the variance. The training runs, and what the model says is wrong. Use `log_input=False`, "
        "or square the deviation.",
        zh="模型用 `exp` 把输出变成正数，而损失又做了一次；或者把方差的平方根当作方差交给损失。训练照样进行，但模型给"
        "出的数是错的。请使用 `log_input=False`，或者把标准差平方。",
    ),
    why=T(
        en="`poisson_nll_loss` takes the logarithm of the rate by default (`log_input=True`) and computes `exp(input) "
        "- target * input`; with `log_input=False` it computes `input - target * log(input)`. `gaussian_nll_loss` "
        "takes the variance, while `Normal` and most papers name the standard deviation; `exp(0.5 * logvar)` is the "
        "deviation. Both forms are positive numbers, so torch cannot know.",
        zh="`poisson_nll_loss` 默认接受速率的对数（`log_input=True`），计算 `exp(input) - target * input`；"
        "`log_input=False` 时计算 `input - target * log(input)`。`gaussian_nll_loss` 接受方差，而 `Normal` 和多数论文"
        "说的是标准差；`exp(0.5 * logvar)` 是标准差。两种形式都是正数，所以 torch 无法分辨。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, counts = torch.randn(6, 2), torch.tensor([[0.0], [1.0], [3.0], [0.0], [2.0], [1.0]])
for _ in range(3):
    rate = net(x).exp()  # made
    loss = F.poisson_nll_loss(rate, counts)  # PL932
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, counts = torch.randn(6, 2), torch.tensor([[0.0], [1.0], [3.0], [0.0], [2.0], [1.0]])
for _ in range(3):
    rate = net(x).exp()
    loss = F.poisson_nll_loss(rate, counts, log_input=False)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "(rate, counts)",
            "(rate, counts, full=True)",
            T(
                en="The full formula adds a term of the counts; the rate is still taken for its logarithm.",
                zh="完整的公式只是加上一个与计数有关的项；速率仍然被当作它的对数。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.PoissonNLLLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.GaussianNLLLoss.html",
    ),
)
