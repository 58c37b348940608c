"""PL852: a spectrogram was computed with one window and is transformed back to a signal with another one, or with
none.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import key, made_by, same_numbers
from pitfall_lab.trace import Event, T

UPWARD = 300
NEAR = 1e-4
EVEN = 0.9
"""The least fraction of its storage that a window must have for the storage's mean to be taken as its own."""
FLAT = ("ones", "ones_like", "new_ones")
"""Calls whose result, used as a window, changes nothing."""
PLACES = {True: 4, False: 3}
"""The index of the window among the arguments, of a function of torch (True) and of a method of a tensor (False)."""


@dataclass(frozen=True, slots=True)
class MissedWindow:
    """``inverse`` is the call (``Event``) of ``istft``, ``forward`` the call of ``stft`` that computed its spectrum.

    ``found`` is the label of the window that ``inverse`` was given, ``wanted`` that of ``forward``; None for no window.
    ``scale`` is about the factor by which the signal changes without the window; None if ``inverse`` was given a
    window, or if the numbers of ``wanted`` are not known.
    """

    inverse: Event
    forward: Event
    found: str | None
    wanted: str | None
    scale: float | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of ``istft`` whose spectrum was computed by ``stft`` with another window, or
    without one.

    Nothing if it was computed from several spectra and one of them had the window of the ``istft``, if the two windows
    are multiples of each other, or if their numbers do not show whether they are.
    """
    told = set()
    for inverse in story.calls("istft") if any(story.calls("stft")) else ():
        place = story.span(inverse.step)
        found = _unequal(story, inverse) if inverse.error is None and place not in told else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _unequal(story: Story, inverse: Event) -> MissedWindow | None:
    found, differing = _window(inverse), None
    for forward in _behind(story, inverse):
        wanted = _window(forward)
        equal = _equal(story, (found, inverse), (wanted, forward))
        if equal is None or equal:
            return None
        differing = differing or forward
    if differing is None:
        return None
    wanted = _window(differing)
    return MissedWindow(
        inverse, differing, found, wanted, _mean(story, wanted, differing.step) if found is None and wanted else None
    )


def _window(event: Event) -> str | None:
    """Return the label of the window that was given to a call; None if it was given none."""
    return next((o.label for o in event.operands[1:] if o.label is not None), None)


def _behind(story: Story, inverse: Event) -> Iterator[Event]:
    """Yield the ``stft`` calls from whose spectra that of ``inverse`` was computed, if they have as many
    frequencies.
    """
    start = inverse.operands[0].label if inverse.operands else None
    count = _frequencies(story, start, inverse.step)
    pending, seen = deque([(start, inverse.step)]), {start}
    while pending and len(seen) < UPWARD:
        label, step = pending.popleft()
        made = made_by(story, label, step)
        if made is None:
            continue
        if made.name == "stft":
            if count is not None and _frequencies(story, label, made.step) == count:
                yield made
            continue
        for each in (o.label for o in made.operands if o.label is not None):
            if each not in seen:
                seen.add(each)
                pending.append((each, made.step))


def _frequencies(story: Story, label: str | None, step: int) -> int | None:
    """Return the number of frequencies of a spectrogram, the size of the last dimension but one; None if the tensor is
    not complex or has fewer than two dimensions.
    """
    shape = story.shape(label, step) or ()
    is_complex = str((story.tensor(label, step) or {}).get("dtype")).startswith("complex")
    return shape[-2] if is_complex and len(shape) > 1 else None


def _equal(story: Story, one: tuple[str | None, Event], other: tuple[str | None, Event]) -> bool | None:
    """Return whether two windows are the same, or one is a multiple of the other; None if their numbers do not show it.

    Each window is given as its label, None for no window, and the call that uses it.
    """
    (first, here), (second, there) = one, other
    if first == second:
        return True
    if first is None or second is None:
        label, event = (second, there) if first is None else (first, here)
        made = made_by(story, same_numbers(story, str(label), event.step), event.step)
        values = dict(Elements(story, label, event.step).known())
        if made is not None and made.name in FLAT:
            return True
        return len({round(value, 4) for value in values.values()}) == 1 if values else None
    if key(story, first, here.step) == key(story, second, there.step):
        return True
    pair = [Elements(story, label, event.step) for label, event in ((first, here), (second, there))]
    if pair[0].shape != pair[1].shape:
        return False
    known = dict(pair[1].known())
    both = [(value, known[index]) for index, value in pair[0].known() if index in known]
    ratios = [b / a for a, b in both if abs(a) > NEAR]
    if not ratios:
        return None
    return all(abs(b - a * ratios[0]) <= NEAR + NEAR * abs(b) for a, b in both) and all(
        isclose(ratio, ratios[0], rel_tol=10 * NEAR) for ratio in ratios
    )


def _mean(story: Story, window: str, step: int) -> float | None:
    """Return the mean of a window, which is about the factor that the signal keeps if it is transformed back without
    the window; None if it is unknown.
    """
    elements = Elements(story, window, step)
    count, known = elements.shape[0] if elements.shape else 0, [value for _, value in elements.known()]
    if count and len(known) == count:
        return sum(known) / count
    storage = story.record("storages", (story.tensor(window, step) or {}).get("storage"), step) or {}
    cells = storage.get("cells")
    if isinstance(cells, dict) and cells.get("mean") is not None and count >= EVEN * int(storage.get("size") or 0):
        return float(cells["mean"])
    return None


def _finding(story: Story, found: MissedWindow) -> Finding:
    step = found.inverse.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.forward.step))
    if found.found is None:
        without = T(en="without the window with which", zh="没有使用")
        after = T(en=" made it", zh="生成它时的窗")
    else:
        without = T(en="with another window than that with which", zh="使用的窗不是")
        after = T(en=" made it", zh="生成它时的窗")
    if found.wanted is None:
        without = T(en="with a window, though none was used where", zh="使用了窗，而")
        after = T(en=" made it", zh="生成它时没有用窗")
    scale = (
        T(
            en=f" Here about {number(found.scale, 2)} of the wave is left.",
            zh=f"这里波形大约只剩下 {number(found.scale, 2)} 倍。",
        )
        if found.scale is not None
        else T(en="", zh="")
    )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} turns a spectrum back into a wave {without.en} {there.en}{after.en}: the wave "
            "comes back at another size, not as it was.",
            zh=f"{here.zh}把频谱变回波形，{without.zh}{there.zh}{after.zh}：得到的波形大小与原来不同。",
        ),
        T(
            en="Each frame was multiplied by the window before its spectrum was taken. `istft` multiplies it by its "
            "own window once more, adds up the frames that overlap, and divides by the sum of the squares of its own "
            f"window. Only if both windows are the same does that give the wave back.{scale.en}",
            zh="求频谱之前，每一帧都乘上了窗。`istft` 再乘一次它自己的窗，把重叠的帧相加，然后除以它自己的窗的平方和。"
            f"只有两个窗相同，才能恢复原来的波形。{scale.zh}",
        ),
        related=[story.related("made", found.forward.step, T(en="the spectrum is made here", zh="频谱在这里生成"))],
        fixes=_fixes(story, found),
        facts=[Fact("scale", found.scale, story.by(step))] if found.scale is not None else [],
    )


def _fixes(story: Story, found: MissedWindow) -> tuple[Fix, ...]:
    """At most one fix: it gives the inverse the window of the call that computed the spectrum.

    If that call had none, it is given the window of the inverse instead. Empty if the program does not show the calls.
    """
    program = story.program
    inverse, forward = (program.at(story.span(event.step)) for event in (found.inverse, found.forward))
    if not isinstance(inverse, ast.Call) or not isinstance(forward, ast.Call) or called(inverse) != "istft":
        return ()
    target, source = (inverse, forward) if found.wanted is not None else (forward, inverse)
    new, old = _written(source), _written(target)
    if new is None:
        return ()
    text = program.segment(new)
    last = max([*target.args, *(k.value for k in target.keywords)], key=lambda n: (n.lineno, n.col_offset))
    change = (old, text) if old is not None else (last, f"{program.segment(last)}, window={text}")
    title = T(en="Give both calls one window", zh="让两个调用使用同一个窗")
    return unique(
        program.text, [Fix(title, program.replace(change), meaning="later" if target is inverse else "shape")]
    )


def _written(call: ast.Call) -> ast.expr | None:
    """The expression of the window in a call of ``stft`` or ``istft``; None if there is none."""
    for each in call.keywords:
        if each.arg == "window":
            return each.value
    is_function = isinstance(call.func, ast.Name) or (
        isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
    )
    place = PLACES[is_function]
    return call.args[place] if len(call.args) > place else None


RULE = Rule(
    code="PL852",
    name="inverse-without-window",
    severity="warning",
    title=T(
        en="A spectrum over time is turned back into a wave with another window than it was made with",
        zh="频谱变回波形时用的窗与生成时不同",
    ),
    what=T(
        en="A program cuts a wave into short pieces that overlap, fades each piece in and out, and takes its "
        "frequencies. On the way back it does not say how the pieces were faded, so the wave comes out too small or "
        "uneven. Give `istft` the same `window` as `stft`.",
        zh="程序把波形切成互相重叠的小段，让每一段淡入淡出，再求它的频率。变回去的时候却没有说明各段是怎样淡入淡出的，"
        "于是得到的波形太小，或者不均匀。请给 `istft` 传入与 `stft` 相同的 `window`。",
    ),
    why=T(
        en="`torch.istft` finds the wave whose spectrum comes nearest: frames times window, added up, divided by the "
        "sum of the squared window. Without `window` it takes one of ones, for `stft` and `istft` alike. With a Hann "
        "window in `stft` alone, the result is the wave times the mean of that window, which is a half. Nothing is "
        "raised, and it sounds right, only quieter, so that a comparison with the original goes wrong.",
        zh="`torch.istft` 求频谱最接近的波形：各帧乘窗、相加，再除以窗的平方和。不传 `window` 时，`stft` 和 `istft` 都"
        "用全为一的窗。如果只在 `stft` 中用汉宁窗，结果就是原波形乘以该窗的均值，即一半。不会报错，听起来也对，只是更"
        "轻，于是与原波形的比较就出错了。",
    ),
    bad="""import torch

wave = torch.sin(torch.arange(64) * 0.7)
window = torch.hann_window(16)
spectrum = torch.stft(wave, 16, hop_length=4, window=window, return_complex=True)  # made
again = torch.istft(spectrum, 16, hop_length=4, length=64)  # PL852
print((again - wave).abs().max())
""",
    good="""import torch

wave = torch.sin(torch.arange(64) * 0.7)
window = torch.hann_window(16)
spectrum = torch.stft(wave, 16, hop_length=4, window=window, return_complex=True)
again = torch.istft(spectrum, 16, hop_length=4, length=64, window=window)
print((again - wave).abs().max())
""",
    find=find,
    traps=(
        Trap(
            "length=64)",
            "length=64, center=True, normalized=False)",
            T(en="These are what it does anyway.", zh="这些本来就是它的默认做法。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.istft.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.stft.html",
    ),
)
