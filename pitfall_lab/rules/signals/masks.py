"""The masks of attentions: which call applies a mask, and whether it keeps or leaves out the scores where the mask is
True.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T

LARGE = 1e3
"""A score below the negative of this gives a position an attention weight of 0."""
FURTHER = 12
ATTENTIONS = {
    "softmax",
    "scaled_dot_product_attention",
    "_softmax",
    "_transformer_encoder_layer_fwd",
    "_native_multi_head_attention",
}
MASKS = {"key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "attn_mask",
         "mask", "src_mask", "tgt_mask"}  # fmt: skip
MASK = 3
"""The position of ``attn_mask`` among the arguments of ``scaled_dot_product_attention``."""


@dataclass(frozen=True, slots=True)
class Masked:
    """A mask applied to scores: ``event`` is the call (``Event``) that applies the bool tensor ``mask`` (a label). If
    ``keeps`` is True, scores where the mask is True are kept; otherwise they are left out.

    ``attention`` is the softmax, or the whole attention, that gets the scores.
    """

    event: Event
    mask: str
    keeps: bool
    attention: Event


def masked_scores(story: Story) -> Iterator[Masked]:
    """Yield the calls that apply a bool mask to the scores of an attention, in order: by the ``attn_mask`` of
    ``scaled_dot_product_attention``, or by ``masked_fill`` with a value below ``-LARGE``. Calls that raised are left
    out.
    """
    for event in story.calls("masked_fill", "masked_fill_", "scaled_dot_product_attention"):
        if event.error is not None or not event.results:
            continue
        if event.name == "scaled_dot_product_attention":
            label = next((o.label for o in event.operands if o.name == "attn_mask"), None)
            label = label or (event.operands[MASK].label if len(event.operands) > MASK else None)
            if label is not None and (story.tensor(label, event.step) or {}).get("dtype") == "bool":
                yield Masked(event, label, True, event)
        elif len(event.operands) > 2 and event.operands[1].label is not None and _is_low(event):
            attention = _attention(story, event)
            if attention is not None:
                yield Masked(event, event.operands[1].label, False, attention)


def _is_low(event: Event) -> bool:
    try:
        return float(argument(event, "value", 2) or 0) < -LARGE
    except ValueError:
        return False


def _attention(story: Story, event: Event) -> Event | None:
    """The softmax or the attention that is computed from the result of a call; None if there is none among
    the next ``FURTHER`` tensors.
    """
    pending, seen = [event.results[0]], set[str]()
    while pending and len(seen) < FURTHER:
        label = pending.pop(0)
        seen.add(label)
        for use in (use for use in story.uses(label) if use.step > event.step):
            if use.name in ATTENTIONS:
                return use
            pending += [result for result in use.results if result not in seen]
    return None


def turned_around(story: Story, event: Event) -> tuple[Fix, ...]:
    """Return fixes, each of which negates one of the masks passed by the calls on the line of ``event``; empty if the
    line passes none.

    A positional argument counts as a mask if it is the fourth, or the third of three; of ``masked_fill``, the first of
    two.
    """
    program = story.program
    node = program.at(story.span(event.step))
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)] if node is not None else []
    fixes = []
    for call in calls:
        given = [
            k.value
            for k in call.keywords
            if k.arg in MASKS and not (isinstance(k.value, ast.Constant) and k.value.value is None)
        ]
        if called(call) in ("masked_fill", "masked_fill_") and len(call.args) == 2:
            given = [call.args[0]]
        elif not given:  # without its name: the fourth argument of these, the third of an encoder's forward
            given = call.args[3:4] if len(call.args) > 3 else call.args[2:3]
        for mask in given:
            if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert):
                new = program.segment(mask.operand)
            else:
                new = (
                    f"~{operand(program, mask)}"
                    if isinstance(mask, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
                    else ""
                )
            new = new or f"~({program.segment(mask)})"
            title = T(en=f"Turn the mask around: `{new}`", zh=f"把掩码取反：`{new}`")
            fixes.append(Fix(title, program.replace((mask, new)), meaning="shape"))
    return unique(program.text, fixes)
