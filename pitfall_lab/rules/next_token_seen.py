"""PL430: a model is trained to predict the next token, and its attention, or a recurrent layer that reads in both
directions, lets each position see that token.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import looks
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import (
    CLASSIFIERS,
    Attention,
    adds_answers,
    comes_from,
    directions,
    is_among,
    is_unmasked,
    next_axis,
    rows_of,
    sees_next,
)
from pitfall_lab.trace import Event, T

BOTH = 2
MASKS = ("attn_mask", "mask", "src_mask", "tgt_mask")


@dataclass(frozen=True, slots=True)
class NextTokenSeen:
    """``attention`` is an attention (:class:`Attention`) in which a position gives the next position the weight
    ``weight`` (1 if only its masks are known, and they allow that).

    ``lookup`` is the call (``Event``) that looked up the tokens, ``loss`` the call of the loss whose targets are the
    next tokens, ``length`` the number of positions.
    """

    attention: Attention
    weight: float
    lookup: Event
    loss: Event
    length: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a model whose result has seen the next token, if the targets of the loss are
    the next tokens: an attention in which a position sees the next one, or a recurrent layer that reads in both
    directions. No line gets two findings.

    Of the losses that one line computes, those after the first one with a finding are not looked at.
    """
    reported = set[object]()
    for loss in story.calls(*CLASSIFIERS):
        if loss.error is not None or len(loss.operands) < 2 or story.span(loss.step) in reported:
            continue
        rows = rows_of(story, loss.operands[0].label, loss.step)
        both = [event for event in rows.recurrent if directions(story, event) == BOTH]
        for lookup in rows.lookups if both else ():
            given = (loss.operands[1].label, loss.step), (lookup.operands[0].label, lookup.step)
            for layer in both if next_axis(story, *given) is not None else ():
                place = story.span(layer.step)
                if place not in reported and comes_from(story, layer.operands[0].label, layer.step, lookup):
                    reported |= {place, story.span(loss.step)}
                    yield _backwards(story, layer, lookup, loss)
        for lookup in rows.lookups if rows.attentions else ():
            for leak in _leaks(story, loss, lookup, rows.attentions):
                place = story.span(leak.attention.event.step)
                if place not in reported:
                    reported |= {place, story.span(loss.step)}
                    yield _finding(story, leak)


def _leaks(story: Story, loss: Event, lookup: Event, attentions: tuple[Attention, ...]) -> Iterator[NextTokenSeen]:
    shape = story.shape(lookup.operands[0].label, lookup.step) or ()
    found = [
        a
        for a in attentions
        if any(is_among(story, a, n) for n in shape if n > 1) and comes_from(story, a.keys, a.product.step, lookup)
    ]
    axis = (
        next_axis(story, (loss.operands[1].label, loss.step), (lookup.operands[0].label, lookup.step))
        if found
        else None
    )
    for attention in found if axis is not None else ():
        length = shape[axis or 0] if (axis or 0) < len(shape) else 0
        weight = sees_next(story, attention) if is_among(story, attention, length) else None
        if weight is not None and not adds_answers(story, attention):
            yield NextTokenSeen(attention, weight, lookup, loss, length)


