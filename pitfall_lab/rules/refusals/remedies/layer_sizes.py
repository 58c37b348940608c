"""Layers that were created for another number of features or channels than their input has: fixes change the size where
the layer is created.
"""

from __future__ import annotations

import ast
import math

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import Event, Given, Span, T

OUT = {"Linear": 1, "LazyLinear": 0, "Conv1d": 1, "Conv2d": 1, "Conv3d": 1, "ConvTranspose1d": 1, "ConvTranspose2d": 1,
       "Embedding": 1, "LSTM": 1, "GRU": 1, "RNN": 1, "BatchNorm1d": 0, "BatchNorm2d": 0, "BatchNorm3d": 0,
       "LayerNorm": 0}  # fmt: skip
"""The position of the argument that is the number of features or channels of a layer's output."""
IN_NAMES = ("in_features", "in_channels", "num_features", "input_size", "embed_dim", "normalized_shape")
OUT_NAMES = ("out_features", "out_channels", "embedding_dim", "hidden_size")
THROUGH = {"relu", "gelu", "tanh", "sigmoid", "dropout", "leaky_relu", "silu", "elu", "softplus", "batch_norm",
           "layer_norm", "max_pool1d", "max_pool2d", "avg_pool2d", "max_pool1d_with_indices", "contiguous",
           "group_norm", "hardtanh", "relu6", "mish"}  # fmt: skip
"""Functions that keep the number of channels or features."""
FLATTENING = {"flatten", "view", "reshape"}
"""Calls that join the axes of an image to features."""
FURTHEST = 20


def of_the_input(error: Error) -> Remedy | None:
    """Return the remedy for a layer that was created for another size of input, with a fix (tried last) that creates it
    for the size that its input has.

    None if the input would fit when reshaped, if the layer was called successfully before, or if the source does not
    show where the layer is created.
    """
    refused, wrong = error.refused, error.wrong
    story, program = refused.story, refused.story.program
    built = _built(refused)
    got = _got(error)
    if wrong is None or wrong.shape is None or built is None or got is None:
        return None
    call, size, place = built
    numbers = {int(n) for n in error.match.groups() if n is not None and n.isdigit()}
    wanted = next(
        (
            g.shape[_axis(g)]
            for g in refused.tensors
            if g.kind == "Parameter" and g.shape is not None and len(g.shape) > _axis(g)
        ),
        None,
    )
    wanted = wanted if wanted in numbers else next(iter(numbers - {got}), None)
    maker = _source(story, wrong, refused.step)
    if (
        wanted is None
        or wanted == got
        or _has_worked(refused)
        or _fits_otherwise(wrong, wanted, from_layer=maker is not None)
    ):
        return None
    text = _size_text(program, (call, size), maker, (story, wrong, refused.step, got))
    title = T(en=f"Build the layer for what it is given: `{text}`", zh=f"按得到的输入来建这个层：`{text}`")
    where, here, name = at_line(story, place), at_line(story, refused.span), refused.name(wrong)
    shape = "×".join(map(str, wrong.shape)) if len(wrong.shape) > 1 else f"({wrong.shape[0]},)"
    weight = next(
        (refused.name(g) for g in refused.tensors if g.kind == "Parameter" or g.name.startswith("running_")),
        T("it", "它"),
    )
    said = T(
        en=f"{capital(where.en)} builds a layer for {wanted}, and {here.en} gives it {name.en} of shape {shape}: "
        f"there are {got}, and {weight.en} takes {wanted}.",
        zh=f"{where.zh}建的层要求 {wanted}，而{here.zh}给它的 {name.zh} 形状是 {shape}：有 {got} 个，而 "
        f"{weight.zh} 要求 {wanted} 个。",
    )
    related = [
        Related("made", place, None, T(en=f"a layer for {wanted} is built here", zh=f"这里建了一个要求 {wanted} 的层"))
    ]
    if maker is not None:
        span = story.span(maker.step)
        related.append(
            Related(
                "made",
                span,
                maker.step,
                T(en=f"`{maker.name}` makes {got} here", zh=f"`{maker.name}` 在这里给出 {got}"),
            )
        )
    return Remedy(
        (), said, None, place, None, tuple(related), (Fix(title, program.replace((size, text)), meaning="later"),)
    )


def _has_worked(refused: Refused) -> bool:
    """Whether an earlier call of the same function with the layer's weight succeeded."""
    known = next((g for g in refused.tensors if g.kind == "Parameter"), None)
    name = refused.failure.op.rsplit(".", 1)[-1]
    uses = refused.story.uses(known.label) if known is not None else []
    return any(use.name == name and use.error is None and use.results and use.step < refused.step for use in uses)


