"""Random programs: views of views, writes through aliases, reused graphs, several backwards, on both engines in step."""

# ruff: noqa: E501 - programs and tables in one row each

from __future__ import annotations

import random
from typing import Any

from tests.shadow.twins import attempt, compare_results, compare_worlds, is_tensor, world

START = ("a", "b", "c", "w", "p", "h")
VIEWS = ("{x}[0]", "{x}[..., :1]", "{x}.t()", "{x}.view(-1)", "{x}.reshape(-1)", "{x}[None]", "{x}.expand(2, *{x}.shape)", "{x}.detach()", "{x}.data", "{x}.flatten()",
         "{x}.unbind(0)[0]", "{x}.split(1)[0]", "{x}.squeeze()", "{x}.transpose(0, -1)", "{x}[:, 1:]", "{x}.narrow(0, 0, 1)", "{x}.chunk(2)[-1]")  # fmt: skip
PURE = ("{x} + {y}", "{x} * {y}", "{x} - {y}", "{x} / ({y} + 9)", "{x} * 2", "1 - {x}", "{x} ** 2", "{x}.exp()", "torch.sigmoid({x})", "{x}.tanh()", "torch.relu({x})", "{x}.sin()",
        "{x}.sum()", "{x}.mean(0)", "{x}.sum(-1, keepdim=True)", "{x}.max()", "{x}.max(0)[0]", "{x}.clone()", "{x}.contiguous()", "{x} @ {y}", "{x}.clamp(-1, 1)", "{x}[[0]]",
        "{x}[{x} > 0]", "torch.cat([{x}, {y}])", "torch.stack([{x}, {y}])", "torch.where({x} > 0, {x}, {y})", "{x}.softmax(0)", "F.mse_loss({x}, {y})", "{x}.abs()", "{x}.double()",
        "{x}.masked_fill({x} > 0, 0.5)", "{x}.cumsum(0)", "torch.maximum({x}, {y})", "{x}.norm()", "F.leaky_relu({x})", "{x}.t() @ {x}")  # fmt: skip
WRITES = ("{x}.add_({y})", "{x}.mul_(2)", "{x}.mul_({y})", "{x}.exp_()", "{x}.sigmoid_()", "{x}.relu_()", "{x}.zero_()", "{x}.fill_(0.5)", "{x}.copy_({y})", "{x}.sub_({y}, alpha=2)",
          "{x}.tanh_()", "{x}.clamp_(-1, 1)", "{x}.__setitem__(0, 0.25)", "{x}.__setitem__(0, {y})", "{x}.__setitem__({x} > 0, 0.5)", "{x}.__setitem__([0], 1.5)", "{x}.div_({y} + 9)",
          "{x}.detach_()", "{x}.masked_fill_({x} > 1, 0.5)", "{x}.pow_(2)", "{x}.requires_grad_()")  # fmt: skip
BACKWARDS = (
    "{x}.sum().backward()",
    "{x}.sum().backward(retain_graph=True)",
    "({x} * {y}).sum().backward()",
    "torch.autograd.grad({x}.sum(), a, allow_unused=True)",
    "{x}.retain_grad()",
)


def statement(draw: random.Random, names: list[str], fresh: str) -> tuple[str, str | None, str]:
    """An expression, the name to bind its value to (or None), and the mode to run it in."""
    kind = draw.choices((VIEWS, PURE, WRITES, BACKWARDS), (4, 6, 5, 2))[0]
    text = draw.choice(kind).format(x=draw.choice(names), y=draw.choice(names))
    mode = draw.choices(("", "no_grad", "inference_mode"), (12, 2, 0.4))[0]
    return text, fresh if kind in (VIEWS, PURE) else None, mode


def run_one(names: dict[str, Any], text: str, bind: str | None, mode: str) -> Any:
    """Run one statement in one world."""
    if mode:
        with getattr(names["torch"], mode)():
            value = attempt(names, text)
    else:
        value = attempt(names, text)
    if bind is not None and is_tensor(value):
        names[bind] = value
    return value


def run_program(seed: int, length: int = 14) -> list[str]:
    """Run a random program on both engines; after every statement everything visible must be the same. Returns its text."""
    draw = random.Random(seed)
    real, shadow = world("torch"), world("shadow")
    known, text = list(START), []
    for step in range(length):
        source, bind, mode = statement(draw, known, f"t{step}")
        text.append(f"{mode + ': ' if mode else ''}{bind + ' = ' if bind else ''}{source}")
        try:
            x, y = run_one(real, source, bind, mode), run_one(shadow, source, bind, mode)
            if isinstance(y, NotImplementedError):
                break
            if "autograd.grad" in source and not isinstance(x, Exception):
                continue
            compare_results(x, y, source)
            compare_worlds(real, shadow, source)
        except Exception as problem:
            problem.add_note("seed " + str(seed) + ":\n  " + "\n  ".join(text))
            raise
        if bind is not None and is_tensor(x) and x.numel() <= 64:
            known.append(bind)
    return text
