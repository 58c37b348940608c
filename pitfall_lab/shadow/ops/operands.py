"""The tensors that sample expressions use, as source text: it runs on torch and on the shadow.

``a``, ``b``, ``c``, ``w`` are leaves that require a gradient, ``h`` is a result, ``p`` does not require a gradient,
``n``, ``i`` and ``m`` are integers, an index and a mask. What is in ``MORE`` (images, a sequence, filters and the rest
of a layer's parameters, a positive definite matrix ``s``) is made only for the samples that name it.
"""

from __future__ import annotations

import ast
from functools import cache

OPERANDS = """
a = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
b = torch.tensor([[1.5, 2.0, 0.5], [0.75, 3.0, 1.25]], requires_grad=True)
c = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
w = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.25, -3.0]], requires_grad=True)
p = torch.tensor([[2.0, 0.5, 1.0], [3.0, -1.0, 4.0]])
n = torch.tensor([[1, 2, 3], [4, 5, 6]])
i = torch.tensor([1, 0])
m = torch.tensor([[True, False, True], [False, True, False]])
h = a * 1
"""
WAVES = """
import numpy as np

def waves(*shape):
    return torch.tensor(np.sin(np.arange(1, np.prod(shape) + 1) * 1.7).astype(np.float32).reshape(shape))
"""
"""``waves(*shape)`` is a plain tensor of numbers without ties, the same on both engines."""
MORE = {
    "img": "waves(2, 4, 4, 6).requires_grad_()",
    "cl": "waves(2, 4, 4, 6).contiguous(memory_format=torch.channels_last).requires_grad_()",
    "vol": "waves(1, 2, 3, 4, 4).requires_grad_()",
    "seq": "waves(2, 4, 6).requires_grad_()",
    "k1": "(waves(6, 4, 3) * 0.25).requires_grad_()",
    "k2": "(waves(6, 4, 3, 3) * 0.25).requires_grad_()",
    "k3": "(waves(3, 2, 2, 2, 2) * 0.25).requires_grad_()",
    "kt": "(waves(4, 3, 3, 3) * 0.25).requires_grad_()",
    "c3": "waves(3).requires_grad_()",
    "c4": "waves(4).requires_grad_()",
    "c6": "waves(6).requires_grad_()",
    "d4": "waves(4) + 2",
    "q4": "waves(2, 2, 3, 4).requires_grad_()",
    "s": "torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]], requires_grad=True)",
}
_LINES = {line.split(" = ")[0]: line.split(" = ", 1)[1] for line in OPERANDS.strip().splitlines()} | MORE


@cache
def named(source: str) -> tuple[str, ...]:
    """The operands (of ``OPERANDS`` and ``MORE``) that an expression names, each once, in order of appearance.

    >>> named("torch.add(b, a, alpha=2)")
    ('b', 'a')
    """
    found = [n for n in ast.walk(ast.parse(source, mode="eval")) if isinstance(n, ast.Name) and n.id in _LINES]
    return tuple(dict.fromkeys(n.id for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))))


@cache
def definitions(source: str) -> str:
    """The lines of source that make the operands that an expression names, and those that these are made of.

    >>> print(definitions("h.exp_()"))
    a = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
    h = a * 1
    """
    wanted = {name for operand in named(source) for name in (operand, *named(_LINES[operand]))}
    lines = [f"{name} = {text}" for name, text in _LINES.items() if name in wanted]
    return "\n".join([*([WAVES.strip(), ""] if any("waves(" in line for line in lines) else []), *lines])
