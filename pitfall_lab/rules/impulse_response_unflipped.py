"""PL479: a convolution over the past of a series, whose decreasing weights give the oldest sample the largest
weight.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, before, made_by
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

CALLS = {"conv1d": 1, "conv2d": 2}
"""Convolutions, each with the number of dimensions along which a window moves."""
LISTED = (
    spellings("as_tensor")
    | {"arange", "empty", "full", "linspace", "logspace", "new_empty", "new_full", "new_ones", "new_tensor",
       "new_zeros", "ones", "ones_like", "tensor", "zeros", "zeros_like"}
)  # fmt: skip
"""Calls that create a kernel from numbers written in the program."""
BUILT = (
    operations_that("elementwise")
    | SAME_NUMBERS
    | spellings("cat", "cumprod", "cumsum")
    | {"__getitem__", "__setitem__", "alias", "amax", "copy_", "fill_", "max", "mean", "norm", "repeat", "stack", "sum",
       "normalize", "vector_norm"}
)  # fmt: skip
"""Calls that compute a kernel from such numbers."""
TURNING = {"flip", "fliplr", "flipud"}
"""Calls that reverse the order."""
ZEROS = {"zeros", "new_zeros", "zeros_like", "full", "new_full"}
"""Calls that create the numbers in front of a series."""
SEARCHING = (
    {"argmax", "argmin", "argsort", "max", "min", "topk", "nonzero", "sort", "where", "max_pool1d", "unique"}
    | spellings("gt", "ge", "lt", "le")
)  # fmt: skip
"""Calls that look for positions in a result: a program then compares a pattern with a signal."""
KEEPING = SAME_NUMBERS | spellings("abs", "mul", "div", "neg", "pow", "sub") | {"square", "__getitem__", "squeeze"}
"""Calls through which a result is followed to such a search."""
SHORTEST = 3
"""The least number of weights."""
FADED = 0.25
"""The largest ratio of the last weight to the first one."""
FURTHER = 60


@dataclass(frozen=True, slots=True)
class ImpulseResponseUnflipped:
    """``event`` is the ``conv1d`` or ``conv2d`` (``Event``) whose windows of ``length`` samples end at the present.

    The oldest sample of a window is multiplied by the weight ``first``, the newest by ``last``. ``axis`` is the
    dimension of the weights, counted from the end, and ``padded`` the call that put numbers before the first sample.
    """

    event: Event
    padded: Event
    axis: int
    length: int
    first: float
    last: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that convolves a series, padded before its beginning only, with weights that are
    written in the program and decrease from the oldest sample of a window to the newest.

    Nothing if the program reverses these weights or the input, or looks for the positions of large results (unless the
    weights were divided by their sum).
    """
    reported = set()
    for event in story.calls(*CALLS):
        place = story.span(event.step)
        found = _unflipped(story, event) if event.error is None and event.results and place not in reported else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _unflipped(story: Story, event: Event) -> ImpulseResponseUnflipped | None:
    given = [o.label for o in event.operands[:2]]
    axis = _axis(story, event)
    if axis is None or len(given) < len({"input", "weight"}) or argument(event, "stride", 3) not in (None, "1", "(1,)"):
        return None
    shape = story.shape(given[1], event.step) or ()
    ends = _ends(story, str(given[1]), event.step, axis)
    padded = _padded(story, event, axis, shape[axis] - 1) if ends is not None else None
    if ends is None or padded is None:
        return None
    kernel, series = _SeriesParts(story), _SeriesParts(story)
    if not kernel.follow(str(given[1]), event.step) or kernel.is_turned:
        return None
    series.follow(str(given[0]), event.step)
    if series.is_turned or (not kernel.is_average and _is_searched(story, event)):
        return None
    return ImpulseResponseUnflipped(event, padded, axis, shape[axis], *ends)