def _finding(story: Story, leak: NextTokenSeen) -> Finding:
    event, loss = leak.attention.event, leak.loss
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(loss.step))
    target = expression(story, loss.operands[1].label, loss.step)
    everything = is_unmasked(story, leak.attention)
    seen = T(
        en=f": position 0 gives position 1 a weight of {leak.weight:.2g}",
        zh=f"：位置 0 给位置 1 的权重是 {leak.weight:.2g}",
    ) if leak.weight < 1 else T(en="", zh="")  # fmt: skip
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} lets each position see the next token, which is the one that it has "
            f"to predict{seen.en}.",
            zh=f"{here.zh}让每个位置都能看到下一个词，而那正是它要预测的词{seen.zh}。",
        ),
        T(
            en=f"The targets {target.en} on {there.en} are the tokens of one place further on. The attention compares "
            "each position with the one after it, so the answer is among what the model is given, and it can copy it. "
            "In generation the next token does not exist yet. A causal mask leaves out the later positions before the "
            "softmax.",
            zh=f"{there.zh}的目标 {target.zh} 是往后一个位置的词。注意力让每个位置与它后面的位置比较，于是答案就在模型"
            "的输入里，它可以照抄。而生成时下一个词还不存在。因果掩码会在 softmax 之前排除后面的位置。",
        ),
        related=[
            story.related("used", loss.step, T(en="the next tokens are the targets here", zh="在这里，目标是下一个词")),
            story.related("made", leak.lookup.step, T(en="the tokens are looked up here", zh="在这里查词")),
        ],
        fixes=_fixes(story, leak),
        facts=[
            Fact("weight", leak.weight, story.by(event.step)),
            Fact("positions", leak.length, story.by(event.step)),
            *looks(
                (leak.length, leak.length),
                lambda row, column: True if everything else True if column <= row + 1 else None,
                lambda row, column: column <= row,
            ),
        ],
    )


def _backwards(story: Story, layer: Event, lookup: Event, loss: Event) -> Finding:
    """Return the finding about a recurrent layer that reads the tokens in both directions."""
    here, there = at_line(story, story.span(layer.step)), at_line(story, story.span(loss.step))
    target = expression(story, loss.operands[1].label, loss.step)
    return RULE.finding(
        story.span(layer.step),
        layer.step,
        T(
            en=f"{capital(here.en)} reads the positions in both directions, so each of them has seen the next token, "
            "which it has to predict.",
            zh=f"{here.zh}朝两个方向读这些位置，于是每个位置都已经看过它要预测的下一个词。",
        ),
        T(
            en=f"The targets {target.en} on {there.en} are the tokens of one place further on. The backward direction "
            "of the layer comes from there, so the model can copy the answer. In generation the next token does not "
            "exist yet. A model that writes reads in one direction: `bidirectional=False`.",
            zh=f"{there.zh}的目标 {target.zh} 是往后一个位置的词，而这一层的反方向正是从那里来的，所以模型可以照抄答"
            "案。而生成时下一个词还不存在。用来写作的模型只朝一个方向读：`bidirectional=False`。",
        ),
        related=[
            story.related("used", loss.step, T(en="the next tokens are the targets here", zh="在这里，目标是下一个词")),
            story.related("made", lookup.step, T(en="the tokens are looked up here", zh="在这里查词")),
        ],
        fixes=_one_direction(story, layer),
        facts=[Fact("directions", BOTH, story.by(layer.step))],
    )


def _one_direction(story: Story, layer: Event) -> tuple[Fix, ...]:
    """Fixes that let the layer read in one direction, and halve the input width of the layer after it.

    Empty unless the program has exactly one ``bidirectional=`` and one ``nn.Linear`` of twice that width.
    """
    program, width = story.program, (story.shape(layer.results[1], layer.step) or (0,))[-1]
    if program.tree is None:
        return ()
    calls = [n for n in program.nodes if isinstance(n, ast.Call)]
    flags = [
        k.value
        for call in calls
        for k in call.keywords
        if k.arg == "bidirectional" and call_name(call).lower() in ("lstm", "gru", "rnn")
    ]
    wide = [
        a
        for call in calls
        if call_name(call) == "Linear"
        for a in call.args[:1]
        if _is_twice(program.segment(a), width)
    ]
    if len(flags) != 1 or len(wide) != 1:
        return ()
    text = program.segment(wide[0])
    half = (
        str(width)
        if text.isdigit()
        else text.replace("2 * ", "").replace(" * 2", "").replace("*2", "").replace("2*", "")
    )
    title = T(en="Read in one direction: `bidirectional=False`", zh="只朝一个方向读：`bidirectional=False`")
    return unique(program.text, [Fix(title, program.replace((flags[0], "False"), (wide[0], half)), meaning="shape")])


def _is_twice(text: str, width: int) -> bool:
    return text == str(2 * width) or text.startswith(("2 * ", "2*")) or text.endswith((" * 2", "*2"))


