"""PL424: an attention leaves out the real tokens and looks at the padding, because its mask
was made for the other meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Rule, Trap
from pitfall_lab.rules.kit.pictured import looks
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital, expression
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.masks import Masked, masked_scores, turned_around
from pitfall_lab.rules.signals.sequences import KEEPING, attentions, padded
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.rules.signals.value_origins import argument, origin
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

FURTHER = 12
FARTHER = 80
FEWEST = 2
BEFORE, BEHIND, STRICT = (
    spellings("le", "lt"),
    spellings("ge", "gt"),
    spellings("ge", "lt"),
)
COMPUTED = spellings("sub", exchanged=True) | {"arange", "cumsum"}
"""Calls whose result is hardly a length, though it is compared with positions: the number of
positions before a row, for instance.
"""
SELECTING = spellings("mul") | spellings("masked_fill", in_place=True) | {"__getitem__", "masked_select"}
TURNED = spellings("bitwise_not", "logical_not")
SAME_ANSWERS = {"bool", "to", "type", "unsqueeze", "view", "reshape", "expand", "expand_as", "__getitem__", "float",
                "squeeze", "repeat", "type_as", "transpose"}  # fmt: skip
"""Calls that a mask is followed through: what is true stays true."""


@dataclass(frozen=True, slots=True)
class Marked:
    """``compared`` is the call (``Event``) that made a mask from the tensor ``tokens`` (a label). The mask is true
    where the tokens are the number ``padding``; with ``real``, where they are not (after ``>``, where they are larger).

    ``padding`` is None where ``tokens`` are the lengths of the rows: then padding is at the positions from the length
    on.
    """

    compared: Event
    tokens: str
    padding: float | None
    real: bool


@dataclass(frozen=True, slots=True)
class OnlyPaddingAttended:
    """An attention looks only at positions where the tensor ``source`` (a label; tokens, mostly) has the number
    ``value``, as at padding; at all known positions that it leaves out it has other numbers.

    ``step`` is the step at which ``source`` has these numbers.
    """

    source: str
    step: int
    value: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with an attention whose mask leaves out the real tokens and keeps the scores of
    padding only.

    Recognized by a mask that compares with the padding number or with lengths, or by keys that are one constant at all
    positions it looks at.
    """
    told = set()
    for masked in masked_scores(story):
        place = story.span(masked.event.step)
        if place in told:
            continue
        marked = _marked(story, masked.mask, masked.event.step)
        turned = marked is not None and marked.real is not masked.keeps
        constant = None
        if marked is not None and marked.padding is not None:
            found = turned and _is_padding(story, marked)
        elif (
            marked is not None
            and turned
            and (_leaves_nothing(story, masked, marked) or _reads_the_rest(story, masked, marked))
        ):
            found = True
        else:
            constant = _constant(story, masked) if marked is None or turned else None
            found = constant is not None
        if found:
            told.add(place)
            yield _finding(story, masked, marked, constant)


def _marked(story: Story, mask: str, step: int) -> Marked | None:
    """Return the comparison with the padding number, or with lengths, from which a mask comes, directly or through
    negations; None if it comes from neither.
    """
    made, turned = origin(story, mask, step), False
    while made is not None and made.name in (*TURNED, *SAME_ANSWERS) and made.operands:
        turned ^= made.name in TURNED
        made = origin(story, made.operands[0].label, made.step)
    if made is None or len(made.operands) != 2 or made.operands[0].label is None:
        return None
    name = made.name.strip("_")
    if made.operands[1].label is not None:
        return _from_lengths(story, made, name, turned=turned)
    try:
        number = float(made.operands[1].text)
    except ValueError:
        return None
    if name not in spellings("eq", "gt", "ne"):
        return None
    return Marked(made, made.operands[0].label, number, (name != "eq") is not turned)


def _from_lengths(story: Story, made: Event, name: str, *, turned: bool) -> Marked | None:
    """The :class:`Marked` of a mask that compares positions with lengths, one for each row; None if the call compares
    anything else.
    """
    one, other = (str(operand.label) for operand in made.operands)
    places = [_is_positions(story, each, made.step) for each in (one, other)]
    if name not in BEFORE | BEHIND or places[0] == places[1]:
        return None
    lengths = other if places[0] else one
    source = origin(story, lengths, made.step)
    if prod(story.shape(lengths, made.step) or ()) < FEWEST or (
        source is not None and source.name.strip("_") in COMPUTED
    ):
        return None
    return Marked(made, lengths, None, (name in BEFORE) is (places[0] is not turned))


