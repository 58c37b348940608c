"""PL450: an attention looks at the padding of a table of tokens, since it has no mask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import everything, looks
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import (
    CLASSIFIERS,
    Attention,
    attentions,
    is_unmasked,
    name_of_tokens,
    next_axis,
    padded,
    padding_number,
    rows_of,
)
from pitfall_lab.trace import Event, T

MASKS = ("key_padding_mask", "src_key_padding_mask", "mask", "tgt_key_padding_mask")


@dataclass(frozen=True, slots=True)
class PaddingAttended:
    """``attention`` is an attention without a mask (:class:`Attention`) whose keys come from tokens that the call
    ``lookup`` (an ``Event``) looked up.

    The tokens at the indices ``places`` are padding; ``number`` is the number of the padding token.
    """

    attention: Attention
    lookup: Event
    number: int
    places: list[Index]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with an attention without a mask, whose result requires grad, that gives weight
    to padding tokens.

    Only if a backward ran; not where the targets of a loss are the next tokens.
    """
    told = set()
    for attention in attentions(story) if story.backwards() else ():
        place = story.span(attention.event.step)
        if place in told or not (story.tensor(attention.product.results[0], attention.product.step) or {}).get(
            "requires_grad"
        ):
            continue
        found = _seen(story, attention) if is_unmasked(story, attention) else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _seen(story: Story, attention: Attention) -> PaddingAttended | None:
    shape = story.shape(attention.keys, attention.product.step) or ()
    for lookup in rows_of(story, attention.keys, attention.product.step).lookups:
        tokens = story.shape(lookup.operands[0].label, lookup.step) or ()
        number = padding_number(story, lookup) if lookup.name == "embedding" and len(tokens) == 2 else None
        if number is None or len(shape) < 3 or shape[-2] not in tokens:
            continue
        places = padded(story, lookup.operands[0].label, lookup.step, number)
        if places and not _predicts_the_next(story, lookup):
            return PaddingAttended(attention, lookup, number, places)
    return None


def _predicts_the_next(story: Story, lookup: Event) -> bool:
    """Whether the targets of a loss are the next tokens after the looked-up ones.

    Then a causal mask is missing, since all padding comes after what is predicted.
    """
    tokens = (lookup.operands[0].label, lookup.step)
    return any(
        next_axis(story, (loss.operands[1].label, loss.step), tokens) is not None
        for loss in story.calls(*CLASSIFIERS)
        if loss.error is None
        and len(loss.operands) > 1
        and len(story.shape(loss.operands[1].label, loss.step) or ()) > 0
    )


def _finding(story: Story, found: PaddingAttended) -> Finding:
    event = found.attention.event
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.lookup.step))
    tokens = expression(story, found.lookup.operands[0].label, found.lookup.step)
    place = ", ".join(map(str, found.places[-1]))
    words = Elements(story, found.lookup.operands[0].label, found.lookup.step)
    turned = words.shape[1] != (story.shape(found.attention.keys, found.attention.product.step) or (0, 0))[-2]
    size = (words.shape[1], words.shape[0]) if turned else (words.shape[0], words.shape[1])

    def is_meant(example: int, column: int) -> bool | None:
        word = words.at((column, example) if turned else (example, column))
        return None if word is None else word != found.number

    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} attends to padding: {tokens.en} is {found.number} at [{place}] for instance, and "
            "no mask leaves that out.",
            zh=f"{here.zh}的注意力看到了填充：例如 {tokens.zh} 在 [{place}] 处是 {found.number}，却没有掩码把它排除。",
        ),
        T(
            en=f"{capital(there.en)} looks up tokens of which {found.number} is padding. A softmax gives each "
            "position some weight, a vector of zeros too: its score is 0, not minus infinity. So the same "
            "text has another result when the longest text of its batch is another one. Give the attention a "
            "mask of the padding.",
            zh=f"{there.zh}查的词里，{found.number} 是填充。softmax 给每个位置一些权重，全零的向量也不例外：它的分数"
            "是 0，而不是负无穷。于是同一段文本的结果会随批次里最长的文本而变。请给注意力一个填充的掩码。",
        ),
        related=[story.related("made", found.lookup.step, T(en="the tokens are looked up here", zh="在这里查词"))],
        fixes=_fixes(story, found),
        facts=[
            Fact("padding", found.number, story.by(found.lookup.step)),
            *looks(size, everything, is_meant, examples=True),
        ],
    )