def _fixes(story: Story, leak: NextTokenSeen) -> tuple[Fix, ...]:
    program, torch = story.program, torch_name(story.program)
    node = program.at(story.span(leak.attention.event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call) or torch is None:
        return ()
    candidates = [
        *_turned_masks(story, leak, torch),
        *(
            _in_the_call(story, leak, node, torch)
            if call_name(node) != "softmax"
            else _before_softmax(story, leak, node, torch)
        ),
    ]
    return unique(program.text, [Fix(_title(text), edits, meaning="shape") for text, edits in candidates])


def _title(text: str) -> T:
    return T(en=f"Leave out the later positions: `{text}`", zh=f"排除后面的位置：`{text}`")


def _turned_masks(story: Story, leak: NextTokenSeen, torch: str) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Yield the source of a new triangular mask, and the edits that put it in place of a mask in the program, for each
    mask that is given to ``masked_fill`` or an attention call within 12 steps of the attention in ``leak``.
    """
    program, size = story.program, [leak.length, leak.length]
    for event in story.calls("masked_fill", "masked_fill_", "scaled_dot_product_attention"):
        if abs(event.step - leak.attention.event.step) > 12 or (
            event.name != "scaled_dot_product_attention" and len(event.operands) < 2
        ):
            continue
        node = program.at(story.span(event.step))
        for call in [n for n in ast.walk(node) if isinstance(n, ast.Call)] if node is not None else []:
            given = [k.value for k in call.keywords if k.arg in (*MASKS, "attn_mask")]
            given += call.args[:1] if call_name(call) in ("masked_fill", "masked_fill_") else []
            for mask in given:
                keeps = call_name(call) == "scaled_dot_product_attention"
                part = "tril()" if keeps else "triu(1)"
                text = f"{torch}.ones({size[0]}, {size[1]}, dtype={torch}.bool).{part}"
                name = program.segment(mask)
                if isinstance(mask, ast.Name):
                    text = f"{torch}.ones_like({name}, dtype={torch}.bool).{part}"
                yield text, program.replace((mask, text))


def _in_the_call(
    story: Story, leak: NextTokenSeen, node: ast.Call, torch: str
) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    program, text = story.program, story.program.segment(node)
    if any(k.arg in MASKS or k.arg == "is_causal" for k in node.keywords):
        return
    inside = text[:-1].rstrip().rstrip(",")
    if call_name(node) == "scaled_dot_product_attention":
        yield "is_causal=True", program.replace((node, f"{inside}, is_causal=True)"))
        return
    for name in MASKS:
        mask = f"{name}={torch}.nn.Transformer.generate_square_subsequent_mask({leak.length})"
        for size in _sizes(story, leak, node):
            sized = f"{name}={torch}.nn.Transformer.generate_square_subsequent_mask({size})"
            yield sized, program.replace((node, f"{inside}, {sized})"))
            break
        else:
            yield mask, program.replace((node, f"{inside}, {mask})"))


def _sizes(story: Story, leak: NextTokenSeen, node: ast.Call) -> Iterator[str]:
    """Yield ``h.size(1)``, an expression for the number of positions, for each plain name ``h`` among the call's
    arguments and each tensor of that name with exactly one dimension of this length, besides others.
    """
    for given in node.args[::-1]:
        if not isinstance(given, ast.Name):
            continue
        for record in story.tensors.values():
            shape = record.get("shape") or []
            if given.id in (record.get("names") or ()) and shape.count(leak.length) == 1 and len(shape) > 1:
                yield f"{given.id}.size({shape.index(leak.length)})"


def _before_softmax(
    story: Story, leak: NextTokenSeen, node: ast.Call, torch: str
) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    program = story.program
    given = written_as(story, leak.attention.event, leak.attention.event.operands[0].label)
    statement = program.statement(node)
    if given is None or statement is None:
        return
    if isinstance(given, ast.Name):
        text = f'{given.id}.masked_fill({torch}.ones_like({given.id}, dtype={torch}.bool).triu(1), float("-inf"))'
        yield text, program.replace((given, text))
    elif isinstance(statement, ast.Assign) and statement.value is node and isinstance(statement.targets[0], ast.Name):
        name, indent = statement.targets[0].id, program.indent(statement)
        text = f'{name} = {name}.masked_fill({torch}.ones_like({name}, dtype={torch}.bool).triu(1), float("-inf"))'
        whole = program.segment(node)
        softmax = whole.replace(operand(program, given), name, 1).replace(program.segment(given), name, 1)
        yield (
            text,
            program.replace(
                (statement, f"{name} = {program.segment(given)}\n{indent}{text}\n{indent}{name} = {softmax}")
            ),
        )


RULE = Rule(
    code="PL430",
    name="next-token-seen",
    severity="warning",
    title=T(
        en="A model sees the next token, which it is to predict",
        zh="模型能看到它正要预测的下一个词",
    ),
    what=T(
        en="A model learns to predict the next token of a text, and its attention, or a recurrent layer that reads in "
        "both directions, looks at the text with the next token in it. So it can copy the answer, and learn nothing "
        "that helps when it has to write by itself. Give the attention a causal mask, or `is_causal=True`; let the "
        "recurrent layer read in one direction.",
        zh="模型学习预测文本的下一个词，而它的注意力，或朝两个方向读的循环层，看到的文本里就有下一个词。于是它可以照抄"
        "答案，学不到自己写作时有用的东西。请给注意力一个因果掩码，或者 `is_causal=True`；让循环层只朝一个方向读。",
    ),
    why=T(
        en="Without a mask, an attention compares every position with every other one: neither "
        "`scaled_dot_product_attention` nor "
        "`nn.MultiheadAttention` nor `nn.TransformerEncoder` knows an order of time. All positions are trained at "
        "once, each with the token behind it as its target, so the later positions have to be left out by a mask: "
        "their scores become minus infinity before the softmax, and their weights 0. A bool `attn_mask` of "
        "`scaled_dot_product_attention` is true where a position takes part (`tril`); one of `nn.MultiheadAttention`, "
        "and that of `masked_fill`, where it is left out (`triu` from the first diagonal above the main one).",
        zh="没有掩码时，注意力让每个位置与其他所有位置比较：`scaled_dot_product_attention`、`nn.MultiheadAttention` 和 "
        "`nn.TransformerEncoder` 都不知道时间的先后。所有位置同时训练，每个位置的目标是它后面的词，所以必须用掩码排除"
        "后面的位置：softmax 之前它们的分数变成负无穷，权重变成 0。`scaled_dot_product_attention` 的布尔 `attn_mask` "
        "在参与的位置为真（`tril`）；`nn.MultiheadAttention` 的掩码和 `masked_fill` 的掩码则在被排除的位置为真（从主对"
        "角线上方第一条对角线开始的 `triu`）。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
text = torch.randint(0, 7, (3, 6))
table, mix, head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 12), torch.nn.Linear(4, 7)
opt = torch.optim.SGD([*table.parameters(), *mix.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    x, y = text[:, :-1], text[:, 1:]
    q, k, v = mix(table(x)).chunk(3, dim=-1)  # made
    h = F.scaled_dot_product_attention(q, k, v)  # PL430
    loss = F.cross_entropy(head(h).flatten(0, 1), y.flatten())  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
text = torch.randint(0, 7, (3, 6))
table, mix, head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 12), torch.nn.Linear(4, 7)
opt = torch.optim.SGD([*table.parameters(), *mix.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    x, y = text[:, :-1], text[:, 1:]
    q, k, v = mix(table(x)).chunk(3, dim=-1)
    h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    loss = F.cross_entropy(head(h).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "(q, k, v)",
            "(q, k, v, dropout_p=0.1)",
            T(
                en="Dropout hides some of the answers, and leaves the others.",
                zh="dropout 只遮住一部分答案，其余的仍然看得到。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html",
    ),
)