def _is_positions(story: Story, label: str, step: int) -> bool:
    """Whether the numbers of a tensor come from ``arange``, as the positions of a row do; in whatever shape, and
    perhaps only some of them.
    """
    made = origin(story, label, step)
    return made is not None and made.name == "arange"


def _leaves_nothing(story: Story, masked: Masked, marked: Marked) -> bool:
    """Whether the lengths that made the mask are all known and at least 1, and the largest is that of a full row, so
    that the mask hides all of this row.
    """
    known = [value for _, value in Elements(story, marked.tokens, marked.compared.step).known()]
    positions = (story.shape(masked.mask, masked.event.step) or (0,))[-1]
    last = positions if marked.compared.name.strip("_") in STRICT else positions - 1
    return (
        len(known) == prod(story.shape(marked.tokens, marked.compared.step) or ())
        and min(known) >= 1
        and max(known) >= last
    )


def _reads_the_rest(story: Story, masked: Masked, marked: Marked) -> bool:
    """Whether the program reads the attention's results at the positions that the attention left out.

    Judged by the first masks with the same lengths that select or fill them; False for a mask by a padding number.
    """
    pending, seen = list(_results(story, masked)), set[str]()
    while pending and len(seen) < FARTHER:
        label = pending.pop(0)
        seen.add(label)
        for use in (use for use in story.uses(label) if use.step > masked.event.step):
            others = [o.label for o in use.operands if o.label is not None and o.label != label]
            if use.name in SELECTING and len(others) == 1:
                other = _marked(story, others[0], use.step)
                same = other is not None and other.padding is None and _same_lengths(story, other, marked)
                if same and other is not None and other.real is not use.name.startswith("masked_fill"):
                    return True
            pending += [result for result in use.results if result not in seen]
    return False


def _same_lengths(story: Story, one: Marked, other: Marked) -> bool:
    here, there = (story.tensor(each.tokens, each.compared.step) or {} for each in (one, other))
    return here.get("storage") is not None and here.get("storage") == there.get("storage")


def _results(story: Story, masked: Masked) -> tuple[str, ...]:
    """The labels of the tensors that the attention computed as sums of its values; empty if that product is not
    known.
    """
    if masked.attention.name == "scaled_dot_product_attention":
        return masked.attention.results
    return next((each.product.results for each in attentions(story) if each.event.step == masked.attention.step), ())


def _constant(story: Story, masked: Masked) -> OnlyPaddingAttended | None:
    """The finding's data if the keys of an attention were made from one constant at all known positions that it attends
    to, as padding is; None if not.

    The positions that it leaves out must hold at least two other numbers. A single position counts only if it is the
    last of its row and has several features.
    """
    attention = next((each for each in attentions(story) if each.event.step == masked.attention.step), None)
    looked = Elements(story, masked.mask, masked.event.step, answers=True)
    rows = (looked.shape[0], looked.shape[-1]) if len(looked.shape) > 1 else ()
    if attention is None or prod(looked.shape) != prod(rows) or not rows:
        return None
    answers: dict[Index, bool] = {(index[0], index[-1]): bool(value) is masked.keeps for index, value in looked.known()}
    if len(set(answers.values())) < FEWEST:
        return None
    pending, seen = [(attention.keys, attention.product.step)], {attention.keys}
    while pending and len(seen) < FARTHER:
        label, step = pending.pop(0)
        shape = story.shape(label, step) or ()
        if shape[:2] in (rows, rows[::-1]) and shape.count(1) == 0:
            kept, left, places = set[float](), set[float](), set[Index]()
            for index, value in Elements(story, label, step).known():
                place = index[:2] if shape[:2] == rows else (index[1], index[0])
                (kept if answers.get(place) else left).update([value] if place in answers else [])
                places.update([place] if answers.get(place) else [])
            at_end = {place[1] for place in places} == {rows[1] - 1} and len(shape) > 2
            if len(kept) == 1 and (len(places) >= FEWEST or at_end) and len(left - kept) >= FEWEST and not kept & left:
                return OnlyPaddingAttended(label, step, kept.pop())
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is not None and label in made.results and made.name in KEEPING | {"embedding", "pad_sequence"}:
            fresh = [o.label for o in made.operands if o.label is not None and o.label not in seen]
            seen.update(fresh)
            pending += [(each, made.step) for each in fresh]
    return None