def _axis(given: Given) -> int:
    """The dimension of a parameter that is the size of a layer's input: 1 for a weight, 0 for a parameter with one
    dimension (a norm).
    """
    return 1 if given.shape is not None and len(given.shape) > 1 else 0


def _built(refused: Refused) -> tuple[ast.Call, ast.expr, Span] | None:
    """The call that created the layer, the expression of its input size, and the span of the call; None if the source
    does not show them.
    """
    story, program = refused.story, refused.story.program
    known = next((g for g in refused.tensors if g.kind == "Parameter" or g.name.startswith("running_")), None)
    born = (
        (story.tensor(known.label, refused.step) or {}).get("born")
        if known is not None and known.label is not None
        else None
    )
    layer = refused.call.func if refused.call is not None and known is None else None
    makers = (
        [n for n in origins(program, layer) if isinstance(n, ast.Call) and n is not refused.call]
        if layer is not None
        else []
    )
    call = makers[0] if len(makers) == 1 else program.at(story.span(born))
    if not isinstance(call, ast.Call) or not called(call)[:1].isupper():
        return None
    size = next((k.value for k in call.keywords if k.arg in IN_NAMES), call.args[0] if call.args else None)
    return (call, size, program.place(call)) if size is not None and not isinstance(size, ast.Starred) else None


def _got(error: Error) -> int | None:
    """The number of features (the last dimension) or channels (dimension 1) of the layer's input; None if it has no
    such dimension.
    """
    shape = error.wrong.shape if error.wrong is not None else None
    if not shape:
        return None
    op = error.refused.failure.op.rsplit(".", 1)[-1]
    if op in ("linear", "layer_norm") or "RNN" in error.refused.failure.op or "attention" in op:
        return shape[-1]
    return shape[1] if len(shape) > 1 else None


def _fits_otherwise(given: Given, wanted: int, *, from_layer: bool) -> bool:
    """Whether the input would fit if it were flattened or, if no layer made it, with its dimensions in another order:
    then the layer is right.
    """
    shape = given.shape or ()
    return math.prod(shape[1:]) == wanted or (not from_layer and wanted in shape[1:])


def _source(story: Story, given: Given, step: int) -> Event | None:
    """The call of a layer that determined the input's number of channels or features; None if it is not found among the
    last ``FURTHEST`` calls.
    """
    label = given.label
    for _ in range(FURTHEST):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or event.kind != "call" or not event.operands:
            return None
        if (
            any((story.tensor(o.label) or {}).get("kind") == "parameter" for o in event.operands)
            and event.name not in THROUGH
        ):
            return event
        if event.name not in THROUGH | FLATTENING | {"adaptive_avg_pool2d", "adaptive_avg_pool1d", "mean"}:
            return None
        label = event.operands[0].label
    return None


def _size_text(
    program: Program, layer: tuple[ast.Call, ast.expr], maker: Event | None, given: tuple[Story, Given, int, int]
) -> str:
    """The source for the size: as the layer before writes it, as a product of the sizes that were flattened, or as a
    number.
    """
    call, size = layer
    story, wrong, step, got = given
    weight = (
        next((o.label for o in maker.operands if (story.tensor(o.label) or {}).get("kind") == "parameter"), None)
        if maker
        else None
    )
    before = program.at(story.span((story.tensor(weight) or {}).get("born"))) if weight is not None else None
    event = story.event((story.tensor(wrong.label, step) or {}).get("born"))
    flat = (
        story.shape(event.operands[0].label, event.step)
        if event is not None and event.name in FLATTENING and event.operands
        else None
    )
    factors = _factors(size)
    if flat is not None and len(factors) > 1 and len(factors) == len(flat) - 1:
        texts = [
            program.segment(f) if isinstance(f, ast.Constant) and f.value == n else str(n)
            for f, n in zip(factors, flat[1:], strict=True)
        ]
        named = [
            program.segment(f) if not isinstance(f, ast.Constant) else t for f, t in zip(factors, texts, strict=True)
        ]
        return " * ".join(named if all(isinstance(f, ast.Constant) for f in factors[1:]) else texts)
    if (
        isinstance(before, ast.Call)
        and (flat is None or math.prod(flat[2:]) == 1)
        and program.function(before) is program.function(call)
    ):
        at = OUT.get(called(before))
        out = next(
            (k.value for k in before.keywords if k.arg in OUT_NAMES),
            before.args[at] if at is not None and at < len(before.args) else None,
        )
        if out is not None:
            return program.segment(out)
    return str(got)


def _factors(node: ast.expr) -> list[ast.expr]:
    """The factors of a product: three of ``16 * 5 * 5``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]
