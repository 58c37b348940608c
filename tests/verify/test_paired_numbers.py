"""What a table of all pairs became, and what was meant, computed by a recording for batches of any size."""

from __future__ import annotations

import pytest
import torch

from pitfall_lab.trace import Trace
from pitfall_lab.verify.program import trace_program

START = """import torch
import torch.nn.functional as F
torch.manual_seed(0)
p = torch.randn(64, 3) @ torch.randn(3, 1).requires_grad_()
y = torch.randn(64)
w = torch.rand(64, 1)
"""
NUMBERS = {
    "F.mse_loss(p, y)": "F.mse_loss(p[:, 0], y)",
    "F.huber_loss(y, p, delta=0.3)": "F.huber_loss(y, p[:, 0], delta=0.3)",
    "F.l1_loss(p, y, reduction='sum')": "F.l1_loss(p[:, 0], y, reduction='sum')",
    "0.5 * ((p - y) ** 2).mean()": "0.5 * ((p[:, 0] - y) ** 2).mean()",
    "((y - p).abs() * w).sum()": "((y - p[:, 0]).abs() * w[:, 0]).sum()",
    "-torch.min(p * y, p.clamp(-1, 1) * y).mean()": "-torch.min(p[:, 0] * y, p[:, 0].clamp(-1, 1) * y).mean()",
    "F.mse_loss(*torch.broadcast_tensors(p, y))": "F.mse_loss(p[:, 0], y)",
    "((p > 0).float() == (y > 0).float()).float().mean()": "((p[:, 0] > 0) == (y > 0)).float().mean()",
    "(p.round() == y.round()).sum()": "(p[:, 0].round() == y.round()).sum()",
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.filterwarnings("ignore:Using an input size")
@pytest.mark.parametrize("wrong", NUMBERS)
def test_both_numbers_are_those_of_torch(wrong: str) -> None:
    variables: dict[str, torch.Tensor] = {}
    exec(f"{START}came, meant = {wrong}, {NUMBERS[wrong]}", variables)
    found = trace_program(f"{START}came = {wrong}\n").beside.paired[-1]
    assert found.count == 64
    assert found.came == pytest.approx(variables["came"].item(), rel=1e-5)
    assert found.meant == pytest.approx(variables["meant"].item(), rel=1e-5)
    assert found.came != pytest.approx(found.meant, rel=1e-3)


@pytest.mark.parametrize(
    "others",
    [
        "(p - y).mean(dim=1)",
        "(p - y).softmax(-1).max()",
        "((p - y) * torch.rand(64, 64)).mean()",
        "((p - y).square_() ** 2).sum(0)",
        "F.dropout(p - y).mean()",
    ],
)
def test_no_number_is_guessed_where_pairs_are_not_alike(others: str) -> None:
    assert trace_program(f"{START}came = {others}\n").beside.paired == ()


def test_a_table_that_was_written_is_not_followed() -> None:
    program = START + "d = p.detach() - y\nd.fill_diagonal_(0)\ncame = (d ** 2).mean()\n"
    assert trace_program(program).beside.paired == ()


def test_the_numbers_of_one_line_are_followed_to_its_last_and_no_further() -> None:
    program = START + "part = ((p - y) ** 2).mean() + 1\nwhole = part * 100\n"
    (found,) = trace_program(program).beside.paired
    assert 1 < found.came < 100


def test_a_loop_is_looked_at_twice_and_draws_the_same_random_numbers() -> None:
    program = (
        START + "for _ in range(5):\n    loss = ((p - torch.randn(64)) ** 2).mean()\nlast = torch.rand(1).item()\n"
    )
    variables: dict[str, float] = {}
    exec(program, variables)
    trace = trace_program(program + f"assert last == {variables['last']}\n")
    assert trace.outcome.kind == "finished"
    assert len(trace.beside.paired) == 2
    assert Trace.from_json(trace.to_json()).beside == trace.beside