def _is_padding(story: Story, marked: Marked) -> bool:
    """Whether the number that the mask compares with is padding, by the embedding, by the call that made
    the tokens, by other uses, or because rows of tokens end (or begin) with it.
    """
    tokens = story.tensor(marked.tokens, marked.compared.step)
    for event in story.calls("embedding"):
        given = event.operands[0].label
        same = given == marked.tokens or same_piece(story.tensor(given, event.step), tokens)
        if same and _is_number(argument(event, "padding_idx"), marked.padding):
            return True
    made = origin(story, marked.tokens, marked.compared.step)
    if (
        made is not None
        and made.name == "pad_sequence"
        and _is_number(argument(made, "padding_value", 2) or "0", marked.padding)
    ):
        return True
    if marked.real and _divides(story, marked):
        return True
    number = int(marked.padding) if marked.padding is not None and marked.padding % 1 == 0 else None
    return number is not None and len(padded(story, marked.tokens, marked.compared.step, number)) >= FEWEST


def _is_number(text: str | None, number: float | None) -> bool:
    try:
        return text is not None and float(text) == number
    except ValueError:
        return False


def _divides(story: Story, marked: Marked) -> bool:
    """Whether the program also averages with the mask: it multiplies by it and divides by its sum."""
    pending, seen, weighs, counts = list(marked.compared.results), set[str](), False, False
    while pending and len(seen) < FURTHER:
        label = pending.pop(0)
        seen.add(label)
        for use in story.uses(label):
            weighs |= use.name == "mul" and all(o.label is not None for o in use.operands[:2])
            counts |= use.name == "sum" and any(
                later.name == "div" for result in use.results for later in story.uses(result)
            )
            pending += [r for r in use.results if use.name in SAME_ANSWERS and r not in seen]
    return weighs and counts


def _finding(story: Story, masked: Masked, marked: Marked | None, constant: OnlyPaddingAttended | None) -> Finding:
    event = masked.event
    span = story.span(event.step)
    made = marked.compared.step if marked is not None else (story.tensor(masked.mask, event.step) or {}).get("born")
    here, what = (
        at_line(story, span),
        expression(story, marked.compared.results[0] if marked is not None else masked.mask, event.step),
    )
    meaning = T(en="looked at", zh="被关注") if masked.keeps else T(en="left out", zh="被排除")
    where, why = _where(story, marked) if constant is None and marked is not None else _content(story, masked, constant)
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} looks at the padding only: the positions at which {what.en} is true are "
            f"{meaning.en} here, and {where.en}.",
            zh=f"{here.zh}只看填充：这里 {what.zh} 为真的位置{meaning.zh}，而{where.zh}。",
        ),
        T(
            en=f"{why.en} `key_padding_mask` and `masked_fill(mask, -inf)` leave out what is true; "
            "`scaled_dot_product_attention` keeps what is true. With the meanings exchanged every real token gets a "
            "weight of 0, and a row without padding gives NaN.",
            zh=f"{why.zh}`key_padding_mask` 和 `masked_fill(mask, -inf)` 排除为真的位置；"
            "`scaled_dot_product_attention` 保留为真的位置。意思弄反时，每个真实的词的权重都是 0，没有填"
            "充的一行会得到 NaN。",
        ),
        related=[story.related("made", made, T(en="the mask is made here", zh="掩码在这里创建"))],
        fixes=turned_around(story, event),
        facts=[
            Fact(
                "padding",
                marked.padding if marked is not None else constant.value if constant is not None else None,
                story.by(made),
            ),
            Fact("real", not masked.keeps),
            *(_looks(story, masked, marked) if marked is not None and constant is None else ()),
        ],
    )


def _looks(story: Story, masked: Masked, marked: Marked) -> list[Fact]:
    """The fact (``Fact``) that each example attends to padding alone."""
    tokens = Elements(story, marked.tokens, marked.compared.step)
    columns = (story.shape(masked.mask, masked.event.step) or (0,))[-1]
    strict = marked.compared.name.strip("_") in STRICT

    def is_real(example: int, column: int) -> bool | None:
        if marked.padding is not None:
            token = tokens.at((example, column))
            return None if token is None else token != marked.padding
        length = tokens.at((example,) + (0,) * (len(tokens.shape) - 1))
        return None if length is None else column < length if strict else column <= length

    def is_seen(example: int, column: int) -> bool | None:
        real = is_real(example, column)
        return None if real is None else not real

    if marked.padding is not None and tokens.shape[-1:] != (columns,):
        return []
    return looks((tokens.shape[0], columns), is_seen, is_real, examples=True) if tokens.shape else []