def _axis(story: Story, event: Event) -> int | None:
    """Return the dimension of the weights, counted from the end, whose size is above 1; None if there are several such
    dimensions, fewer than ``SHORTEST`` weights, or several input channels.
    """
    shape = story.shape(event.operands[1].label, event.step) if len(event.operands) > 1 else None
    if shape is None or len(shape) != CALLS[event.name] + 2 or shape[1] != 1:
        return None
    long = [axis for axis in range(-CALLS[event.name], 0) if shape[axis] > 1]
    return long[0] if len(long) == 1 and shape[long[0]] >= SHORTEST else None


def _ends(story: Story, label: str, step: int, axis: int) -> tuple[float, float] | None:
    """Return the first and the last weight, if the known absolute values never increase along the dimension, the first
    three decrease, and the last is at most ``FADED`` of the first; else None.
    """
    elements = Elements(story, label, step)
    shape = elements.shape
    rows = [[0] * len(shape), [shape[0] - 1, *(0 for _ in shape[1:])]]
    ends = []
    for row in rows:
        weights = [elements.at((*row[:axis], place, *row[len(shape) + axis + 1 :])) for place in range(shape[axis])]
        pairs = [(a, b) for a, b in pairwise(weights) if a is not None and b is not None]
        if any(abs(b) > abs(a) for a, b in pairs):
            return None
        ends.append(weights)
    first, second, third = ends[0][:SHORTEST]
    last = ends[1][-1]
    if first is None or second is None or third is None or last is None or not abs(first) > abs(second) > abs(third):
        return None
    return (first, last) if abs(last) <= FADED * abs(first) else None


def _padded(story: Story, event: Event, axis: int, back: int) -> Event | None:
    """Return the call that put at least ``back`` numbers (times the dilation) before the first sample and none after
    the last one, so that no window contains a later sample; None for any other padding.

    This is the convolution itself if it pads both sides and the end of its result is always sliced off.
    """
    dilation = _numbers(argument(event, "dilation", 5) or "1")
    back *= dilation[axis] if len(dilation) >= -axis else dilation[0] if dilation else 0
    own = _numbers(argument(event, "padding", 4) or "0")
    amount = own[axis] if len(own) >= -axis else own[0] if own else None
    if amount is None or not back:
        return None
    if amount:
        return event if amount == back and _is_end_cut(story, event, axis, back) else None
    label, step = event.operands[0].label, event.step
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or label is None:
            return None
        if made.name == "pad":
            sides = _numbers(argument(made, "pad", 1) or "")
            place = 2 * (-axis - 1)
            return made if len(sides) > place + 1 and sides[place] >= back and sides[place + 1] == 0 else None
        if made.name in spellings("cat"):
            return made if _begins_with_zeros(story, made, back) else None
        if made.name not in SAME_NUMBERS:
            return None
        label, step = before(made, label), made.step
    return None


def _begins_with_zeros(story: Story, joined: Event, back: int) -> bool:
    """Whether a ``cat`` joins two tensors, of which the first was created by a call of :data:`ZEROS` and has a size of
    at least ``back``.
    """
    given = [o.label for o in joined.operands if o.label is not None]
    makers = [made_by(story, label, joined.step) for label in given]
    if len(given) != len({"zeros", "series"}) or makers[0] is None or makers[0].name not in ZEROS:
        return False
    return max(story.shape(given[0], joined.step) or (0,)) >= back


def _is_end_cut(story: Story, event: Event, axis: int, back: int) -> bool:
    """Whether every use of the result reads it without its last ``back`` positions, from the first position on."""
    pending, cut = list(event.results), 0
    length = (story.shape(event.results[0], event.step) or (0,))[axis]
    for _ in range(FURTHER):
        if not pending:
            break
        label = pending.pop()
        start = (story.tensor(label) or {}).get("offset") or 0
        for use in story.uses(label):
            after = story.tensor(use.results[0], use.step) or {} if use.results else {}
            shape = after.get("shape") or [0]
            if use.name in ("shape", "size", "dim", "numel", "__len__"):
                continue
            if length in shape and use.name in SAME_NUMBERS | {"__getitem__", "squeeze"}:
                pending.append(use.results[0])
            elif length - back in shape and use.name in ("__getitem__", "narrow") and after.get("offset") == start:
                cut += 1
            else:
                return False
    return cut > 0


