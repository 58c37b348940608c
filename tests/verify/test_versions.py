"""A version that moved without a prediction is a disagreement, also of a tensor that the call did not name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.storage import Counter
from pitfall_lab.verify import trace_program
from pitfall_lab.verify.fastpath import plans
from tests.fuzz import lockstep

HEAD = "import torch\n"
WRITTEN = HEAD + "x = torch.ones(3, requires_grad=True)\ny = x.exp(); d = y.detach(); d.add_(1)\n"


@pytest.fixture
def own_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shadow whose detached tensors have a counter of their own."""
    known = ENTRIES["torch.Tensor.detach"]

    def run(*args: Any) -> Any:
        made = known.run(*args)
        made.counter = Counter(made.version)
        return made

    for name in known.names:
        monkeypatch.setitem(ENTRIES, name, replace(known, run=run))
    monkeypatch.setattr(plans, "_SHARED", {})  # what this shadow does is not what another recording should follow
    monkeypatch.setattr(plans, "SHARED", plans.SharedPlans())


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("end", ["", "y.sum().backward()\n", "z = y * 2\n"])
@pytest.mark.usefixtures("own_counter")
def test_a_counter_that_others_share_is_compared(end: str, values: bool) -> None:
    trace = trace_program(WRITTEN + end, values=values)
    assert [(d.path, d.observed, d.modelled) for d in trace.disagreements][:1] == [("tensors.t2.version", 1, 0)]
    assert trace.agreement.disagreed


@pytest.mark.usefixtures("own_counter")
def test_calls_that_follow_a_plan_are_compared_as_well() -> None:
    loop = "for _ in range(6):\n    y = torch.ones(3) * 2\n    d = y.detach()\n    d.add_(1)\n"
    for values in (True, False):
        trace = trace_program(HEAD + loop, values=values)
        assert sum(d.path.endswith(".version") for d in trace.disagreements) == 6


@pytest.mark.usefixtures("own_counter")
def test_random_programs_say_so() -> None:
    assert "version" in lockstep.check(WRITTEN).problems[0]


@pytest.mark.parametrize("values", [True, False])
def test_what_the_shadow_predicts_is_no_difference(values: bool) -> None:
    end = (
        "v = y.view(3); v.mul_(2); a = y.detach().numpy(); a += 1\nwith torch.no_grad():\n    x += 1\nx.data.add_(1)\n"
    )
    trace = trace_program(WRITTEN + end, values=values)
    assert trace.disagreements == ()
