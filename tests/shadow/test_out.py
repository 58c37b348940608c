"""``out=`` does on the shadow what it does on torch, for every function that has a sample of its own."""

from __future__ import annotations

import re

import pytest

from pitfall_lab.shadow.ops import ENTRIES
from tests.shadow.side_by_side import attempt, compare_results, compare_worlds, world

CALLS = sorted(
    {
        s
        for entry in ENTRIES.values()
        for s in entry.samples
        if re.fullmatch(r"torch\.\w+\([^()]*(\([^()]*\)[^()]*)*\)", s)
    }
)


def run(kind: str, call: str, out: str, *, grad: bool):
    names = world(kind, call)
    with names["torch"].set_grad_enabled(grad):
        names["o"] = attempt(names, out)
        return names, attempt(names, f"{call[:-1]}, out=o)")


def takes_out(call: str) -> bool:
    return not isinstance(run("torch", call, "torch.empty(0)", grad=False)[1], TypeError)


@pytest.mark.parametrize("call", CALLS)
def test_a_result_is_written_into_empty_memory_and_into_memory_of_its_shape(call: str):
    if not takes_out(call):
        return  # torch has no out= here: nothing to compare
    plain = attempt(world("torch", call), call)
    if isinstance(plain, tuple):
        return
    for out in ("torch.empty(0)", f"torch.ones_like({call})"):
        one, x = run("torch", call, out, grad=False)
        two, y = run("shadow", call, out, grad=False)
        if isinstance(y, NotImplementedError):
            continue
        compare_results(x, y, f"{call}, out={out}")
        compare_worlds(one, two, f"{call}, out={out}")


@pytest.mark.parametrize("call", CALLS)
def test_out_of_an_operation_that_autograd_records_is_refused_in_torchs_words(call: str):
    if not takes_out(call):
        return
    _, x = run("torch", call, "torch.empty(0)", grad=True)
    _, y = run("shadow", call, "torch.empty(0)", grad=True)
    if not isinstance(y, NotImplementedError):
        compare_results(x, y, call)


def test_most_functions_with_out_are_modelled():
    done = [
        call
        for call in CALLS
        if not isinstance(run("shadow", call, "torch.empty(0)", grad=False)[1], Exception) and takes_out(call)
    ]
    assert len(done) >= 60
