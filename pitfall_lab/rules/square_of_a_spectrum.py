"""PL841: the real part of the square of a complex spectrum was taken for its power."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

TRANSFORMS = {"fft", "rfft", "fft2", "rfft2", "fftn", "rfftn", "hfft", "ihfft", "stft"}
BACK = {"ifft", "irfft", "ifft2", "irfft2", "ifftn", "irfftn", "istft", "hfft"}
SCALED = (
    spellings("cat", "div", "mul", "neg", "transpose")
    | {"T", "__getitem__", "clone", "fftshift", "flatten", "mT", "mean", "nansum", "narrow", "permute", "reshape",
       "roll", "select", "squeeze", "stack", "sum", "unsqueeze", "view"}
)  # fmt: skip
"""Calls that the square is followed through: it stays a square but for a factor."""
POWERS = spellings("mul", "pow") | {"dot", "square"}
SPECTRAL = SCALED | spellings("add", "sub") | {"contiguous", "exp", "index_select", "masked_fill", "to", "where"}
"""Calls between the transform and the square: the numbers stay a spectrum."""
REAL = {"real"}
FURTHER = 80


@dataclass(frozen=True, slots=True)
class Squared:
    """``square`` is the call (``Event``) that multiplied ``spectrum``, the label of a complex tensor that comes from
    the call ``transform``, by itself, without the conjugate; ``real`` is the call that took the real part of the
    product.
    """

    square: Event
    real: Event
    transform: Event
    spectrum: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that squares a complex spectrum from a Fourier transform, if only the real part
    of the square is used.
    """
    if not any(True for _ in story.calls(*TRANSFORMS)):
        return
    reported = set()
    for square in story.calls(*POWERS):
        place = story.span(square.step)
        found = _squared(story, square) if place not in reported and square.error is None and square.results else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _squared(story: Story, square: Event) -> Squared | None:
    given = [o.label for o in square.operands if o.label is not None]
    if not given or not _is_complex(story, given[0], square.step):
        return None
    if square.name in ("pow", "__pow__"):
        exponent = square.operands[1].text if len(square.operands) > 1 else ""
        squares = len(given) == 1 and exponent in ("2", "2.0")
    else:
        squares = square.name == "square" or (len(given) > 1 and len(set(given)) == 1)
    transform = _transform(story, given[0], square.step) if squares else None
    real = _real_part(story, square) if transform is not None else None
    if transform is None or real is None:
        return None
    return Squared(square, real, transform, given[0])


def _is_complex(story: Story, label: str | None, step: int) -> bool:
    return str((story.tensor(label, step) or {}).get("dtype")).startswith("complex")


def _transform(story: Story, label: str, step: int) -> Event | None:
    """The transform that a spectrum comes from, through calls that scale, filter or select; else None."""
    pending, seen = deque([(label, step)]), {label}
    while pending and len(seen) < FURTHER:
        here, at = pending.popleft()
        made = story.event((story.tensor(here, at) or {}).get("born"))
        if made is None or here not in made.results:
            continue
        if made.name in TRANSFORMS:
            return made
        if made.name in BACK or made.name not in SPECTRAL:
            continue
        for each in (o.label for o in made.operands):
            if each is not None and each not in seen and _is_complex(story, each, made.step):
                seen.add(each)
                pending.append((each, made.step))
    return None


def _real_part(story: Story, square: Event) -> Event | None:
    """The call that takes the real part of a square, scaled or added up; None if something else uses the square."""
    pending, seen, found = deque(square.results), set(square.results), None
    while pending and len(seen) < FURTHER:
        label = pending.popleft()
        for use in story.uses(label):
            if use.step <= square.step or use.error is not None:
                continue
            if use.name in REAL:
                found = found or use
            elif use.name in SCALED and not any(
                o.label not in seen and _is_complex(story, o.label, use.step) for o in use.operands
            ):
                fresh = [each for each in use.results if each not in seen]
                seen.update(fresh)
                pending += fresh
            elif use.name not in ("tolist", "item", "numel", "size", "dim"):
                return None
    return found


