"""PL846: the inverse of a real Fourier transform was not given the length, and returns one number less than the
original had.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T

FORWARD = "rfft"
BACK = "irfft"
FURTHER = 60


@dataclass(frozen=True, slots=True)
class OddLength:
    """``back`` is the call (``Event``) of ``irfft`` that was given no length, and ``forward`` the call of ``rfft``
    whose spectrum, perhaps changed, it was given. ``length`` is the odd number of values that ``rfft`` was given along
    ``axis`` (counted from the end, -1 is the last).
    """

    back: Event
    forward: Event
    length: int
    axis: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that calls ``irfft`` without ``n`` on a spectrum with as many numbers as the
    ``rfft`` of an odd length made.
    """
    reported = set()
    for back in story.calls(BACK):
        place = story.span(back.step)
        found = _of_odd_length(story, back) if place not in reported and back.error is None else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _of_odd_length(story: Story, back: Event) -> OddLength | None:
    spectrum = back.operands[0].label if back.operands else None
    shape = story.shape(spectrum, back.step) or ()
    axis = _axis(back, len(shape))
    if spectrum is None or not shape or axis is None or argument(back, "n", 1) not in (None, "None"):
        return None
    forward = _forward(story, spectrum, back.step, axis, shape[axis])
    if forward is None:
        return None
    given = story.shape(forward.operands[0].label, forward.step) or ()
    length = whole(argument(forward, "n", 1)) or (given[axis] if len(given) >= -axis else 0)
    is_its = _axis(forward, len(given)) == axis and length // 2 + 1 == shape[axis]
    return OddLength(back, forward, length, axis) if is_its and length % 2 and length > 1 else None


def _axis(event: Event, count: int) -> int | None:
    """The axis of a transform, counted from the end (-1 is the last); None if it is not known."""
    dim = whole(argument(event, "dim", 2) or "-1")
    return None if dim is None else dim if dim < 0 else dim - count


def _forward(story: Story, label: str, step: int, axis: int, bins: int) -> Event | None:
    """The first ``rfft`` found that a spectrum comes from, through calls whose result has as many numbers along the
    axis; None if there is none.
    """
    pending, seen = deque([(label, step)]), {label}
    while pending and len(seen) < FURTHER:
        here, at = pending.popleft()
        made = story.event((story.tensor(here, at) or {}).get("born"))
        if made is None or here not in made.results or made.error is not None:
            continue
        if made.name == FORWARD:
            return made
        for each in (o.label for o in made.operands):
            shape = story.shape(each, made.step) or ()
            is_spectrum = str((story.tensor(each, made.step) or {}).get("dtype")).startswith("complex")
            if each is not None and each not in seen and is_spectrum and len(shape) >= -axis and shape[axis] == bins:
                seen.add(each)
                pending.append((each, made.step))
    return None


