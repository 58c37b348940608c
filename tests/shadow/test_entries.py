"""One differential test per sample of every entry: shadow against the running torch."""

from __future__ import annotations

from typing import Any

import pytest

from pitfall_lab.shadow.ops import ENTRIES
from tests.shadow.side_by_side import attempt, compare_results, compare_worlds, flatten, is_tensor, world

SAMPLES = sorted({(entry.names[0], sample) for entry in ENTRIES.values() for sample in entry.samples})


def shares(result: Any, names: dict[str, Any]) -> list[str]:
    """Which operands a result shares memory with."""
    pointer = result.untyped_storage().data_ptr()
    return [k for k, t in names.items() if is_tensor(t) and t.untyped_storage().data_ptr() == pointer]


def identical(result: Any, names: dict[str, Any]) -> list[str]:
    """Which operands a result is."""
    return [k for k, t in names.items() if t is result]


@pytest.mark.parametrize(("name", "sample"), SAMPLES, ids=[f"{n.split('.', 1)[1]}: {s}" for n, s in SAMPLES])
def test_the_entry_does_what_torch_does(name: str, sample: str) -> None:
    real, shadow = world("torch", sample), world("shadow", sample)
    x, y = attempt(real, sample), attempt(shadow, sample)
    compare_results(x, y, sample)
    compare_worlds(real, shadow, sample)
    if isinstance(x, Exception):
        return
    tensors = [(u, v) for u, v in zip(flatten(x), flatten(y), strict=True) if is_tensor(u)]
    for u, v in tensors:
        assert shares(u, real) == shares(v, shadow), "other memory"
        assert identical(u, real) == identical(v, shadow), "other object"
    total = "sum((t * t).sum() if t.dtype.is_floating_point and t.requires_grad else 0 for t in results)"
    real["results"], shadow["results"] = [u for u, _ in tensors], [v for _, v in tensors]
    loss, twin = attempt(real, total), attempt(shadow, total)
    if is_tensor(loss):
        real["loss"], shadow["loss"] = loss, twin
        compare_results(attempt(real, "loss.backward()"), attempt(shadow, "loss.backward()"), f"backward of {sample}")
        del real["loss"], shadow["loss"], real["results"], shadow["results"]
        compare_worlds({k: v for k, v in real.items() if k != "h"}, shadow, f"after backward of {sample}")


#: Entries without samples, by what their names begin with, and why.
WITHOUT_SAMPLES = {
    "torch._foreach_ torch._fused_ torch._amp_": "lists of tensors: test_optimizers.py",
    "torch.nn.init. torch.Tensor.normal_ torch.Tensor.uniform_ torch.rand": "random numbers",
    "torch.Tensor.cauchy_ torch.Tensor.exponential_ torch.Tensor.log_normal_ torch.Tensor.geometric_": "random numbers",
    "torch.Tensor.random_ torch.Tensor.bernoulli_ torch.bernoulli torch.normal torch.multinomial torch.poisson": "random numbers",  # noqa: E501
    "torch.dropout torch.alpha_dropout torch.feature_": "random masks",
    "torch.empty torch.Tensor.new_empty": "numbers that nobody may rely on",
    "torch.Tensor.backward torch.autograd. torch.Tensor.retain_grad torch.Tensor.register_ torch.Tensor.grad.": "facts F, A, K",  # noqa: E501
    "torch.Tensor.data. torch.Tensor.requires_grad torch.Tensor.detach_": "facts V, H and A",
    "torch.nn.parameter. torch.Tensor.share_memory_": "facts V and B",
    "torch.from_numpy torch.Tensor.numpy": "NumPy: facts V04, P01 and P02",
    "torch.Tensor.__ torch.equal torch.allclose": "they give plain values: every program that decides by one",
    "torch.nn.functional.max_pool torch.nn.functional.adaptive_max_pool torch._C._nn.": "the inner halves of entries with samples",  # noqa: E501
    "torch.Tensor.nextafter_ torch.Tensor.gcd_ torch.Tensor.lcm_ torch.Tensor.bitwise_": "in-place twins of entries with samples",  # noqa: E501
}


@pytest.mark.parametrize("name", sorted({entry.names[0] for entry in ENTRIES.values() if not entry.samples}))
def test_an_entry_has_samples_or_a_reason_to_have_none(name: str) -> None:
    assert name.startswith(tuple(prefix for prefixes in WITHOUT_SAMPLES for prefix in prefixes.split()))
