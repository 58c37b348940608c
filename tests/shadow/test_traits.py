"""What the traits of an entry say about torch: measured on its samples."""

from __future__ import annotations

import re
from typing import Any

from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.ops.operands import definitions
from tests.shadow.side_by_side import attempt, is_tensor, world

WITHOUT_GRAD = re.compile(r", requires_grad=True|\.requires_grad_\(\)")


def versions(kind: str, sample: str) -> list[Any]:
    """The version of each result of a sample on inference tensors, outside inference_mode; None for
    an error or a declined call.
    """
    names = world(kind)
    with names["torch"].inference_mode():
        exec(WITHOUT_GRAD.sub("", definitions(sample)), names)
    result = attempt(names, sample)
    results = result if isinstance(result, tuple | list) else [result]
    return [None if not is_tensor(each) else "inference" if each.is_inference() else each._version for each in results]


def test_the_results_of_fresh_operations_of_inference_tensors_have_the_version_of_new_tensors() -> None:
    entries = {id(entry): entry for entry in ENTRIES.values() if "fresh" in entry.traits}.values()
    found = {
        sample: (versions("torch", sample), versions("shadow", sample)) for entry in entries for sample in entry.samples
    }
    different = {sample for sample, (real, modelled) in found.items() if real != modelled}
    assert different == {"a ** 0", "torch.pow(2, a)"}  # torch fills or copies for these: declined
    assert sum(type(version) is int for real, _ in found.values() for version in real) > 100
