"""A backward through a graph that was made before the recording: what torch refused is read from the live graph."""

from __future__ import annotations

import pytest
import torch

from pitfall_lab.rules import find
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program

FORWARD = "import torch\nx = torch.ones(3)\nw = torch.ones(3, 3, requires_grad=True)\nloss = ((x @ w) ** 2).mean()"


def after(before: str, cell: str) -> tuple[Trace, dict[str, object]]:
    names: dict[str, object] = {"__name__": "__main__"}
    exec(before, names)
    return trace_program(cell, "In [5]", names), names


@pytest.mark.parametrize("lead", ["", "y = loss * 2\n"], ids=["met by backward", "met before"])
def test_the_write_the_node_and_both_versions_are_told(lead: str) -> None:
    trace, names = after(FORWARD, f"{lead}x.add_(1)\nloss.backward()")
    failure = trace.outcome.failure
    assert failure is not None
    assert (failure.kind, failure.saved, failure.expected, failure.found, failure.earlier) == (
        "saved-tensor-modified",
        "self",
        0,
        1,
        True,
    )
    [finding] = find(trace)
    write = 1 + lead.count("\n")
    assert finding.rule == "PL101"
    assert finding.message.en.startswith(
        f"Line {write} overwrites `x`, but the backward pass on line {write + 1} goes through a graph"
    )
    assert "`MmBackward0` computes its gradient from `x`" in finding.explanation.en
    assert "version 0" in finding.explanation.en
    assert "could not be located" not in finding.message.en + finding.explanation.en
    assert [related.role for related in finding.related] == ["changed", "backward"]
    assert Trace.from_json(trace.to_json()) == trace
    assert names["x"]._version == 1  # type: ignore[attr-defined]


def test_a_write_that_was_not_recorded_either_has_its_versions() -> None:
    trace, _ = after(f"{FORWARD}\nx.add_(1)", "loss.backward()")
    [finding] = find(trace)
    assert "at version 0" in finding.explanation.en
    assert "its version is 1 now" in finding.explanation.en


def test_other_errors_stay_what_they_are() -> None:
    trace, _ = after(f"{FORWARD}\nloss.backward()", "loss.backward()")
    assert trace.outcome.failure is not None
    assert not trace.outcome.failure.earlier
    assert torch.is_grad_enabled()
