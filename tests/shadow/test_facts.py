"""Every fact in :mod:`tests.shadow.facts` holds on the running torch, and the shadow agrees."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pitfall_lab.observe.release import RUNNING
from pitfall_lab.shadow import facade as shadow_torch
from pitfall_lab.verify import trace_program
from tests.shadow.fact_list import LIST, SURPRISES
from tests.shadow.facts import FACTS, ONLY_IN_LOCKSTEP


def helpers(t: Any) -> dict[str, Any]:
    """The names that a fact's program may use, for torch or for the shadow."""

    def raises(run: Callable[[], Any], text: str = "") -> str:
        try:
            run()
        except (RuntimeError, IndexError, ValueError) as error:
            if t is shadow_torch and isinstance(error, NotImplementedError) and not hasattr(error, "shadow"):
                raise  # the shadow does not know
            found = str(error)
        else:
            found = "nothing was raised"
        assert text in found
        assert found != "nothing was raised"
        return found

    def warned(run: Callable[[], Any]) -> list[str]:
        before = torch.is_warn_always_enabled()
        torch.set_warn_always(True)  # some of torch's warnings come only once in a process
        try:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                run()
        finally:
            torch.set_warn_always(before)
        return [str(w.message) for w in found]

    def short(node: Any) -> str | None:
        return None if node is None else node.name().split("::")[-1]

    def bumps(change: Callable[[Any], Any], tensor: Any = None) -> int:
        tensor = t.ones(4) if tensor is None else tensor
        before = tensor._version
        change(tensor)
        return tensor._version - before

    return {
        "torch": t,
        "F": t.nn.functional,
        "nn": t.nn,
        "np": np,
        "raises": raises,
        "warned": warned,
        "bumps": bumps,
        "since": lambda *release: release <= RUNNING,
        "leaf": lambda *shape: t.ones(*shape, requires_grad=True),
        "name": lambda x: short(x.grad_fn),
        "nexts": lambda x: [short(n) for n, _ in x.grad_fn.next_functions],
        "close": lambda x, values: np.testing.assert_allclose(
            np.array(x.tolist()), np.array(values, dtype=float), rtol=1e-4
        ),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fact", FACTS)
def test_the_fact_holds_on_the_running_torch(fact: str) -> None:
    exec(compile(FACTS[fact], fact, "exec"), helpers(torch))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fact", [fact for fact in FACTS if fact not in ONLY_IN_LOCKSTEP])
def test_the_fact_holds_on_the_shadow_alone(fact: str) -> None:
    shadow_torch.reset(release=RUNNING).strict = True
    exec(compile(FACTS[fact], fact, "exec"), helpers(shadow_torch))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fact", FACTS)
def test_the_two_engines_agree_while_the_fact_is_shown(fact: str) -> None:
    trace = trace_program(FACTS[fact], fact, {**helpers(torch), "__name__": "__main__"})
    assert trace.disagreements == ()
    assert trace.notes == ()
    assert trace.outcome.kind == "finished", trace.outcome


def test_no_fact_is_without_a_program() -> None:
    facts = {line[:3] for line in LIST}
    assert len(facts) == len(LIST) == 112
    assert {fact[:3] for fact in FACTS} | {"T01"} == facts  # T01 is a table with a test of its own
    assert set(ONLY_IN_LOCKSTEP) <= set(FACTS)


def test_every_surprise_is_among_the_facts() -> None:
    assert len(SURPRISES) == 18
    assert {fact for surprise in SURPRISES for fact in surprise.split()} <= {line[:3] for line in LIST}
