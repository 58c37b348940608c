"""PL806: small whole numbers that leave their range, and are read as quantities afterwards."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """
import torch
a = torch.tensor([[3, 200], [90, 10]], dtype=torch.uint8)
b = torch.tensor([[5, 190], [95, 10]], dtype=torch.uint8)
short = torch.tensor([300, -20, 5], dtype=torch.int16)
wide = torch.tensor([[3, 200], [90, 10]])
"""
WRONG = {
    "a difference": "print(((a - b).float() ** 2).mean())",
    "the mean of a difference": "print((a - b).mean(dtype=torch.float32))",
    "a sum": "print(((a + b) / 2).mean())",
    "a number added": "print((a + 100).float().mean())",
    "an offset": "print((a - 128) / 128.0)",
    "a product of int16": "print((short * short).double().mean())",
    "the absolute difference": "print((a - b).abs().float().mean())",
    "torch.sub": "print(torch.sub(a, b).to(torch.float32).norm())",
    "summed by a wider type, then ranked": "print((a * b).sum(dim=1).argmax())",
    "summed, then scaled": "print((a * b).sum(dim=1) * 0.5)",
    "places of a table": "print(torch.bincount((a * 3 + b.long()).flatten(), minlength=900)[600:].sum())",
    "places by an index": "print(torch.arange(600)[(a * 3).long()].max())",
    "a product of matrices": "print((a @ b).float().mean())",
    "many rows times a vector": "q = torch.full((500, 9), 20, dtype=torch.int8)\nprint(q.mv(q[0]).float().mean())",
    "in a function": "def mae(p, q):\n    return (p - q).abs().float().mean()\nprint(mae(a, b))",
}
RIGHT = {
    "a product in a wider type": "print((a.int() @ b.int()).float().mean())",
    "a product that stays in the range": "q = torch.ones(500, 9, dtype=torch.int8)\nprint((q @ q.t()).float().mean())",
    "converted first": "print((a.float() - b.float()).abs().mean())",
    "one converted": "print((a.int() - b).float().mean())",
    "in range": "print((b - b.clamp(max=5)).float().mean())",
    "wide numbers": "print((wide - 250).float().mean())",
    "a checksum": "total = a[0, 0] * 31 + a[0, 1]\nprint(int(total) & 255)",
    "the sum of checksums": "print(int((a * 31 + b).sum()) % 1000)",
    "summed by its bits": "print((a * 31).sum() & 255)",
    "converted, then summed": "print((a.int() * b).sum(dim=1).argmax())",
    "a part of codes": "print(torch.arange(4)[((a * 31) & 3).long()], (a * 31)[0])",
    "bits": "print((a ^ b).float().mean(), (a & 7).float().mean())",
    "never a quantity": "c = a - b\nprint(c == 254)",
    "a mask": "print(((a - b) > 0).float().mean() if False else (a > b).float().mean())",
    "floats": "print((a.float() - 300).mean())",
}


def rules(body: str) -> list[str]:
    return [finding.rule for finding in find(trace_program(HEAD + body + "\n"))]


@pytest.mark.parametrize("body", WRONG.values(), ids=list(WRONG))
def test_what_leaves_its_range_is_found_once(body: str) -> None:
    assert rules(body).count("PL806") == 1


@pytest.mark.parametrize("body", RIGHT.values(), ids=list(RIGHT))
def test_what_stays_in_it_or_is_meant_to_wrap_is_quiet(body: str) -> None:
    assert "PL806" not in rules(body)
