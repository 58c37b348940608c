"""PL843: two spectra that are too short for the convolution are multiplied, so that the end of the convolution is added
to its beginning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

FORWARD = {"rfft": "irfft", "fft": "ifft"}
PRODUCTS = spellings("mul")
KEPT = {"unsqueeze", "squeeze", "__getitem__", "view", "reshape", "expand", "real"}
"""Calls between the transforms, the product and the inverse that do not change the numbers of a row."""
NEAR = 1e-4
DEEPEST = 6


@dataclass(frozen=True, slots=True)
class ConvolutionWrapsRound:
    """``inverse`` is the call (``Event``) that transforms a product of two spectra back, which is not the convolution
    of the two signals.

    ``first`` and ``second`` are the calls that made the spectra, ``lengths`` the lengths of their signals, ``size`` the
    length of all three transforms. ``place`` is an index (from 0) at which the result is the number ``got`` and the
    convolution the number ``meant``.
    """

    inverse: Event
    first: Event
    second: Event
    lengths: tuple[int, int]
    size: int
    place: int
    got: float
    meant: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that transforms a product of two spectra back, if the end of the convolution was
    added to its beginning, as known values show.

    At least one of the signals must have been zero-padded by its transform: two signals as long as the transform may be
    periodic. Nothing if a slice then drops the beginning.
    """
    reported = set()
    for inverse in story.calls(*FORWARD.values()):
        place = story.span(inverse.step)
        found = (
            _wrapped(story, inverse) if place not in reported and inverse.error is None and inverse.results else None
        )
        if found is not None and not _drops_beginning(story, inverse, min(found.lengths) - 1):
            reported.add(place)
            yield _finding(story, found)


def _wrapped(story: Story, inverse: Event) -> ConvolutionWrapsRound | None:
    product = _before(story, inverse.operands[0].label, inverse.step, PRODUCTS)
    factors = [o.label for o in product.operands if o.label is not None] if product is not None else []
    if product is None or len(factors) != len({"first", "second"}):
        return None
    transforms = [_before(story, label, product.step, set(FORWARD)) for label in factors]
    if any(each is None or FORWARD[each.name] != inverse.name for each in transforms):
        return None
    first, second = (each for each in transforms if each is not None)
    sizes = {size for each in (first, second) if (size := _size(story, each)) is not None}
    shape = story.shape(inverse.results[0], inverse.step) or (0,)
    lengths = tuple((story.shape(each.operands[0].label, each.step) or (0,))[-1] for each in (first, second))
    if (
        len(sizes) != 1
        or shape[-1] not in sizes
        or min(lengths) < 2
        or not any(length < shape[-1] for length in lengths)
    ):
        return None
    if max(lengths) > shape[-1] or shape[-1] >= sum(lengths) - 1:
        return None
    different = _difference(story, inverse, product, first, second)
    if different is None:
        return None
    return ConvolutionWrapsRound(inverse, first, second, (lengths[0], lengths[1]), shape[-1], *different)


def _before(story: Story, label: str | None, step: int, names: set[str]) -> Event | None:
    """Return the call of one of the operations ``names`` that computed the tensor ``label``, apart from views
    (:data:`KEPT`); None if there is none.
    """
    for _ in range(DEEPEST):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is None or label not in made.results or made.error is not None:
            return None
        if made.name in names:
            return made
        given = [o.label for o in made.operands if o.label is not None]
        if made.name not in KEPT or len(given) != 1:
            return None
        label, step = given[0], made.step
    return None


def _size(story: Story, transform: Event) -> int | None:
    """Return the length of a transform along the last dimension; None if it transforms another dimension."""
    axis = whole(argument(transform, "dim", 2) or "-1")
    shape = story.shape(transform.operands[0].label, transform.step) or ()
    if axis not in (-1, len(shape) - 1) or not shape:
        return None
    return whole(argument(transform, "n", 1)) or shape[-1]


