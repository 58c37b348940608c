"""PL858: a shift that was to centre the frequencies also moved a dimension that was never transformed, such as the
channels.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SHIFTS = ("fftshift", "ifftshift")
LAST = {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}
LAST_TWO = {"fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2"}
ALL = {"fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"}
TRANSFORMS = LAST | LAST_TWO | ALL
ELEMENTWISE = spellings("abs", "add", "div", "mul", "pow", "sub") | {
    "angle", "log", "log1p", "log2", "log10", "rtruediv", "rsub", "square", "sqrt", "exp", "real", "imag", "conj",
    "resolve_conj", "clone", "contiguous", "detach", "to", "float", "double", "cfloat", "complex", "polar", "where",
    "clamp", "neg", "masked_fill", "clamp_min", "sgn", "cpu", "view_as", "type_as",
}  # fmt: skip
"""Calls, without the underscores of operators, whose results are computed element by element."""
REDUCTIONS = {"sum", "mean", "amax", "amin", "std", "var", "norm", "vector_norm", "linalg_vector_norm", "median"}
"""Calls that may remove a dimension."""
UPWARD, ONWARD = 60, 200
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class MovedAxis:
    """``shift`` is the call (``Event``) of ``fftshift`` or ``ifftshift`` that shifted the dimension ``axis``, of size
    ``count``, along which none of the Fourier transforms of that tensor went.

    ``transform`` is the nearest of these transforms; ``axes`` are the dimensions along which at least one of them went,
    as numbers from 0.
    """

    shift: Event
    axis: int
    count: int
    transform: Event
    axes: tuple[int, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of ``fftshift`` or ``ifftshift`` that also shifts a dimension along which no
    Fourier transform of that tensor went, if later calls depend on the order along this dimension.

    Nothing if no transform is found, or some of the dimensions are not known.
    """
    told = set()
    for shift in story.calls(*SHIFTS):
        place = story.span(shift.step)
        found = _moved(story, shift) if shift.error is None and place not in told and shift.results else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _moved(story: Story, shift: Event) -> MovedAxis | None:
    label = shift.operands[0].label if shift.operands else None
    shape = story.shape(label, shift.step) or ()
    axes = _given(argument(shift, "dim", 1), len(shape))
    if label is None or len(shape) < len("xy") or axes is None:
        return None
    shifted = set[int]()
    before = _before(story, label, shift.step, len(shape), shifted)
    after = _after(story, shift, len(shape), shifted)
    if before is None or after is None:
        return None
    transforms = {**after, **before}
    if not transforms:
        return None
    nearest = (before or after)[next(iter(before or after))]
    for axis in axes:
        if axis not in transforms.keys() | shifted and shape[axis] > 1 and _matters(story, shift, axis):
            return MovedAxis(shift, axis, shape[axis], nearest, tuple(sorted(transforms)))
    return None


def _given(text: str | None, count: int) -> list[int] | None:
    """Return the dimensions that an argument contains, from 0; all of ``count`` if it was not given or is None; None if
    its text has no such numbers.
    """
    if text in (None, "None"):
        return list(range(count))
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return None
    axes = list(value) if isinstance(value, tuple | list) else [value]
    return [axis % count for axis in axes] if count and all(isinstance(axis, int) for axis in axes) else None


def _axes(event: Event, count: int) -> list[int] | None:
    """Return the dimensions, from 0, along which a transform of a tensor with ``count`` dimensions went; None if they
    are not known.
    """
    text = argument(event, "dim", 2)
    if text not in (None, "None"):
        return _given(text, count)
    if event.name in ALL:
        sizes = argument(event, "s", 1)
        some = _given(sizes, count) if sizes not in (None, "None") else None
        return list(range(count))[-len(some) :] if some is not None else list(range(count))
    return list(range(count))[-2 if event.name in LAST_TWO else -1 :]


def _is_transform(event: Event) -> bool:
    return event.name in TRANSFORMS and event.op.startswith("torch.fft.")


def _before(story: Story, label: str, step: int, count: int, shifted: set[int]) -> dict[int, Event] | None:
    """Return the dimensions of ``label`` along which it was transformed before, each with the nearest such call; None
    if some of them are not known.

    The dimensions along which it was shifted before are added to ``shifted``: this shift may undo an earlier one.
    """
    found = dict[int, Event]()
    pending = deque([(label, step, tuple(range(count)))])
    seen = {label}
    while pending and len(seen) < UPWARD:
        here, at, axes = pending.popleft()
        made = made_by(story, here, at)
        if made is None:
            continue
        given = [o.label for o in made.operands if o.label is not None]
        along = _along(made, len(axes))
        if along is not None:
            places = [axes[axis] for axis in along]
            shifted.update(places if made.name in SHIFTS else ())
            found.update({place: made for place in places if made.name not in SHIFTS and place not in found})
        elif _is_transform(made) or made.name in SHIFTS:
            return None
        elif (turned := _turned(made, len(given), axes)) is not None:
            axes = turned
        elif _is_near_transform(story, given, made.step):
            return None
        else:
            continue
        for each in given:
            if each not in seen and len(story.shape(each, made.step) or ()) == len(axes):
                seen.add(each)
                pending.append((each, made.step, axes))
    return found


