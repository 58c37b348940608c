"""Where a call stands in the program that is recorded."""

from __future__ import annotations

from pitfall_lab import record
from pitfall_lab.trace import Trace

PROGRAM = """import torch
class Doubled(torch.nn.Module):
    def forward(self, x):
        return x * 2
def run():
    return Doubled()(torch.ones(2))
run()
"""


def recorded_in_functions(text: str) -> Trace:
    def inner() -> Trace:
        return record(text)

    return inner()


def test_functions_that_run_the_program_are_none_of_its_own() -> None:
    (product,) = [event for event in recorded_in_functions(PROGRAM).events if event.op.endswith(".mul")]
    assert product.scope == ("run", "Doubled.forward")
    assert {event.scope for event in recorded_in_functions("import torch\ntorch.ones(2) * 2\n").events} == {()}
