"""PL409: scores were masked with a number that is not small enough: after the softmax, masked
positions still have a share.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import everything, looks
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, flat, number
from pitfall_lab.rules.masked_zero_wins import zero_in
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.rules.signals.written_zeros import SIGNED, written_zeros
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

MASKS = spellings("masked_fill", in_place=True) | {"where"}
AXES = 2
SOFTMAX = {"softmax", "log_softmax"}
ON_THE_WAY = SAME_NUMBERS | {"div", "mul", "add", "dropout"}
"""Calls between the mask and the softmax, or after it."""
NOTHING = -20.0
"""Below this a share is at most e⁻²⁰ of that of a score of 0."""
HOPS = 4


@dataclass(frozen=True, slots=True)
class MaskWithoutEffect:
    """``mask`` is the call (``Event``) that set masked scores to the number ``value``; ``softmax`` is the call of the
    softmax that was then applied to the scores.

    ``share`` is the sum of the shares that masked scores get in a row, on average; None if it is not known.
    """

    mask: Event
    value: float
    softmax: Event
    share: float | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that gives masked scores a value (0, -10, …) so close to the other scores that
    the softmax does not make it 0.
    """
    reported = set()
    for event in story.calls(*MASKS):
        place = story.span(event.step)
        value = _value(event) if event.error is None and event.results and place not in reported else None
        if value is None or not NOTHING < value < math.inf or not _masks_something(story, event):
            continue
        softmax = _softmax(story, event.results[0], event.step)
        if softmax is not None:
            reported.add(place)
            yield _finding(story, MaskWithoutEffect(event, value, softmax))
    for counted in (each for each in story.trace.beside.counted if each.kind == "zeroed"):
        softmax = story.events[counted.step]
        zeros = written_zeros(story, counted) if softmax.name in SOFTMAX else None
        place = story.span(zeros.write.step) if zeros is not None else None
        if zeros is not None and zeros.source.name in SIGNED and place not in reported:
            reported.add(place)
            yield _finding(story, MaskWithoutEffect(zeros.write, 0.0, softmax, counted.numbers[0]))


def _value(event: Event) -> float | None:
    """The number that replaces masked scores: the argument that is neither the scores nor the mask;
    None if it is not such a number.
    """
    plain = [o.text for o in event.operands[1:] if o.label is None and o.text not in ("True", "False")]
    if len(plain) != 1 or sum(o.label is not None for o in event.operands) != 2:
        return None
    try:
        return float(plain[0])
    except ValueError:
        return None


def _masks_something(story: Story, event: Event) -> bool:
    """Whether the call has a bool mask that excludes some scores and keeps others; True if
    not all its values are known.
    """
    masks = [o.label for o in event.operands if (story.tensor(o.label, event.step) or {}).get("dtype") == "bool"]
    held = (
        (story.record("storages", (story.tensor(masks[0]) or {}).get("storage"), event.step) or {}).get("cells")
        if masks
        else None
    )
    values = [value for _, value in flat(held)]
    return bool(masks) and (isinstance(held, dict) or not values or len(set(values)) > 1)


def _softmax(story: Story, label: str, step: int) -> Event | None:
    """The softmax applied to the scores, perhaps after calls that scale, shift or reshape
    them; None if there is none.
    """
    for _ in range(HOPS):
        uses = [
            use for use in story.uses(label) if use.step > step and use.operands[0].label == label and use.error is None
        ]
        softmax = next((use for use in uses if use.name in SOFTMAX), None)
        onward = next((use for use in uses if use.name in ON_THE_WAY and use.results and use.results[0] != label), None)
        if softmax is not None or onward is None:
            return softmax
        label, step = onward.results[0], onward.step
    return None


def _finding(story: Story, found: MaskWithoutEffect) -> Finding:
    span = story.span(found.mask.step)
    here, there = at_line(story, span), at_line(story, story.span(found.softmax.step))
    value, share = number(found.value), number(math.exp(found.value))
    much = T(en="", zh="")
    if found.share is not None:
        much = T(
            en=f" On average {found.share:.0%} of each row goes to what is masked.",
            zh=f"平均每行有 {found.share:.0%} 分给了被遮住的部分。",
        )
    return RULE.finding(
        span,
        found.mask.step,
        T(
            en=f"{capital(here.en)} puts {value} where scores are masked, and the softmax on {there.en} makes a share "
            "of it as of any other score: what is masked still counts.",
            zh=f"{here.zh}在被遮住的地方填入 {value}，而{there.zh}的 softmax 把它当作普通分数分给它一份：被遮"
            "住的部分仍然起作用。",
        ),
        T(
            en=f"A softmax takes `exp` of each score. `exp({value})` is {share}, as much as an ordinary score gets; "
            f"only a score far below all others, best `-inf`, becomes a share of 0.{much.en}",
            zh=f"softmax 对每个分数取 `exp`。`exp({value})` 是 {share}，与普通分数差不多；只有远低于其他分数的值（最好"
            f"是 `-inf`）才会得到 0 的份额。{much.zh}",
        ),
        related=[
            story.related("made", found.mask.step, T(en="masked with this number", zh="用这个数遮住")),
            story.related("used", found.softmax.step, T(en="becomes a share here", zh="在这里变成份额")),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("value", found.value, story.by(found.mask.step)),
            *(_looks(story, found.mask) if found.share is None else []),
        ],
    )


