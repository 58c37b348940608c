"""A formula that is wrong by a thousandth is found, whatever else flows in the same backward;
rounding is not taken for a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pitfall_lab.shadow.backward import Pass
from pitfall_lab.shadow.gradient import Gradient
from pitfall_lab.shadow.graph import Node, Written
from pitfall_lab.verify import trace_program
from pitfall_lab.verify.compare_memory import _is_rounding
from tests.fuzz import standalone

HEAD = "import torch\nimport torch.nn.functional as F\n"
X = """
x = torch.linspace(-2, 3, {n}).reshape({shape}).requires_grad_()
w = torch.linspace(700, -2500, {n}).reshape({shape})
w = w.sin().requires_grad_()
v = torch.linspace(-900, 1500, {n}).reshape({shape})
v = v.cos()
"""
SIZES = {"4": (4, "2, 2"), "64x64": (4096, "64, 64")}
LOSSES = {
    "its own": "y.sum().backward()",
    "weighted": "(y * v).sum().backward()",
    "beside large numbers": "(y.sum() + (w * 100).pow(2).sum()).backward()",
    "handed out": "g, = torch.autograd.grad(y.sum() + (w * 100).pow(2).sum(), x)",
}
WAYS = {
    "SigmoidBackward0": (
        "y = x.sigmoid()",
        "y = (x * 2).sigmoid().exp()",
        "y = torch.cat([x[:1].sigmoid(), x[1:] * 1000])",
    ),
    "TanhBackward0": ("y = x.tanh()", "y = (x @ w).tanh() @ w"),
    "ExpBackward0": ("y = x.exp()", "y = x.exp().softmax(1)"),
    "MmBackward0": ("y = x @ w", "y = F.layer_norm(x @ w, x.shape[1:])"),
    "GeluBackward0": ("y = F.gelu(x)",),
    "AmaxBackward0": ("y = x.amax(1, keepdim=True) * x.detach()",),
}
CASES = [
    (name, way, size, loss)
    for name, ways in WAYS.items()
    for way in ways
    for size in SIZES
    for loss in LOSSES
    # Without weights, and of two numbers, the gradients of what is normalised are nothing but rounding.
    if (loss == "weighted" or "softmax" not in way)
    and ("layer_norm" not in way or (loss == "weighted" and size != "4"))
]


def program(way: str, size: str, loss: str, dtype: str = "") -> str:
    n, shape = SIZES[size]
    return f"{HEAD}{dtype}{X}{way}\n{LOSSES[loss]}\n".format(n=n, shape=shape)


def spoiled(monkeypatch: pytest.MonkeyPatch, name: str, by: float) -> None:
    """Make the formula of the nodes of one name wrong by a factor."""
    compute = Pass.compute

    def wrong(self: Pass, node: Node, incoming: list[Gradient | None], as_meant: bool) -> list[Gradient | None]:
        right = node.vjp
        if node.name != name or right is None:
            return compute(self, node, incoming, as_meant)

        def vjp(g: Any, s: Any) -> Sequence[Any]:
            made = [x.array if isinstance(x, Written) else x for x in right(g, s)]
            return [None if x is None else np.asarray(x) * np.asarray(x).dtype.type(by) for x in made]

        node.vjp = vjp
        try:
            return compute(self, node, incoming, as_meant)
        finally:
            node.vjp = right if node.vjp is vjp else node.vjp

    monkeypatch.setattr(Pass, "compute", wrong)


@pytest.mark.parametrize(("name", "way", "size", "loss"), CASES)
def test_a_thousandth_is_found_in_lockstep(
    monkeypatch: pytest.MonkeyPatch, name: str, way: str, size: str, loss: str
) -> None:
    text = program(way, size, loss)
    assert trace_program(text).disagreements == ()
    spoiled(monkeypatch, name, 1.001)
    assert trace_program(text).disagreements, text


@pytest.mark.parametrize(("name", "way", "size", "loss"), CASES)
def test_a_thousandth_is_found_stand_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, way: str, size: str, loss: str
) -> None:
    text = program(way, size, loss)
    assert standalone.check(text).problems == []
    spoiled(monkeypatch, name, 1.001)
    assert standalone.check(text).problems, text


@pytest.mark.parametrize(("dtype", "by"), [("float64", 1 + 1e-7), ("float16", 1.02)])
@pytest.mark.parametrize("size", SIZES)
def test_other_types_have_their_own_rounding(monkeypatch: pytest.MonkeyPatch, dtype: str, by: float, size: str) -> None:
    text = program(f"x = x.detach().to(torch.{dtype}).requires_grad_(); y = x.sigmoid()", size, "beside large numbers")
    assert trace_program(text).disagreements == ()
    assert standalone.check(text).problems == []
    spoiled(monkeypatch, "SigmoidBackward0", by)
    assert trace_program(text).disagreements
    assert standalone.check(text).problems


def test_a_thousandth_is_found_in_a_large_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + (
        "x = torch.linspace(-2, 3, 512 * 512).reshape(512, 512).requires_grad_()\n"
        "(x.sigmoid() + x * 0).sum().backward()\n"
    )
    assert trace_program(text, value_limit=512 * 512).disagreements == ()
    spoiled(monkeypatch, "SigmoidBackward0", 1.001)
    assert trace_program(text, value_limit=512 * 512).disagreements


def test_what_cancels_is_rounding() -> None:
    """Sums of large numbers of which nothing is left but what each engine lost on the way."""
    for way in (
        "y = F.layer_norm(x * 1e3 + 1e4, x.shape[1:])",
        "y = (x * 1e4 - w * 1e4).sum(0) * torch.ones({shape})",
        "y = torch.linalg.cross(x[:, :3] if x.shape[1] > 3 else x.repeat(1, 2)[:, :3], torch.ones(len(x), 3))",
    ):
        for size in SIZES:
            text = program(way, size, "its own").format(shape=SIZES[size][1])
            assert trace_program(text).disagreements == ()
            assert standalone.check(text).problems == []


@pytest.mark.parametrize("keep", ["create_graph=True", ""])
@pytest.mark.parametrize(("shape", "dim", "loss"), [("60, 1", 1, "z @ w"), ("1, 60", 0, "w.T @ z")])
def test_the_rest_of_a_shared_memory_has_its_own_rounding(keep: str, shape: str, dim: int, loss: str) -> None:
    """The gradient of one part of a cat is a view of the whole: in the memory beside it
    another part's gradient cancels.
    """
    text = f"""{HEAD}v = (torch.arange(64.) * 37).sin() * 100