def _difference(
    story: Story, inverse: Event, product: Event, first: Event, second: Event
) -> tuple[int, float, float] | None:
    """Return the first index at which the inverse is known to differ from the convolution, with both values; None if
    none is known.

    Only as many elements of the convolution are computed as are known at the beginning of both signals.
    """
    one, other = (_row(story, each.operands[0].label, each.step) for each in (first, second))
    got = _row(story, inverse.results[0], inverse.step)
    spectrum = _row(story, product.results[0], product.step)
    if not one or not other or not got or not spectrum:
        return None
    size = (story.shape(inverse.results[0], inverse.step) or (1,))[-1]
    # What a transform rounds is a small part of the whole spectrum, spread over all places.
    scale = max(*map(abs, got), max(map(abs, spectrum)) / sqrt(size))
    for place in range(min(len(one), len(other), len(got))):
        meant = sum(one[i] * other[place - i] for i in range(place + 1))
        if abs(got[place] - meant) > NEAR * scale:
            return place, got[place].real, meant.real
    return None


def _row(story: Story, label: str | None, step: int) -> list[complex]:
    """Return the known numbers at the beginning of the first row of a tensor, up to the first unknown one; empty if
    none is known.
    """
    record = story.tensor(label, step) or {}
    shape, stride = tuple[int, ...](record.get("shape") or ()), tuple[int, ...](record.get("stride") or ())
    start = int(record.get("offset") or 0)
    held, found = story.held(label, step), list[complex]()
    for place in range(shape[-1] if shape else 0):
        value = held.get(start + place * int(stride[-1]))
        if not isinstance(value, int | float | str) or isinstance(value, bool):
            break
        try:
            found.append(complex(value))
        except ValueError:
            break
    return found


def _drops_beginning(story: Story, inverse: Event, count: int) -> bool:
    """Whether a later slice drops the first ``count`` numbers of the result, those to which the end was added."""
    pending, seen = list(inverse.results), set(inverse.results)
    while pending:
        for use in story.uses(pending.pop()):
            before, after = (
                story.tensor(each, use.step) or {} for each in (use.operands[0].label, (*use.results, None)[0])
            )
            if before.get("storage") != after.get("storage") or not use.results or not before.get("stride"):
                continue
            moved = int(after.get("offset") or 0) - int(before.get("offset") or 0)
            if moved % max(before["shape"][-1], 1) >= count * before["stride"][-1] > 0:
                return True
            fresh = [each for each in use.results if each not in seen]
            seen.update(fresh)
            pending += fresh
    return False