def _finding(story: Story, found: OddLength) -> Finding:
    step, n = found.back.step, found.length
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.forward.step))
    given = expression(story, found.forward.operands[0].label, found.forward.step)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} gives {n - 1} numbers back for the {n} of {given.en} on {there.en}: without `n`, "
            f"`irfft` assumes an even length.",
            zh=f"{there.zh}的 {given.zh} 有 {n} 个数，{here.zh}只还回 {n - 1} 个：没有 `n` 时，"
            "`irfft` 假定长度是偶数。",
        ),
        T(
            en=f"Both lengths, {n - 1} and {n}, have spectra of {n // 2 + 1} numbers, so `irfft` cannot see which one "
            f"it was. With the wrong one the curve is stretched by {n} / {n - 1}: the first number is right, and the "
            "others are moved more and more, up to one place at the end.",
            zh=f"长度 {n - 1} 和 {n} 的频谱都有 {n // 2 + 1} 个数，`irfft` 看不出原来是哪一个。用错了长度，曲线会按 "
            f"{n} / {n - 1} 拉伸：第一个数是对的，后面的越来越偏，末尾偏一个位置。",
        ),
        related=[
            story.related("forward", found.forward.step, T(en=f"{n} numbers go in here", zh=f"这里输入 {n} 个数"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("length", n, story.by(found.forward.step))],
    )


def _fixes(story: Story, found: OddLength) -> tuple[Fix, ...]:
    """At most one fix: it passes the length as ``n``, read from the tensor that the ``rfft`` was given if its name is
    still available, else as a number. Empty if the program does not call ``irfft`` there.
    """
    program = story.program
    back, forward = (
        program.at(story.span(event.step)) if program.tree is not None else None
        for event in (found.back, found.forward)
    )
    if not isinstance(back, ast.Call) or not back.args or any(word.arg in (None, "n") for word in back.keywords):
        return ()
    length = str(found.length)
    source = forward.args[0] if isinstance(forward, ast.Call) and forward.args else None
    shape = story.shape(found.forward.operands[0].label, found.forward.step) or ()
    is_long = len(shape) >= -found.axis and shape[found.axis] == found.length
    if (
        is_long
        and isinstance(source, ast.Name)
        and program.function(source) is program.function(back)
        and forward is not None
    ):
        names = [n for n in program.nodes if isinstance(n, ast.Name) and n.id == source.id]
        stores = [n for n in names if isinstance(n.ctx, ast.Store) and program.function(n) is program.function(back)]
        first, last = program.place(forward).line, program.place(back).line
        if not any(first <= program.place(n).line <= last for n in stores):
            length = f"{source.id}.shape[{found.axis}]"
    given = back.args[1:2]
    edit = (given[0], length) if given else (back.args[0], f"{program.segment(back.args[0])}, n={length}")
    title = T(en=f"Say the length: `n={length}`", zh=f"给出长度：`n={length}`")
    return unique(program.text, [Fix(title, program.replace(edit), meaning="later")])


RULE = Rule(
    code="PL846",
    name="odd-length-lost",
    severity="warning",
    title=T(en="The inverse transform of an odd length gives one number less", zh="奇数长度的逆变换少了一个数"),
    what=T(
        en="A program transforms curves of an odd length with `rfft` and back with `irfft`, without telling it how "
        "many numbers there were. It gets one less, and the curve is stretched a little. Give the length: "
        "`irfft(spectrum, n=x.shape[-1])`.",
        zh="程序用 `rfft` 变换奇数长度的曲线，再用 `irfft` 变回来，却没有告诉它原来有多少个数。结果少了一个，曲线也被"
        "拉伸了一点。请给出长度：`irfft(spectrum, n=x.shape[-1])`。",
    ),
    why=T(
        en="The spectrum of n real numbers has n // 2 + 1 entries, the same for n = 8 and n = 9. Without `n`, `irfft` "
        "takes the even length, 2 * (entries - 1). Where the results are cut to one length before they are compared, "
        "no shape says that anything is wrong.",
        zh="n 个实数的频谱有 n // 2 + 1 项，n = 8 与 n = 9 是一样的。没有 `n` 时，`irfft` 取偶数长度 2 * (项数 - 1)。"
        "如果在比较之前把结果裁成同一长度，形状上就看不出任何问题。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.sin(torch.arange(9.0))
gain = torch.ones(5, requires_grad=True)
back = torch.fft.irfft(torch.fft.rfft(x) * gain)  # PL846 forward
loss = (back - x[: len(back)]).square().mean()
loss.backward()
print(loss.item(), gain.grad)
""",
    good="""import torch

torch.manual_seed(0)
x = torch.sin(torch.arange(9.0))
gain = torch.ones(5, requires_grad=True)
back = torch.fft.irfft(torch.fft.rfft(x) * gain, n=x.shape[-1])
loss = (back - x[: len(back)]).square().mean()
loss.backward()
print(loss.item(), gain.grad)
""",
    find=find,
    traps=(
        Trap(
            "x[: len(back)]",
            "x[1 : 1 + len(back)]",
            T(
                en="Another part of the curve is compared; the one that comes back is stretched all the same.",
                zh="这只是与曲线的另一段相比，变回来的曲线仍被拉伸。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.fft.irfft.html",),
)
