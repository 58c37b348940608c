"""PL956: a divergence enters a loss with the wrong sign: a number is added and its exponential subtracted, so the loss
has no minimum.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.loss_slopes import Slope, slopes
from pitfall_lab.trace import Event, T

WRONG_WAY = {"exp": -1, "log": 1}
"""The sign of the exponential, or of the logarithm, of a number that itself enters with the opposite sign: their sum is
concave, so it has no minimum.
"""


@dataclass(frozen=True, slots=True)
class Concave:
    """A loss that grows with a tensor and falls with its ``exp``, or that falls with a tensor and grows with its
    ``log``.

    ``backward`` is the backward (``Event``) that starts from the loss. ``plain`` is the path from the loss back to the
    tensor itself (a :class:`Slope`), ``curved`` the path to its ``exp`` or ``log``.
    """

    backward: Event
    plain: Slope
    curved: Slope


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes the exponential of a tensor for a loss which falls with the
    exponential and grows with the tensor itself, or the logarithm for a loss which grows with the logarithm and falls
    with the tensor.

    Such a loss has no minimum. Only if an optimizer steps after the backward, and not in programs that contain the word
    ``maximize``.
    """
    reported = set()
    steps = [update.step for update in story.trace.optimizer_steps]
    if "maximize" in story.program.text or not any(True for _ in story.calls(*WRONG_WAY)):
        return
    for backward in story.backwards():
        if backward.error is not None or len(backward.operands) != 1 or not any(step > backward.step for step in steps):
            continue
        found = _concave(story, backward)
        place = story.span(found.curved.event.step) if found is not None and found.curved.event is not None else None
        if found is not None and place not in reported:
            reported.add(place)
            yield _finding(story, found)


def _concave(story: Story, backward: Event) -> Concave | None:
    for ways in slopes(story, backward.operands[0].label, backward.step).values():
        for curved in ways:
            name = curved.event.name if curved.event is not None else ""
            plain = [
                way
                for way in ways
                if way.event is not None and way.event is not curved.event and way.event.name not in WRONG_WAY
            ]
            if curved.sign == WRONG_WAY.get(name) and plain and all(way.sign == -curved.sign for way in plain):
                return Concave(backward, plain[0], curved)
    return None


def _finding(story: Story, found: Concave) -> Finding:
    event = found.curved.event
    assert event is not None
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.backward.step))
    name, signs = expression(story, found.plain.label, event.step), ("+", "-") if found.plain.sign > 0 else ("-", "+")
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"The loss on {there.en} contains {name.en} with {signs[0]} and its `{event.name}` on {here.en} with "
            f"{signs[1]}: no value of it makes that smallest, and training drives it away without end.",
            zh=f"{there.zh}的损失以“{signs[0]}”含有 {name.zh}，又以“{signs[1]}”含有{here.zh}上它的 `{event.name}`：没"
            "有哪个值使它最小，训练会把它越推越远。",
        ),
        T(
            en=f"{capital(name.en)} and its `{event.name}` in a divergence, such as the one between two normal "
            "distributions, hold each other: `exp(v) - v` has its minimum at 0. Here the whole term has the opposite "
            "sign, by a minus before it or by a factor, so the optimizer makes the divergence larger.",
            zh=f"在散度（例如两个正态分布之间的散度）中，{name.zh} 与它的 `{event.name}` 互相牵制：`exp(v) - v` 在 0 "
            "处最小。这里整个项的符号相反（由于前面的减号或某个系数），于是优化器使散度越来越大。",
        ),
        related=[
            story.related("backward", found.backward.step, T(en="the loss is made smaller", zh="损失在这里被减小"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("sign", found.plain.sign, story.by(event.step))],
    )


def _fixes(story: Story, found: Concave) -> tuple[Fix, ...]:
    """Fixes that change one sign between the loss and the sum of both terms: a minus into a plus, or the sign of a
    factor; empty if no line between them has such an operator.
    """
    program, fixes = story.program, []
    other = {id(step.towards) for step in found.plain.path()}
    shared = [step for step in found.curved.path() if step.towards is not None and id(step) in other]
    for step in reversed(shared):
        node = program.at(story.span(step.event.step)) if step.event is not None else None
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub)
            and step.event is not None
            and step.event.operands[1].label == step.label
        ):
            text = f"{program.segment(node.left)} + {operand(program, node.right)}"
        elif (
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and (factor := _number(node.left)) is not None
        ):
            text = f"{-factor:g} * {operand(program, node.right)}"
        else:
            continue
        title = T(en=f"Turn the sign: `{text}`", zh=f"改变符号：`{text}`")
        fixes.append(Fix(title, program.replace((node, text)), meaning="later"))
    return unique(program.text, fixes)


def _number(node: ast.expr) -> float | None:
    """Return the number of a literal, possibly with a minus before it; None if ``node`` is not a literal number."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and (inner := _number(node.operand)) is not None:
        return -inner
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


RULE = Rule(
    code="PL956",
    name="divergence-subtracted",
    severity="warning",
    title=T(en="A divergence enters a loss with the wrong sign", zh="散度以错误的符号进入损失"),
    what=T(
        en="A program adds a term that should keep distributions close to each other, but with the wrong sign. The "
        "loss then falls without end while they move apart. Add the divergence to the loss.",
        zh="程序加入了一个应当让分布彼此靠近的项，符号却错了。于是损失无止境地下降，分布越离越远。请把散度加到损失上。",
    ),
    why=T(
        en="The divergence of a normal distribution from the standard one is `-0.5 * (1 + logvar - mu**2 - "
        "logvar.exp())`: never negative, and 0 where they are equal. `step()` makes the loss smaller, so the "
        "divergence has to enter with plus. A bound that is to be made large (the ELBO) has it with minus; the loss "
        "is minus the whole bound. With one sign lost, `logvar - exp(logvar)` remains, which has no smallest value.",
        zh="正态分布与标准正态分布之间的散度是 `-0.5 * (1 + logvar - mu**2 - logvar.exp())`：它从不为负，两者相等时为 "
        "0。`step()` 使损失变小，所以散度必须以正号进入。要变大的下界（ELBO）里它带负号，而损失是整个下界的相反数。丢"
        "了一个符号，剩下的就是没有最小值的 `logvar - exp(logvar)`。",
    ),
    advice=T(
        en="turn the sign of the term with the number on {line}, so that the loss on {backward} contains the "
        "divergence with plus.",
        zh="改变{line}的那个数所在项的符号，使{backward}的损失以正号含有散度。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3)
encode, decode = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*encode.parameters(), *decode.parameters()], lr=0.1)
for _ in range(3):
    mu, logvar = encode(x).chunk(2, dim=1)
    z = mu + (0.5 * logvar).exp() * torch.randn_like(mu)
    kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1).mean()  # PL956
    loss = (decode(z) - x).square().mean() - kl
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
    print(loss.item(), kl.item())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3)
encode, decode = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*encode.parameters(), *decode.parameters()], lr=0.1)
for _ in range(3):
    mu, logvar = encode(x).chunk(2, dim=1)
    z = mu + (0.5 * logvar).exp() * torch.randn_like(mu)
    kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1).mean()
    loss = (decode(z) - x).square().mean() + kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), kl.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=0.01",
            T(en="Smaller steps in the wrong direction.", zh="只是往错误方向走得慢一些。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.kl",),
)