def _along(event: Event, count: int) -> list[int] | None:
    """Return the dimensions along which a call transforms or shifts a tensor with ``count`` dimensions; None if it does
    neither, or they are not known.
    """
    if event.name in SHIFTS:
        return _given(argument(event, "dim", 1), count)
    return _axes(event, count) if _is_transform(event) else None


def _turned(event: Event, given: int, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return, for each dimension of a call's operands, its number in the tensor that is followed; None if the call is
    not known to keep or permute dimensions.

    ``axes`` are these numbers for the dimensions of the result; ``given`` is the number of tensor operands.
    """
    name = event.name.strip("_")
    if name in ELEMENTWISE:
        return axes
    if name in {"stack", "unsqueeze"}:
        place = (whole(argument(event, "dim", given)) or 0) % len(axes)
        return axes[:place] + axes[place + 1 :]
    pair = [whole(o.text) for o in event.operands[1:]] if name in {"transpose", "swapaxes"} else []
    if len(pair) != len("xy") or pair[0] is None or pair[1] is None:
        return None
    turned = list(axes)
    turned[pair[0]], turned[pair[1]] = axes[pair[1]], axes[pair[0]]
    return tuple(turned)


def _is_near_transform(story: Story, labels: list[str], step: int) -> bool:
    """Whether a Fourier transform is among the calls from which the tensors ``labels`` were computed, as far as
    followed.
    """
    pending, seen = deque((label, step) for label in labels), set(labels)
    while pending and len(seen) < ONWARD:
        label, at = pending.popleft()
        made = made_by(story, label, at)
        if made is None:
            continue
        if _is_transform(made):
            return True
        for each in (o.label for o in made.operands if o.label is not None and o.label not in seen):
            seen.add(each)
            pending.append((each, made.step))
    return False


def _after(story: Story, shift: Event, count: int, shifted: set[int]) -> dict[int, Event] | None:
    """Return the dimensions along which the shifted tensor is transformed later, each with the first such call; None if
    some of them are not known.

    The dimensions along which it is shifted once more are added to ``shifted``.
    """
    found = dict[int, Event]()
    pending = deque([(shift.results[0], True)])
    seen = {shift.results[0]}
    while pending and len(seen) < ONWARD:
        label, plain = pending.popleft()
        for use in story.uses(label):
            if use.step <= shift.step:
                continue
            along, is_shift = _along(use, count) if plain else None, use.name in SHIFTS
            if along is None and (is_shift or _is_transform(use)):
                return None
            shifted.update(along or () if is_shift else ())
            found.update({axis: use for axis in along or () if not is_shift and axis not in found})
            keeps = plain and (use.name.strip("_") in ELEMENTWISE or along is not None)
            for each in use.results:
                if each not in seen and len(seen) < ONWARD:
                    seen.add(each)
                    pending.append((each, keeps and len(story.shape(each, use.step) or ()) == count))
    return found


def _matters(story: Story, shift: Event, axis: int) -> bool:
    """Whether later calls depend on the order along the dimension ``axis``: False if all of them sum or average over
    it, with nothing in between that could tell the entries apart.
    """
    pending, seen = deque([(shift.results[0], axis)]), {shift.results[0]}
    while pending:
        label, here = pending.popleft()
        shape = story.shape(label, shift.step) or ()
        for use in story.uses(label):
            if use.step <= shift.step or use.error is not None:
                continue
            new = _carried(story, use, shape, here, seen)
            if new == UNKNOWN:
                return True
            if new is None:
                continue
            for each in use.results:
                if each not in seen and len(seen) < ONWARD:
                    seen.add(each)
                    pending.append((each, new))
    return False


def _carried(story: Story, use: Event, shape: tuple[int, ...], axis: int, seen: set[str]) -> int | None:
    """Return the number of the dimension ``axis`` in the result of a call; None if the call reduces it, ``UNKNOWN`` if
    neither is known or another operand differs along it.
    """
    after = story.shape(use.results[0], use.step) if use.results else None
    if after is None or axis >= len(shape):
        return UNKNOWN
    if use.name in REDUCTIONS:
        dims = _given(argument(use, "dim", 2 if use.name in ("norm", "vector_norm") else 1), len(shape))
        if dims is None or axis in dims:
            return None if dims is not None else UNKNOWN
        return axis if len(after) == len(shape) else axis - sum(dim < axis for dim in dims)
    if use.name.strip("_") in ELEMENTWISE or _is_transform(use):
        for operand in use.operands:
            other = story.shape(operand.label, use.step) or () if operand.label is not None else ()
            place = axis - len(after) + len(other)
            if operand.label is not None and operand.label not in seen and place >= 0 and other[place] > 1:
                return UNKNOWN
        return axis + len(after) - len(shape)
    is_same = len(after) == len(shape) and after[axis] == shape[axis]
    return axis if use.name == "__getitem__" and is_same else UNKNOWN


def _finding(story: Story, found: MovedAxis) -> Finding:
    step, shift = found.shift.step, found.shift
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.transform.step))
    given = shown(story, shift, shift.operands[0].label)
    by = found.count // 2
    along = ", ".join(str(axis) for axis in found.axes)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} shifts {given.en} along axis {found.axis} too, which is no axis of frequencies: "
            f"its {found.count} entries are rolled by {by}, so each stands in another one's place.",
            zh=f"{here.zh}把 {given.zh} 也沿第 {found.axis} 维移动，而这一维不是频率：它的 {found.count} 项被循环移动"
            f" {by} 位，每一项都落到了另一项的位置上。",
        ),
        T(
            en=f"The transform ({there.en}) went along axis {along}. Without `dim`, `{shift.name}` rolls every axis by "
            "half its length. Along the frequencies that brings zero to the middle; along examples or channels it "
            "only mixes up whose spectrum is whose. Name the axes of the transform.",
            zh=f"变换（{there.zh}）沿第 {along} 维进行。不传 `dim` 时，`{shift.name}` 把每一维都循环移动一半长度。沿频"
            "率维，这会把零频移到中间；沿样本或通道维，只会弄混哪个频谱属于谁。请指明变换所沿的维。",
        ),
        related=[
            story.related(
                "made", found.transform.step, T(en="transformed along other axes here", zh="在这里沿别的维变换")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("axis", found.axis, story.by(step)), Fact("rolled by", by, story.by(step))],
    )


def _fixes(story: Story, found: MovedAxis) -> tuple[Fix, ...]:
    """At most one fix: it gives the shift the dimensions of the transform; empty if the program does not show the call
    with its operand.
    """
    program, count = story.program, len(story.shape(found.shift.results[0], found.shift.step) or ())
    call = program.at(story.span(found.shift.step))
    if not isinstance(call, ast.Call) or called(call) != found.shift.name or not call.args:
        return ()
    axes = [axis - count for axis in found.axes]
    text = str(axes[0]) if len(axes) == 1 else str(tuple(axes))
    old = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "dim"), None)
    last = call.args[0]
    change = (old, text) if old is not None else (last, f"{program.segment(last)}, dim={text}")
    title = T(en="Shift along the axes of the transform alone", zh="只沿变换的维移动")
    return unique(program.text, [Fix(title, program.replace(change), meaning="later")])


RULE = Rule(
    code="PL858",
    name="examples-shifted-too",
    severity="warning",
    title=T(
        en="Centring the frequencies also moved an axis of examples or channels",
        zh="把零频移到中间时，样本或通道的维也被移动了",
    ),
    what=T(
        en="A program has the frequencies of several signals, one signal in each row, and rolls them so that zero "
        "comes to the middle. It does not say along which axis, so the rows are rolled as well, and each spectrum now "
        "stands where another signal's should. Give the shift the axis: `fftshift(spectrum, dim=-1)`.",
        zh="程序有几个信号的频率，每行一个信号，想循环移动它们，使零频到中间。但它没有说明沿哪一维，于是各行也被移动了，"
        "每个频谱都落到了另一个信号的位置上。请指明维度：`fftshift(spectrum, dim=-1)`。",
    ),
    why=T(
        en="`torch.fft.fft` works along the last axis, and `torch.fft.fftshift` along all axes unless it is given "
        "`dim`. For one picture and `fft2` both mean the same. With an axis more, of channels or of a batch, the "
        "shapes stay as they were and nothing is raised: only the names no longer fit. `ifftshift` with the same "
        "axes undoes it, so that a program that goes there and back gets away with it.",
        zh="`torch.fft.fft` 沿最后一维进行，而 `torch.fft.fftshift` 不传 `dim` 时沿所有维。对单张图片和 `fft2`，两者是"
        "一回事。多出一个通道或批次的维时，形状不变，也不会报错，只是名称对不上了。沿同样的维做 `ifftshift` 会撤销它，"
        "所以一去一回的程序不受影响。",
    ),
    bad="""import torch

time = torch.arange(16) / 16
waves = torch.stack([torch.cos(6.2832 * k * time) for k in (1, 2, 3)])
spectrum = torch.fft.fft(waves, dim=-1)  # made
centred = torch.fft.fftshift(spectrum).abs()  # PL858
print(centred[:, 8:].argmax(dim=1))
""",
    good="""import torch

time = torch.arange(16) / 16
waves = torch.stack([torch.cos(6.2832 * k * time) for k in (1, 2, 3)])
spectrum = torch.fft.fft(waves, dim=-1)
centred = torch.fft.fftshift(spectrum, dim=-1).abs()
print(centred[:, 8:].argmax(dim=1))
""",
    find=find,
    traps=(
        Trap(
            "torch.fft.fftshift(spectrum)",
            "torch.fft.ifftshift(spectrum)",
            T(en="The inverse shift moves all axes too.", zh="反向移动同样会移动所有的维。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.fft.fftshift.html",),
)