def _finding(story: Story, found: Squared) -> Finding:
    here, there = (at_line(story, story.span(event.step)) for event in (found.square, found.real))
    made = at_line(story, story.span(found.transform.step))
    name = expression(story, found.spectrum, found.square.step)
    return RULE.finding(
        story.span(found.square.step),
        found.square.step,
        T(
            en=f"{capital(here.en)} squares the complex spectrum {name.en}, and of the square only the real part is "
            "used: that is not its power, depends on the phase, and may be negative.",
            zh=f"{here.zh}对复数频谱 {name.zh} 求平方，而只用了平方的实部：这不是功率，它取决于相位，还可能为负。",
        ),
        T(
            en=f"A number a + bi of the spectrum from {made.en} has the power a² + b². Its square is a² - b² + 2abi, "
            f"of which {there.en} keeps a² - b²: for a sine, whose part is -bi, that is its power with a minus sign, "
            "for a cosine it is right, and for all between something between.",
            zh=f"{made.zh}得到的频谱中，数 a + bi 的功率是 a² + b²。它的平方是 a² - b² + 2abi，{there.zh}只保留"
            " a² - b²：对正弦（只有 -bi 部分）得到带负号的功率，对余弦正好正确，其余情形介于两者之间。",
        ),
        related=[
            story.related("made", found.transform.step, T(en="the spectrum is computed here", zh="频谱在这里计算")),
            *(
                [story.related("used", found.real.step, T(en="its real part is taken here", zh="在这里取实部"))]
                if story.span(found.real.step) != story.span(found.square.step)
                else []
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("spectrum", found.spectrum, story.by(found.square.step))],
    )


def _fixes(story: Story, found: Squared) -> tuple[Fix, ...]:
    """The fix that squares the magnitudes instead."""
    program = story.program
    node = program.at(story.span(found.square.step))
    given = written_as(story, found.square, found.spectrum)
    if given is None or not isinstance(node, ast.BinOp | ast.Call) or found.square.name == "dot":
        return ()
    text = f"{operand(program, given)}.abs() ** 2"
    around = program.parents.get(node)
    if isinstance(node, ast.Call) and isinstance(around, ast.BinOp | ast.Attribute):
        text = f"({text})"
    title = T(en=f"Square the magnitudes: `{text}`", zh=f"对模求平方：`{text}`")
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="later")])


RULE = Rule(
    code="PL841",
    name="square-of-a-spectrum",
    severity="warning",
    title=T(
        en="The real part of the square of a spectrum is taken for its power",
        zh="把频谱平方的实部当作功率",
    ),
    what=T(
        en="The strengths of the tones in a signal come as numbers with two parts, and a program squares them and "
        "keeps the first part of the result. That is a difference of two squares where the power is their sum, and can "
        "even be negative. Square the magnitudes.",
        zh="信号中各个音的强度是由两部分组成的数，程序对它们求平方，只保留结果的第一部分。那是两个平方之差，而功率是两"
        "个平方之和，甚至可能得到负数。请对模求平方。",
    ),
    why=T(
        en="`torch.fft.rfft` answers with complex numbers a + bi, whose angle is the phase of a tone. `spec ** 2` "
        "doubles the angle, and `.real` is then `|z|² cos 2φ`. The power is `spec.abs() ** 2`, or `(spec * "
        "spec.conj()).real`, where the angles cancel. For real numbers both are the same, which is why the formula "
        "looks right.",
        zh="`torch.fft.rfft` 给出复数 a + bi，其辐角是一个音的相位。`spec ** 2` 使辐角加倍，`.real` 于是等于 "
        "`|z|² cos 2φ`。功率是 `spec.abs() ** 2`，或 `(spec * spec.conj()).real`，其中辐角互相抵消。对实数来说两者相"
        "同，所以公式看上去是对的。",
    ),
    bad="""import torch

t = torch.arange(64) / 64
spec = torch.fft.rfft(torch.sin(2 * torch.pi * 5 * t))  # made
power = (spec ** 2).real  # PL841
print(power[5].item(), power.argmax().item())
""",
    good="""import torch

t = torch.arange(64) / 64
spec = torch.fft.rfft(torch.sin(2 * torch.pi * 5 * t))
power = (spec.abs() ** 2).real
print(power[5].item(), power.argmax().item())
""",
    find=find,
    traps=(
        Trap(
            "(spec ** 2).real",
            "(spec * spec).real.abs()",
            T(
                en="No longer negative, but still a difference of squares: 0 for a phase of 45 degrees.",
                zh="不再为负，但仍是平方之差：相位为 45 度时是 0。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.fft.rfft.html",
        "https://docs.pytorch.org/docs/stable/complex_numbers.html",
    ),
)