def _finding(story: Story, found: ConvolutionWrapsRound) -> Finding:
    here, there = (at_line(story, story.span(event.step)) for event in (found.inverse, found.first))
    names = [expression(story, each.operands[0].label, each.step) for each in (found.first, found.second)]
    long, short = sorted(found.lengths, reverse=True)
    needed = long + short - 1
    return RULE.finding(
        story.span(found.inverse.step),
        found.inverse.step,
        T(
            en=f"{capital(here.en)} convolves {names[0].en} with {names[1].en} by transforms of length {found.size}, "
            f"and the result has {needed} numbers: the last {needed - found.size} are added to the first ones.",
            zh=f"{here.zh}用长度为 {found.size} 的变换对 {names[0].zh} 与 {names[1].zh} 做卷积，而结果有 {needed} 个"
            f"数：最后 {needed - found.size} 个被加到了最前面的数上。",
        ),
        T(
            en=f"A product of two spectra is a circular convolution: what does not fit into {found.size} places goes "
            f"on at the beginning. At place {found.place} the convolution is {found.meant:.4g}, and {found.got:.4g} "
            f"came out. With transforms of length {long} + {short} - 1, which fill both signals up with zeros, "
            "nothing wraps round.",
            zh=f"两个频谱的乘积是循环卷积：{found.size} 个位置放不下的部分会从头继续。在位置 {found.place}，卷积应为 "
            f"{found.meant:.4g}，得到的却是 {found.got:.4g}。若变换长度取 {long} + {short} - 1（两个信号都补零），就不"
            "会回绕。",
        ),
        related=[
            story.related("made", found.first.step, T(en=f"{there.en}: its length is given here", zh="长度在这里给出"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("length", found.size), Fact("needed", needed)],
    )


def _fixes(story: Story, found: ConvolutionWrapsRound) -> tuple[Fix, ...]:
    """At most one fix: it gives all three transforms the length that the convolution needs; empty if the calls are not
    on expressions of their own.
    """
    program = story.program
    calls = [program.at(story.span(event.step)) for event in (found.first, found.second, found.inverse)]
    nodes = [written_as(story, event, event.operands[0].label) for event in (found.first, found.second)]
    if any(node is None for node in nodes) or len(set(calls)) != len(calls):
        return ()
    texts = [operand(program, node) for node in nodes if node is not None]
    size = " + ".join(f"{text}.shape[-1]" for text in texts) + " - 1"
    changes: list[tuple[ast.AST, str]] = []
    for call in calls:
        if not isinstance(call, ast.Call):
            return ()
        given = next((k.value for k in call.keywords if k.arg == "n"), call.args[1] if len(call.args) > 1 else None)
        if given is not None:
            changes.append((given, size))
        elif call.args:
            changes.append((call.args[0], f"{program.segment(call.args[0])}, n={size}"))
    if len(changes) != len(calls):
        return ()
    if any(node in program.ancestors(other) for node, _ in changes for other, _ in changes):
        return ()
    edits = program.replace(*changes)
    title = T(en=f"Use transforms of length `{size}`", zh=f"使用长度为 `{size}` 的变换")
    return unique(program.text, [Fix(title, edits, meaning="shape")])


RULE = Rule(
    code="PL843",
    name="convolution-wraps-round",
    severity="warning",
    title=T(
        en="The end of a convolution by Fourier transforms wraps round onto its beginning",
        zh="用傅里叶变换做的卷积，末尾回绕到了开头",
    ),
    what=T(
        en="A program adds an echo to a signal by multiplying two spectra, and makes them only as long as the signal. "
        "The echo of the end does not fit any more, and is heard at the beginning. Use transforms as long as the "
        "signal and the echo together.",
        zh="程序把两个频谱相乘来给信号加回声，却只取信号本身那么长。末尾的回声放不下，就出现在了开头。请使用信号与回声"
        "长度之和那么长的变换。",
    ),
    why=T(
        en="`irfft(rfft(a, n) * rfft(b, n), n)` is the convolution of a and b on a circle of n places, as if both were "
        "repeated for ever. It is the usual one only if n is at least `len(a) + len(b) - 1`: a larger `n` fills up "
        "with zeros. `conv1d` with padding does not wrap, and neither does a slice that drops the first `len(b) - 1` "
        "places.",
        zh="`irfft(rfft(a, n) * rfft(b, n), n)` 是 a 与 b 在 n 个位置的圆上的卷积，就像两者都无限重复。只有 n 不小于 "
        "`len(a) + len(b) - 1` 时才是通常的卷积：更大的 `n` 会补零。带填充的 `conv1d` 不会回绕；丢掉最前面 "
        "`len(b) - 1` 个位置的切片也没有问题。",
    ),
    bad="""import torch

signal = torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0, 4.0])
echo = torch.tensor([1.0, 0.5, 0.25])
n = len(signal)
spec = torch.fft.rfft(signal, n) * torch.fft.rfft(echo, n)  # made
wet = torch.fft.irfft(spec, n)  # PL843
print(wet, wet[:3].sum())
""",
    good="""import torch

signal = torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0, 4.0])
echo = torch.tensor([1.0, 0.5, 0.25])
n = len(signal) + len(echo) - 1
spec = torch.fft.rfft(signal, n) * torch.fft.rfft(echo, n)
wet = torch.fft.irfft(spec, n)
print(wet, wet[:3].sum())
""",
    find=find,
    traps=(
        Trap(
            "wet = torch.fft.irfft(spec, n)",
            "wet = torch.fft.irfft(spec, n + 2)",
            T(
                en="Only the inverse is longer: the product of the short spectra has wrapped round already.",
                zh="只加长了逆变换：短频谱的乘积已经回绕了。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.fft.rfft.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.fft.irfft.html",
    ),
)