w = torch.stack([v.cos(), v - v.mean()])
x, t = torch.rand({shape}, requires_grad=True), torch.rand({shape}, requires_grad=True)
z = torch.cat([x, t], {dim})
g, = torch.autograd.grad(({loss}).sum(), x, {keep})
"""
    assert trace_program(text).disagreements == ()


CERTAIN = """
import torch
import torch.nn.functional as F

torch.manual_seed(0)
words = torch.nn.Embedding(20, 24)
target = torch.randint(20, (64,))
with torch.no_grad():
    words.weight.copy_(F.normalize(torch.randn(20, 24), dim=1) * 4.4)
h = words.weight.detach()[target].clone().requires_grad_()
for number in range(10):
    words.zero_grad()
    h.grad = None
    F.cross_entropy(h @ words.weight.T * (1 + 0.01 * number), target).backward()
"""


def test_a_cross_entropy_near_zero_is_no_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log-probabilities are differences of large numbers, of which torch's own are not seen."""
    assert trace_program(CERTAIN).disagreements == ()
    spoiled(monkeypatch, "LogSoftmaxBackward0", 1.5)
    assert trace_program(CERTAIN).disagreements


def test_a_few_of_very_many_elements_may_differ_by_chance() -> None:
    modelled = np.linspace(-1, 1, 4096).astype(np.float32)
    allowed = np.full(4096, 1e-6)
    allowed[7] = 1e-8
    few, many, scaled, far = (modelled.copy() for _ in range(4))
    few[7] += 2e-6 * abs(modelled[7]) + 4e-7
    many[:80] += 1e-4
    scaled *= 1.001
    far[7] += 1e-3
    assert [_is_rounding(each, modelled, "float32", allowed) for each in (few, many, scaled, far)] == [
        True, False, False, False,
    ]  # fmt: skip