def _where(story: Story, marked: Marked) -> tuple[T, T]:
    """Where a mask is true, and what made it, in words."""
    there = at_line(story, story.span(marked.compared.step))
    tokens = expression(story, marked.tokens, marked.compared.step)
    if marked.padding is None:
        tokens = called(story, marked.tokens, None, marked.compared.step)
        where = T(
            en=f"it is true {'before' if marked.real else 'behind'} the end of each row, whose "
            f"length is in {tokens.en}",
            zh=f"它在每一行的末尾{'之前' if marked.real else '之后'}为真（长度在 {tokens.zh} 中）",
        )
        return where, T(
            en=f"{capital(there.en)} compares positions with the lengths {tokens.en}: padding is behind them.",
            zh=f"{there.zh}把位置与长度 {tokens.zh} 比较：其后是填充。",
        )
    number = f"{marked.padding:g}"
    is_it = T(en=f"not {number}", zh=f"不等于 {number}") if marked.real else T(en=number, zh=f"等于 {number}")
    return T(en=f"it is true where {tokens.en} is {is_it.en}", zh=f"它在 {tokens.zh} {is_it.zh}的地方为真"), T(
        en=f"{capital(there.en)} compares {tokens.en} with {number}, the number that stands for padding.",
        zh=f"{there.zh}把 {tokens.zh} 与代表填充的编号 {number} 比较。",
    )


def _content(story: Story, masked: Masked, constant: OnlyPaddingAttended | None) -> tuple[T, T]:
    """What the keys were made from at the positions that the attention looks at, in words."""
    source = expression(story, constant.source if constant is not None else masked.mask, masked.event.step)
    number = f"{constant.value:g}" if constant is not None else ""
    return T(
        en=f"at all others {source.en} is {number}" if not masked.keeps else f"there {source.en} is {number}",
        zh=f"在其余位置 {source.zh} 都是 {number}" if not masked.keeps else f"那里 {source.zh} 都是 {number}",
    ), T(
        en=f"{capital(source.en)} has the number {number} wherever this attention looks, as padding has, and other "
        "numbers where it does not.",
        zh=f"在这个注意力所看的位置，{source.zh} 都是 {number}，与填充一样；在它不看的位置则是别的数。",
    )


RULE = Rule(
    code="PL424",
    name="only-padding-attended",
    severity="warning",
    title=T(en="An attention looks at the padding and leaves out the tokens", zh="注意力只看填充，把真实的词排除在外"),
    what=T(
        en="A program marks which tokens are real and gives the mask to an attention that leaves out what is marked. "
        "So each token sees nothing but padding. Turn the mask around with `~`.",
        zh="程序标出哪些是真实的词，却把掩码交给一个会排除被标位置的注意力。于是每个词只看到填充。"
        "请用 `~` 把掩码取反。",
    ),
    why=T(
        en="There are two conventions. `key_padding_mask` of `nn.MultiheadAttention` and `src_key_padding_mask` of "
        "`nn.Transformer` are true where a position is to be left out, as is the mask of `masked_fill(mask, -inf)`. A "
        "bool `attn_mask` of `F.scaled_dot_product_attention`, and the masks of many tokenizers, are true where it "
        "takes part. The shape is the same, so either is accepted; the loss still falls, because the parts of the "
        "model other than the attention learn.",
        zh="有两种约定。`nn.MultiheadAttention` 的 `key_padding_mask`、`nn.Transformer` 的 `src_key_padding_mask` "
        "在要排除的位置为真，`masked_fill(mask, -inf)` 的掩码也是如此。`F.scaled_dot_product_attention` 的布尔 "
        "`attn_mask` 以及许多分词器的掩码，则在参与的位置为真。形状相同，所以都会被接受；损失照样下降，因为注意力"
        "之外的部分还能学习。",
    ),
    bad="""import torch

torch.manual_seed(0)
tokens = torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]])
embed = torch.nn.Embedding(6, 4, padding_idx=0)
real = (tokens != 0).unsqueeze(1)  # made
h = embed(tokens)
scores = h @ h.transpose(1, 2)
weights = scores.masked_fill(real, -1e9).softmax(dim=-1)  # PL424
(weights @ h).square().sum().backward()
print(weights[0].detach())
""",
    good="""import torch

torch.manual_seed(0)
tokens = torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]])
embed = torch.nn.Embedding(6, 4, padding_idx=0)
real = (tokens != 0).unsqueeze(1)
h = embed(tokens)
scores = h @ h.transpose(1, 2)
weights = scores.masked_fill(~real, -1e9).softmax(dim=-1)
(weights @ h).square().sum().backward()
print(weights[0].detach())
""",
    find=find,
    traps=(
        Trap(
            "-1e9",
            'float("-inf")',
            T(
                en="A smaller number leaves the same tokens out; a row without padding even becomes NaN.",
                zh="更小的数排除的还是同样的词；没有填充的一行甚至会变成 NaN。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
)
