"""PL805 on devices: the meta device, which every machine has, and a GPU as a trace made by hand tells of one."""

from __future__ import annotations

import dataclasses

from pitfall_lab.check import Subject, Workshop, tried
from pitfall_lab.rules import find
from pitfall_lab.trace import Effect, Event, Failure, Operand, Outcome, Source, Trace
from tests.rules.build import line, tensor

META = """\
import torch
from torch import nn

with torch.device("meta"):
    head = nn.Linear(3, 1)
body = nn.Linear(4, 3)
out = head(body(torch.randn(2, 4)))
"""
MOVED = "import torch\nw = torch.ones(3, device='cuda', requires_grad=True)\nx = torch.ones(3)\ny = w * x\n"


def refused(device: str, shape: list[int]) -> Trace:
    """The trace of ``MOVED``: the product of what is on ``device`` and what is on the CPU raises."""
    pieces = (2, "torch.ones(3, device='cuda', requires_grad=True)"), (3, "torch.ones(3)")
    places = [line(MOVED, number, piece) for number, piece in pieces]
    failure = Failure("RuntimeError", "anything at all", "other", 2, line(MOVED, 4, "w * x"))
    made = [tensor(0, "w", [3], device=device, requires_grad=True), tensor(1, "x", shape, "S2", "C2")]
    events = [
        Event(
            step,
            "call",
            "torch.ones",
            span=span,
            results=(f"t{step + 1}",),
            effects=(Effect(f"tensors.t{step + 1}", record),),
        )
        for step, (span, record) in enumerate(zip(places, made, strict=True))
    ]
    operands = (Operand("t1", name="self"), Operand("t2", name="other"))
    events.append(Event(2, "call", "torch.Tensor.mul", span=failure.span, operands=operands, error=failure))
    return Trace((Source("program.py", MOVED),), tuple(events), outcome=Outcome("raised", failure))


def test_what_is_on_the_device_without_numbers_is_told_apart(shop: Workshop) -> None:
    subject = Subject(META, "program.py")
    (finding,) = tried(shop, subject, shop.trace(subject))
    assert (finding.rule, finding.severity, finding.span and finding.span.line) == ("PL805", "error", 7)
    assert "`head.weight`, which is on the device `meta`" in finding.message.en
    assert "to_empty" in finding.explanation.en
    assert {r.span.line for r in finding.related if r.role == "made" and r.span} == {5, 7}
    assert finding.fixes == ()


def test_data_go_to_the_device_of_the_parameter() -> None:
    (finding,) = find(refused("cuda:0", [3]))
    assert finding.message.en.startswith("Line 4 combines `x`, which is on the device `cpu`, with `w` on `cuda:0`")
    assert "`cuda:0`" in finding.message.zh
    assert [r.span and r.span.line for r in finding.related] == [3, 2, 4]
    assert finding.fixes[0].edits[0].text == 'y = w * x.to("cuda:0")\n'


def test_one_device_or_a_single_number_is_no_mismatch() -> None:
    trace = refused("cuda:0", [3])
    assert [finding.rule for finding in find(refused("cpu", [3]))] == ["PLE90"]
    assert [f.rule for f in find(refused("cuda:0", []))] == [
        "PLE90"
    ]  # a number on the CPU meets every device: the reason is another one
    assert find(dataclasses.replace(trace, events=trace.events[:2], outcome=Outcome("finished", None))) == []