def _fixes(story: Story, found: PaddingAttended) -> tuple[Fix, ...]:
    program, event = story.program, found.attention.event
    node = program.at(story.span(event.step)) if program.tree is not None else None
    name = name_of_tokens(story, found.lookup, event)
    if not isinstance(node, ast.Call) or name is None:
        return ()
    return unique(
        program.text,
        [Fix(_title(text), edits, meaning="shape") for text, edits in _candidates(story, found, node, name)],
    )


def _title(text: str) -> T:
    return T(en=f"Leave out the padding: `{text}`", zh=f"排除填充：`{text}`")


def _candidates(
    story: Story, found: PaddingAttended, node: ast.Call, name: str
) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    program, event, number = story.program, found.attention.event, found.number
    rank = len(story.shape(event.results[0], event.step) or ())
    axes = ", ".join([":", *["None"] * (rank - 2), ":"])
    inside = program.segment(node)[:-1].rstrip().rstrip(",")
    if call_name(node) == "scaled_dot_product_attention":
        text = f"attn_mask=({name} != {number})[{axes}]"
        yield text, program.replace((node, f"{inside}, {text})"))
    elif call_name(node) in ("softmax", "_softmax"):
        given = written_as(story, event, event.operands[0].label)
        if given is not None:
            text = f'{operand(program, given)}.masked_fill(({name} == {number})[{axes}], float("-inf"))'
            yield text, program.replace((given, text))
    else:
        turned = (story.shape(found.lookup.operands[0].label, found.lookup.step) or (0,))[0] == (
            story.shape(found.attention.keys) or (0, 0)
        )[-2]
        for mask in MASKS if not any(k.arg in MASKS for k in node.keywords) else ():
            text = f"{mask}={name} == {number}" if not turned else f"{mask}=({name} == {number}).T"
            yield text, program.replace((node, f"{inside}, {text})"))


RULE = Rule(
    code="PL450",
    name="padding-attended",
    severity="warning",
    title=T(en="An attention looks at padding", zh="注意力看到了填充"),
    what=T(
        en="Texts of different lengths are filled up to one length, and the attention looks at the filling as well as "
        "at the words. So what a text means depends on the longest text next to it. Give the attention a mask: "
        "`src_key_padding_mask=tokens == 0`.",
        zh="长短不一的文本被补齐到同一长度，注意力除了词以外也看到了填充。于是一段文本的含义取决于它旁边最长的文本。请"
        "给注意力一个掩码：`src_key_padding_mask=tokens == 0`。",
    ),
    why=T(
        en="`padding_idx` of an `Embedding` keeps the vector of padding at 0, but masks nothing in an attention. The "
        "layers before it add a bias or a position to the vector, and even a score of 0 gets a weight of exp(0) "
        "before the weights are divided by their sum. `nn.MultiheadAttention` has `key_padding_mask`, "
        "`nn.TransformerEncoder` `src_key_padding_mask` (true is left out); `scaled_dot_product_attention` has "
        "`attn_mask` (true takes part).",
        zh="`Embedding` 的 `padding_idx` 让填充的向量为 0 并保持不变；注意力并不知道这一点。前面的层会给这个向量加上偏"
        "置或位置，而且即使分数为 0，在权重除以总和之前也有 exp(0) 的权重。`nn.MultiheadAttention` 有 "
        "`key_padding_mask`，`nn.TransformerEncoder` 有 `src_key_padding_mask`（为真表示排除）；"
        "`scaled_dot_product_attention` 有 `attn_mask`（为真表示参与）。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
words = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
table, mix, head = torch.nn.Embedding(7, 4, padding_idx=0), torch.nn.Linear(4, 12), torch.nn.Linear(4, 2)
opt = torch.optim.SGD([*table.parameters(), *mix.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    q, k, v = mix(table(words)).chunk(3, dim=-1)  # made
    h = F.scaled_dot_product_attention(q, k, v)  # PL450
    loss = F.cross_entropy(head(h[:, 0]), torch.tensor([0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
words = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
table, mix, head = torch.nn.Embedding(7, 4, padding_idx=0), torch.nn.Linear(4, 12), torch.nn.Linear(4, 2)
opt = torch.optim.SGD([*table.parameters(), *mix.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    q, k, v = mix(table(words)).chunk(3, dim=-1)
    h = F.scaled_dot_product_attention(q, k, v, attn_mask=(words != 0)[:, None, :])
    loss = F.cross_entropy(head(h[:, 0]), torch.tensor([0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "table(words)",
            "(table(words) * (words != 0)[..., None])",
            T(
                en="A vector of zeros has a score and a weight too; the layer after it even adds its bias.",
                zh="全零的向量也有分数和权重；它后面的层还会加上偏置。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
)
