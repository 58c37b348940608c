"""What entries say of operations, as rules read it by name; measured on torch."""

from __future__ import annotations

import json
import re

import pytest
import torch

from pitfall_lab.shadow.entry_facts import facts
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.ops.operands import definitions
from pitfall_lab.trace.operation_facts import TABLE, operations_that, spellings
from tests.shadow.side_by_side import attempt, is_tensor, world

SPELLED = facts()["spelled"]
GIVEN = {
    "bitwise": (torch.tensor([1, 6, 3]), torch.tensor([3, 1, 2])),
    "": (torch.tensor([[0.25, 0.5], [0.75, 1.0]]), torch.tensor([[0.5, 0.25], [0.5, 2.0]])),
}
"""Operands by the beginning of an operation's name: inside the domain of all functions."""


def value(name: str, operands: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
    """The result of a method of a tensor, or of a function, on copies of some operands; None if torch has neither or
    it takes other arguments.
    """
    function = getattr(torch.Tensor, name, None) or getattr(torch, name, None)
    try:
        result = None if function is None else function(*(each.clone() for each in operands))
    except (TypeError, RuntimeError):
        return None
    return result if isinstance(result, torch.Tensor) else None


def test_the_table_is_what_the_entries_say() -> None:
    assert json.loads(TABLE.read_text(encoding="utf-8")) == facts(), "python -m pitfall_lab.shadow.entry_facts"


def test_the_names_of_one_operation_compute_the_same() -> None:
    compared: dict[str, int] = {}
    for operation, found in SPELLED.items():
        operands = GIVEN["bitwise" if operation.startswith("bitwise") else ""]
        for count in (1, 2):
            given = operands[:count]
            meant = value(operation, given)
            if meant is None:
                continue
            results = {name: value(name, given) for name in (*found["same"], *found["in_place"])}
            results |= {f"{name} (exchanged)": value(name, given[::-1]) for name in found["exchanged"]}
            for name, result in results.items():
                if result is not None and (result.dtype == meant.dtype or name not in found["in_place"]):
                    assert torch.allclose(result, meant, 0, 0, equal_nan=True), (
                        f"{name} is no other name of {operation}"
                    )
                    compared[operation] = compared.get(operation, 0) + 1
    assert len(compared) > 80
    assert min(compared["mul"], compared["sub"], compared["div"]) >= 6


def test_each_element_of_an_elementwise_result_depends_on_one_element_of_each_operand() -> None:
    entries = {id(entry): entry for entry in ENTRIES.values() if "elementwise" in entry.traits}.values()
    looked = 0
    for entry in entries:
        for sample in entry.samples:
            names = world("torch")
            exec(definitions(sample), names)
            result = attempt(names, sample)
            if not is_tensor(result) or not result.numel() or not result.is_floating_point():
                continue
            if result.grad_fn is None or "NotImplemented" in result.grad_fn.name():
                continue
            leaves = [x for x in (names.get(k) for k in "abcw") if is_tensor(x) and x.is_leaf and x.requires_grad]
            first = (0,) * result.ndim
            try:
                gradients = torch.autograd.grad(result[first], leaves, allow_unused=True)
            except NotImplementedError:  # torch has no derivative of this in-place variant: nothing was looked at
                assert re.search(r"[a-z0-9]_\(", sample), sample
                continue
            for gradient in gradients:
                finite = gradient is None or bool(gradient.isfinite().all())  # outside the domain 0 * inf is NaN
                assert gradient is None or not finite or int(gradient.count_nonzero()) <= 1, sample
            looked += 1
    assert looked > 150


def test_names_of_methods_are_given_with_and_without_their_underscores() -> None:
    assert spellings("mul") == {"mul", "multiply", "__mul__", "__rmul__", "rmul"}
    assert {"mul_", "multiply_", "__imul__", "imul"} == spellings("mul", in_place=True) - spellings("mul")
    assert spellings("sub", exchanged=True) - spellings("sub") == {"__rsub__", "rsub"}


def test_an_operation_that_no_entry_has_is_refused() -> None:
    with pytest.raises(KeyError, match="sum"):
        spellings("sum")
    with pytest.raises(KeyError, match="fast"):
        operations_that("fast")
