"""PL424: an attention leaves out the real tokens and looks at the padding, because its mask was made for the other meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.rules.signals.value_origins import argument, origin
from pitfall_lab.trace import Event, T

LARGE = 1e3
"""A score below the negative of this leaves nothing to a position."""
FURTHER = 12
ATTENTIONS = {"softmax", "scaled_dot_product_attention", "_softmax"}
TURNED = {"logical_not", "bitwise_not", "__invert__"}
SAME_ANSWERS = {"bool", "to", "type", "unsqueeze", "view", "reshape", "expand", "expand_as", "__getitem__", "float", "squeeze", "repeat",
                "type_as", "transpose"}  # fmt: skip
MASKS = ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "attn_mask", "mask")


@dataclass(frozen=True, slots=True)
class Marked:
    """``compared`` made a mask from ``tokens`` that is true where they are ``padding``, or, with ``real``, where they are not."""

    compared: Event
    tokens: str
    padding: float
    real: bool


def find(story: Story) -> Iterator[Finding]:
    """One finding for each line with an attention that keeps the scores of padding only."""
    told = set()
    for event, mask, keeps in _masked(story):
        place = story.span(event.step)
        marked = _marked(story, mask, event.step) if place not in told else None
        if marked is not None and marked.real is not keeps and _is_padding(story, marked):
            told.add(place)
            yield _finding(story, event, marked)


def _masked(story: Story) -> Iterator[tuple[Event, str, bool]]:
    """The calls that mask scores of an attention, each with its bool mask and whether scores are kept where that is true."""
    for event in story.calls("masked_fill", "masked_fill_", "scaled_dot_product_attention"):
        if event.error is not None or not event.results:
            continue
        if event.name == "scaled_dot_product_attention":
            label = next((o.label for o in event.operands if o.name == "attn_mask"), None)
            label = label or (event.operands[3].label if len(event.operands) > 3 else None)
            if (story.tensor(label, event.step) or {}).get("dtype") == "bool" and label is not None:
                yield event, label, True
        elif len(event.operands) > 2 and event.operands[1].label is not None and _is_low(event) and _is_score(story, event):
            yield event, event.operands[1].label, False


def _is_low(event: Event) -> bool:
    try:
        return float(argument(event, "value", 2) or 0) < -LARGE
    except ValueError:
        return False


def _is_score(story: Story, event: Event) -> bool:
    """Whether a softmax or an attention is computed from the result."""
    pending, seen = [event.results[0]], set[str]()
    while pending and len(seen) < FURTHER:
        label = pending.pop(0)
        seen.add(label)
        for use in (use for use in story.uses(label) if use.step > event.step):
            if use.name in ATTENTIONS:
                return True
            pending += [result for result in use.results if result not in seen]
    return False


def _marked(story: Story, mask: str, step: int) -> Marked | None:
    """Return the comparison with the padding number from which a mask comes, directly or through a negation; None if there is none."""
    made, turned = origin(story, mask, step), False
    while made is not None and made.name in (*TURNED, *SAME_ANSWERS) and made.operands:
        turned ^= made.name in TURNED
        made = origin(story, made.operands[0].label, made.step)
    if made is None or len(made.operands) != 2 or made.operands[0].label is None or made.operands[1].label is not None:
        return None
    name = made.name.strip("_")
    try:
        number = float(made.operands[1].text)
    except ValueError:
        return None
    if name not in ("ne", "eq", "gt", "not_equal"):
        return None
    return Marked(made, made.operands[0].label, number, (name != "eq") is not turned)


def _is_padding(story: Story, marked: Marked) -> bool:
    """Whether the number that the mask compares with is padding, by the embedding, by the call that made the tokens, or by other uses."""
    tokens = story.tensor(marked.tokens, marked.compared.step)
    for event in story.calls("embedding"):
        given = event.operands[0].label
        same = given == marked.tokens or same_piece(story.tensor(given, event.step), tokens)
        if same and _is_number(argument(event, "padding_idx"), marked.padding):
            return True
    made = origin(story, marked.tokens, marked.compared.step)
    if made is not None and made.name == "pad_sequence" and _is_number(argument(made, "padding_value", 2) or "0", marked.padding):
        return True
    return marked.real and _divides(story, marked)


def _is_number(text: str | None, number: float) -> bool:
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
            counts |= use.name == "sum" and any(later.name == "div" for result in use.results for later in story.uses(result))
            pending += [r for r in use.results if use.name in SAME_ANSWERS and r not in seen]
    return weighs and counts


def _finding(story: Story, event: Event, marked: Marked) -> Finding:
    span = story.span(event.step)
    here, there = at_line(story, span), at_line(story, story.span(marked.compared.step))
    what, tokens = expression(story, marked.compared.results[0], event.step), expression(story, marked.tokens, marked.compared.step)
    meaning = T(en="left out", zh="被排除") if marked.real else T(en="looked at", zh="被关注")
    where = T(
        en=f"not {marked.padding:g}" if marked.real else f"{marked.padding:g}",
        zh=f"不等于 {marked.padding:g}" if marked.real else f"等于 {marked.padding:g}",
    )
    return RULE.finding(
        span, event.step,
        T(
            en=f"{capital(here.en)} looks at the padding only: the positions at which {what.en} is true are {meaning.en} here, and it is "
            f"true where {tokens.en} is {where.en}.",
            zh=f"{here.zh}只看填充：这里 {what.zh} 为真的位置{meaning.zh}，而它在 {tokens.zh} {where.zh}的地方为真。",
        ),
        T(
            en=f"{capital(there.en)} compares {tokens.en} with the number of padding, {marked.padding:g}. `key_padding_mask` and "
            "`masked_fill(mask, -inf)` leave out what is true; `scaled_dot_product_attention` keeps what is true. With the meanings "
            "exchanged every real token gets a weight of 0, and a row without padding gives NaN.",
            zh=f"{there.zh}把 {tokens.zh} 与填充的编号 {marked.padding:g} 比较。`key_padding_mask` 和 `masked_fill(mask, -inf)` 排除为真的"
            "位置；`scaled_dot_product_attention` 保留为真的位置。意思弄反时，每个真实的词的权重都是 0，没有填充的一行会得到 NaN。",
        ),
        related=[story.related("made", marked.compared.step, T(en="the mask is made here", zh="掩码在这里创建"))],
        fixes=_fixes(story, event),
        facts=[Fact("padding", marked.padding, story.by(marked.compared.step)), Fact("real", marked.real)],
    )  # fmt: skip


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step))
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)] if node is not None else []
    fixes = []
    for call in calls:
        given = [k.value for k in call.keywords if k.arg in MASKS and not (isinstance(k.value, ast.Constant) and k.value.value is None)]
        if call_name(call) in ("masked_fill", "masked_fill_") and len(call.args) == 2:
            given = [call.args[0]]
        for mask in given:
            if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert):
                new = program.segment(mask.operand)
            else:
                new = f"~{operand(program, mask)}" if isinstance(mask, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else ""
            new = new or f"~({program.segment(mask)})"
            title = T(en=f"Turn the mask around: `{new}`", zh=f"把掩码取反：`{new}`")
            fixes.append(Fix(title, program.replace((mask, new)), meaning="shape"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL424",
    name="only-padding-attended",
    severity="warning",
    title=T(en="An attention looks at the padding and leaves out the tokens", zh="注意力只看填充，把真实的词排除在外"),
    what=T(
        en="A program marks which tokens are real and gives the mask to an attention that leaves out what is marked. So each token sees "
        "nothing but padding. Turn the mask around with `~`.",
        zh="程序标出哪些是真实的词，却把掩码交给一个会排除被标位置的注意力。于是每个词只看到填充。请用 `~` 把掩码取反。",
    ),
    why=T(
        en="There are two conventions. `key_padding_mask` of `nn.MultiheadAttention` and `src_key_padding_mask` of `nn.Transformer` are "
        "true where a position is to be left out, as is the mask of `masked_fill(mask, -inf)`. A bool `attn_mask` of "
        "`F.scaled_dot_product_attention`, and the masks of many tokenizers, are true where it takes part. The shape is the same, so "
        "either is accepted; the loss still falls, because the parts of the model other than the attention learn.",
        zh="有两种约定。`nn.MultiheadAttention` 的 `key_padding_mask`、`nn.Transformer` 的 `src_key_padding_mask` 在要排除的位置为真，"
        "`masked_fill(mask, -inf)` 的掩码也是如此。`F.scaled_dot_product_attention` 的布尔 `attn_mask` 以及许多分词器的掩码，则在参与的位置"
        "为真。形状相同，所以都会被接受；损失照样下降，因为注意力之外的部分还能学习。",
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