def _numbers(text: str) -> list[int]:
    """Return the integers in the text of an argument; empty if it is something else.

    >>> _numbers("(2, 0)"), _numbers("3"), _numbers("'same'")
    ([2, 0], [3], [])
    """
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return []
    found = list(value) if isinstance(value, list | tuple) else [value]
    return found if all(type(each) is int for each in found) else []


class _SeriesParts:
    """The tensors that a tensor was computed from: ``is_turned`` is True if one of these was reversed, ``is_average``
    if numbers were divided by their sum.
    """

    def __init__(self, story: Story) -> None:
        self.story, self.is_turned, self.is_average = story, False, False
        turned = ((each.operands[0].label, each.step) for each in story.calls(*TURNING) if each.operands)
        self._turned = {(story.tensor(label, step) or {}).get("storage") for label, step in turned} - {None}

    def follow(self, label: str, step: int) -> bool:
        """Go back through the calls that computed a tensor, set the two attributes, and return whether all numbers of
        the tensor are written in the program: none is trained, drawn at random or read.
        """
        pending, seen, known = [(label, step)], set[str](), True
        while pending and len(seen) < FURTHER:
            here, at = pending.pop()
            if here in seen:
                continue
            seen.add(here)
            record = self.story.tensor(here, at) or {}
            self.is_turned = self.is_turned or record.get("storage") in self._turned
            makers = self._makers(here, record, at)
            if record.get("requires_grad") or record.get("kind") != "tensor" or not makers:
                known = False
                continue
            for made in makers:
                known = known and made.name in LISTED | BUILT
                self.is_turned = self.is_turned or made.name in TURNING
                self.is_average = self.is_average or self._divides_by_sum(made)
                pending += [(o.label, made.step) for o in made.operands if o.label not in (None, here)]
        return known and not pending

    def _makers(self, label: str, record: dict[str, object], step: int) -> list[Event]:
        made = made_by(self.story, label, step)
        if made is None:
            return []
        writes = self.story.writes(str(record.get("storage")), made.step, step)[:FURTHER]
        return [made, *(each for each in map(self.story.event, writes) if each is not None)]

    def _divides_by_sum(self, made: Event) -> bool:
        given = [o.label for o in made.operands if o.label is not None]
        if made.name not in spellings("div", in_place=True) or len(given) != len({"numbers", "sum"}):
            return False
        total = made_by(self.story, given[1], made.step)
        return total is not None and total.name == "sum"


def _is_searched(story: Story, event: Event) -> bool:
    """Whether the program looks for positions in the result of a call (:data:`SEARCHING`)."""
    pending, seen = list(event.results), set(event.results)
    while pending and len(seen) < FURTHER:
        for use in story.uses(pending.pop()):
            if use.name in SEARCHING:
                return True
            fresh = [each for each in use.results if each not in seen] if use.name in KEEPING else []
            seen.update(fresh)
            pending += fresh
    return False


def _finding(story: Story, found: ImpulseResponseUnflipped) -> Finding:
    event = found.event
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.padded.step))
    weights = expression(story, event.operands[1].label, event.step)
    first, last = number(found.first), number(found.last)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} gives the oldest of the {found.length} samples in each window the weight {first} "
            f"and the newest one {last}: the weights {weights.en} fall, and number 0 of them meets the oldest sample.",
            zh=f"{here.zh}在每个窗口的 {found.length} 个样本中，给最旧的样本权重 {first}，给最新的样本权重 {last}："
            f"权重 {weights.zh} 是递减的，而其中第 0 个遇到的是最旧的样本。",
        ),
        T(
            en=f"`{event.name}` does not turn its weights round, as the convolution of mathematics does. The padding "
            f"on {there.en} leaves no sample after the present in a window, so the last weight belongs to the present. "
            f"A response that falls with time is listed from lag 0 on; flipped, it gives the newest sample "
            f"{first} and the oldest one {last}.",
            zh=f"`{event.name}` 不像数学上的卷积那样把权重翻转。{there.zh}的填充使窗口里的样本都不晚于当前时刻，所以最"
            f"后一个权重属于当前时刻。随时间衰减的响应从滞后 0 开始列出；翻转之后，最新的样本得到 {first}，最旧的样本得"
            f"到 {last}。",
        ),
        related=[
            story.related(
                "made", found.padded.step, T(en="the window is moved into the past here", zh="在这里把窗口移到过去")
            )
        ]
        if found.padded.step != event.step
        else [],
        fixes=_fixes(story, found),
        facts=[
            Fact("oldest", found.first, story.by(event.step)),
            Fact("newest", found.last, story.by(event.step)),
        ],
    )


