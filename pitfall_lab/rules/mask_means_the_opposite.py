"""PL420: a mask of the future or the past was given to an attention that takes it for the opposite:
only the future is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Rule, Trap
from pitfall_lab.rules.kit.pictured import looks
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression, flat
from pitfall_lab.rules.signals.masks import Masked, masked_scores, turned_around
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with an attention whose bool mask is square and lets each position attend to
    exactly the later positions, as far as the mask is known.
    """
    reported = set()
    for masked in masked_scores(story):
        place = story.span(masked.event.step)
        if place not in reported and _only_future(story, masked):
            reported.add(place)
            yield _finding(story, masked)


def _only_future(story: Story, masked: Masked) -> bool:
    """Whether the square mask lets each position attend to exactly the later ones (right of the diagonal), as far as
    its values are known.

    False for a mask of several heads, and if the known values are all True or all False.
    """
    record = story.tensor(masked.mask, masked.event.step) or {}
    shape, stride = list(record.get("shape") or ()), list(record.get("stride") or ())
    held = (story.record("storages", record.get("storage"), masked.event.step) or {}).get("cells")
    if (
        len(shape) < 2
        or shape[-1] != shape[-2]
        or shape[-1] < 2
        or any(length != 1 for length in shape[:-2])
        or 0 in stride[-2:]
    ):
        return False
    known = {place - (record.get("offset") or 0): value for place, value in flat(held) if isinstance(value, bool)}
    places = {
        (i, j): known[at]
        for i in range(shape[-2])
        for j in range(shape[-1])
        if (at := i * stride[-2] + j * stride[-1]) in known
    }
    return set(places.values()) == {True, False} and all(
        (value is masked.keeps) == (j > i) for (i, j), value in places.items()
    )


def _finding(story: Story, masked: Masked) -> Finding:
    event, mask = masked.event, masked.mask
    span = story.span(event.step)
    here, what = at_line(story, span), expression(story, mask, event.step)
    born = (story.tensor(mask) or {}).get("born")
    meaning = T(en="is to look", zh="才看") if masked.keeps else T(en="is not to look", zh="不看")
    shape = story.shape(mask, event.step) or (0, 0)
    size = (shape[-2], shape[-1])
    where = (
        T(en="the future", zh="未来处") if masked.keeps else T(en="the past and the position itself", zh="过去和自身处")
    )
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} lets each position look at later ones only: {what.en} is true where this "
            f"attention {meaning.en}, and it is true for {where.en}.",
            zh=f"{here.zh}让每个位置只看后面的位置：{what.zh} 为真处，这种注意力{meaning.zh}，而它在{where.zh}为真。",
        ),
        T(
            en="`scaled_dot_product_attention` reads a bool mask as *take part*. In `nn.MultiheadAttention`, and in "
            "`masked_fill`, true means *leave out*. With the one given for the other no position sees itself or its "
            "past, and the last one sees nothing at all, so its result is 0 or NaN.",
            zh="`scaled_dot_product_attention` 把布尔掩码理解为*参与*，而在 `nn.MultiheadAttention` 与 `masked_fill` "
            "里，真表示*排除*。两者用反时，没有位置能看到自己或过去，最后一个位置什么也看不到，结果是 0 或 NaN。",
        ),
        related=[story.related("made", born, T(en="the mask comes from here", zh="掩码来自这里"))],
        fixes=turned_around(story, event),
        facts=[
            Fact("mask", "future", story.by(event.step)),
            *looks(size, lambda row, column: column > row, lambda row, column: column <= row),
        ],
    )


RULE = Rule(
    code="PL420",
    name="mask-means-the-opposite",
    severity="warning",
    title=T(en="A mask of what to leave out is taken for what to look at", zh="表示“排除”的掩码被当作表示“参与”"),
    what=T(
        en="A program marks the future as forbidden, and gives the mask to a function that looks exactly where the "
        "mask is true. Turn the mask around with `~`, or use `is_causal=True`.",
        zh="程序把未来标为禁止，却把掩码交给一个恰好在掩码为真处才看的函数。请用 `~` 把掩码取反，或者"
        "使用 `is_causal=True`。",
    ),
    why=T(
        en="There are two conventions. `F.scaled_dot_product_attention(attn_mask=…)` keeps the scores where a bool "
        "mask is true; the masks of `nn.MultiheadAttention` and `nn.Transformer`, and `masked_fill(mask, -inf)`, "
        "remove them there. A mask made by `torch.ones(n, n).triu(1)` is of the second kind, one made by `tril()` of "
        "the first. Both have the same shape and type, so either is accepted.",
        zh="有两种约定。`F.scaled_dot_product_attention(attn_mask=…)` 保留布尔掩码为真处的分数；"
        "`nn.MultiheadAttention`、`nn.Transformer` 的掩码以及 `masked_fill(mask, -inf)` 则去掉那里的分数。"
        "由 `torch.ones(n, n).triu(1)` 得到的掩码属于后者，由 `tril()` 得到的属于前者。两者形状与类型相"
        "同，所以都会被接受。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(1, 3, 4, requires_grad=True)
future = torch.ones(3, 3, dtype=torch.bool).triu(1)  # made
out = F.scaled_dot_product_attention(x, x, x, attn_mask=future)  # PL420
out[:, 0].sum().backward()
print(x.grad)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(1, 3, 4, requires_grad=True)
future = torch.ones(3, 3, dtype=torch.bool).triu(1)
out = F.scaled_dot_product_attention(x, x, x, attn_mask=~future)
out[:, 0].sum().backward()
print(x.grad)
""",
    find=find,
    traps=(
        Trap(
            ".triu(1)",
            ".triu(0)",
            T(
                en="With the diagonal each position sees itself and the future: the last one sees something "
                "again, none sees its past.",
                zh="包含对角线后，每个位置看到自己与未来：最后一个位置又能看到东西了，但没有位置看到过去。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",
    ),
)
