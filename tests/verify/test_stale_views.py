"""A view whose base has got a history since passes for a leaf until somebody asks it: the recorder does not ask, so
torch does what it does alone.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch

from pitfall_lab.check import check
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program

HEAD = """import copy
import torch
w = torch.tensor([1.0, 2.0], requires_grad=True)
d = torch.ones(2, 2)
s = d.t()
s[0] = w[0]
"""
REFUSED = "a leaf Variable that requires grad is being used in an in-place operation."
LEAVES_IT_STALE = {
    "nothing": "pass",
    "a look at its shape": "s.shape, s.stride(), s._version, s.requires_grad",
    "its numbers": "s.tolist()",
    "its gradient": "s.grad",
    "another name": "u = s",
    "no_grad": "with torch.no_grad():\n    u = s + 1",
    "detach": "u = s.detach()",
    "a call without a model": "u = torch.special.modified_bessel_i0(s.detach()); torch.is_same_size(s, s)",
    "a refused write": "try:\n    s.zero_()\nexcept RuntimeError:\n    pass",
    "a backward through its base": "d.sum().backward(retain_graph=True)",
}
REGENERATES_IT = {
    "grad_fn": "s.grad_fn", "is_leaf": "s.is_leaf", "print": "str(s)", "format": "f'{s}'", "an operation": "u = s * 2",
    "a view of it": "u = s[1]", "another write through it": "s[1] = w[1]\ns.grad_fn", "backward": "s.sum().backward()",
    "deepcopy": "try:\n    copy.deepcopy(s)\nexcept RuntimeError:\n    pass",
    "a call without a model": "u = torch.special.modified_bessel_i0(s.detach()) + s",
    "an optimizer": "try:\n    torch.optim.SGD([s], lr=0.1)\nexcept ValueError:\n    pass",
}  # fmt: skip


def both(body: str) -> tuple[str, str, Trace, dict[str, Any]]:
    """The error that a program ends with alone, and recorded; its trace and its names."""
    try:
        exec(HEAD + body, {"__name__": "__main__"})
    except RuntimeError as error:
        alone = str(error)
    else:
        alone = ""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        trace = trace_program(HEAD + body, "program.py", names)
    failure = trace.outcome.failure
    return alone, failure.message if failure is not None else "", trace, names


@pytest.mark.parametrize("title", LEAVES_IT_STALE)
def test_who_only_looks_is_refused_recorded_as_alone(title: str) -> None:
    alone, recorded, trace, _ = both(LEAVES_IT_STALE[title] + "\ns.add_(1)\n")
    assert alone == recorded == REFUSED
    assert trace.disagreements == ()
    assert trace.outcome.failure is not None
    assert trace.outcome.failure.kind == "leaf-modified"  # named before torch raised it


@pytest.mark.parametrize("title", REGENERATES_IT)
def test_who_asks_may_write_recorded_as_alone(title: str) -> None:
    alone, recorded, trace, names = both(REGENERATES_IT[title] + "\ns.add_(1)\nnode = s.grad_fn.name()\n")
    assert (alone, recorded, trace.disagreements) == ("", "", ())
    assert names["node"] == "AsStridedBackward0"


def test_the_finding_does_not_call_it_a_leaf_and_its_fix_runs() -> None:
    """Torch's own words do."""
    (finding,) = check(HEAD + "s.add_(1)\nassert s.sum() == 8\n")
    assert finding.rule == "PL201"
    assert "`s` is a leaf" not in finding.explanation.en
    assert "a view of `d`" in finding.message.en
    assert [related.span.line for related in finding.related if related.span] == [5, 6, 7]
    (fix,) = finding.fixes
    assert fix.verified
    assert fix.edits[0].text.splitlines()[0] == "s = d.t()"


def test_a_hook_that_would_crash_torch_does_not_and_the_trace_says_so() -> None:
    names: dict[str, Any] = {}
    trace = trace_program(HEAD + "s.register_hook(lambda g: g * 2)\ns.sum().backward()\n", "program.py", names)
    assert [note.kind for note in trace.notes] == ["limit"]
    assert "crashes" in trace.notes[0].en
    assert "崩溃" in trace.notes[0].zh
    assert trace.disagreements == ()
    assert torch.equal(names["w"].grad, torch.tensor([4.0, 0.0]))