def _fixes(story: Story, found: ImpulseResponseUnflipped) -> tuple[Fix, ...]:
    """A fix that flips the weights in the call; empty if the call is not in the program itself."""
    program = story.program
    node = program.at(story.span(found.event.step))
    if not isinstance(node, ast.Call) or call_name(node) != found.event.name:
        return ()
    given = next((word.value for word in node.keywords if word.arg == "weight"), None)
    given = node.args[1] if given is None and len(node.args) > 1 else given
    if given is None or isinstance(given, ast.Starred):
        return ()
    new = f"{operand(program, given)}.flip({found.axis})"
    title = T(en=f"Flip the weights: `{new}`", zh=f"翻转权重：`{new}`")
    return unique(program.text, [Fix(title, program.replace((given, new)), meaning="later")])


RULE = Rule(
    code="PL479",
    name="impulse-response-unflipped",
    severity="warning",
    title=T(
        en="A falling response meets the oldest sample first, as its weights were not flipped",
        zh="权重没有翻转，衰减的响应从最旧的样本开始相乘",
    ),
    what=T(
        en="A program lets each event have an effect that fades, and computes the sum of the effects with `conv1d`, "
        "padded on the left. The weights are listed from lag 0 on, but the first one meets the oldest sample in the "
        "window: an event has its largest effect long after it happened. Flip the weights.",
        zh="程序让每个事件产生逐渐消退的影响，并用左侧填充的 `conv1d` 计算影响之和。权重从滞后 0 开始列出，但第一个权重"
        "遇到的是窗口里最旧的样本：事件在发生很久之后影响才最大。请翻转权重。",
    ),
    why=T(
        en="The convolution of mathematics multiplies the response at lag k with the sample k steps ago. The layers of "
        "neural networks leave out the turn, because learned weights can be stored in any order: "
        "`conv1d` multiplies weight i with sample i of the window, which is called a correlation. For symmetric and "
        "for learned weights it makes no difference, for a given response it reverses time.",
        zh="数学上的卷积把滞后 k 的响应与 k 步之前的样本相乘。神经网络的层省去了翻转，因为学到的权重用什么次序存都可以"
        "：`conv1d` 把第 i 个权重与窗口里第 i 个样本相乘，这叫做互相关。对称的权重和学到的权重不受影响，而给定的响应会"
        "被颠倒时间。",
    ),
    bad="""import torch
import torch.nn.functional as F

spikes = torch.zeros(10)
spikes[2] = 1.0
response = 0.5 ** torch.arange(5)
padded = F.pad(spikes[None, None], (4, 0))  # made
level = F.conv1d(padded, response[None, None])[0, 0]  # PL479
print(level, "at the spike", level[2])
""",
    good="""import torch
import torch.nn.functional as F

spikes = torch.zeros(10)
spikes[2] = 1.0
response = 0.5 ** torch.arange(5)
padded = F.pad(spikes[None, None], (4, 0))
level = F.conv1d(padded, response[None, None].flip(-1))[0, 0]
print(level, "at the spike", level[2])
""",
    find=find,
    traps=(
        Trap(
            "(4, 0)",
            "(0, 4)",
            T(
                en="The window then holds the present and later samples: an event has an effect before it happens.",
                zh="窗口里就成了当前和以后的样本：事件在发生之前就有了影响。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv1d.html",),
)