def _looks(story: Story, masking: Event) -> list[Fact]:
    """The fact that every position is looked at, also those that the bool mask of the call excludes by a True; empty
    for ``where`` and for scores of fewer than two axes.
    """
    given = (o.label for o in masking.operands if (story.tensor(o.label, masking.step) or {}).get("dtype") == "bool")
    mask = Elements(story, next(given, None), masking.step, answers=True)
    shape = story.shape(masking.results[0], masking.step) or ()
    if len(shape) < AXES or masking.name == "where":  # there the mask may be true for either
        return []
    first = (0,) * (len(shape) - AXES)

    def is_meant(row: int, column: int) -> bool | None:
        hidden = mask.at((*first, row, column))
        return None if hidden is None else not hidden

    return looks((shape[-2], shape[-1]), everything, is_meant, examples=shape[-2] != shape[-1])


def _fixes(story: Story, found: MaskWithoutEffect) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(found.mask.step)) if program.tree is not None else None
    given = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
    plain: list[ast.expr] = [arg for arg in given if _is_number(arg)]
    if found.share is not None:
        plain = [zero] if (zero := zero_in(story, found.mask)) is not None else []
    elif isinstance(node, ast.Call) and call_name(node) != found.mask.name:
        return ()
    if len(plain) != 1:
        return ()
    new = 'float("-inf")' if not (torch := torch_name(program)) else f"-{torch}.inf"
    title = T(en=f"Mask with `{new}`", zh=f"用 `{new}` 遮住")
    return unique(program.text, [Fix(title, program.replace((plain[0], new)), meaning="shape")])


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return (
        isinstance(inner, ast.Constant) and isinstance(inner.value, int | float) and not isinstance(inner.value, bool)
    )


RULE = Rule(
    code="PL409",
    name="mask-without-effect",
    severity="warning",
    title=T(
        en="Masked scores keep a share, because the masking number is too large",
        zh="遮罩用的数太大，被遮住的分数仍然得到份额",
    ),
    what=T(
        en="A program masks scores before it turns them into shares that add up to 1, but puts a number there that is "
        "no smaller than the other scores, such as `1e-9` where `-1e9` was meant. What should have been left out "
        "still counts. Put `-inf` there.",
        zh="程序在把分数变成加起来为 1 的份额之前先遮住一部分，但填进去的数并不比其他分数小，例如本想写 `-1e9` 却写成 "
        "`1e-9`。本该忽略的部分仍然起作用。请填入 `-inf`。",
    ),
    why=T(
        en="`softmax` divides `exp(score)` by the sum of all of them. A score becomes a share of 0 only when its "
        "`exp` is 0 or very small compared with the others: `exp(-inf)` is exactly 0, `exp(-1e9)` is 0 as well. "
        "`exp(0)` and `exp(1e-9)` are 1. In attention the padding of short sentences then contributes to every "
        "result, in a causal mask the future does.",
        zh="`softmax` 用 `exp(分数)` 除以它们的总和。只有 `exp` 比其他小得多时，份额才会变成 0：`exp(-inf)` 恰好"
        "是 0，`exp(-1e9)` 也是 0；而 `exp(0)` 与 `exp(1e-9)` 都是 1。在注意力里，短句的填充会参与每个结果；在因果"
        "遮罩里，参与的是未来。",
    ),
    advice=T(
        en="on {made}, fill the masked places with `float('-inf')`; the softmax on {used} then gives them a share "
        "of 0.",
        zh="在{made}用 `float('-inf')` 填充被遮住的位置，这样{used}的 softmax 会给它们 0。",
    ),
    bad="""import torch

torch.manual_seed(0)
scores = torch.randn(2, 4, requires_grad=True)
padding = torch.tensor([[False, False, True, True], [False, False, False, True]])
masked = scores.masked_fill(padding, 1e-9)  # PL409 made
shares = torch.softmax(masked, dim=-1)  # used
values = torch.arange(4.0)
(shares @ values).sum().backward()
print(shares, scores.grad)
""",
    good="""import torch

torch.manual_seed(0)
scores = torch.randn(2, 4, requires_grad=True)
padding = torch.tensor([[False, False, True, True], [False, False, False, True]])
masked = scores.masked_fill(padding, -torch.inf)
shares = torch.softmax(masked, dim=-1)
values = torch.arange(4.0)
(shares @ values).sum().backward()
print(shares, scores.grad)
""",
    find=find,
    traps=(
        Trap(
            "1e-9",
            "-1.0",
            T(
                en="A negative number is not enough: the others are about as small, so the share is still a large one.",
                zh="只是负数还不够：其他分数也差不多小，份额仍然很大。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_fill_.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html",
    ),
)
