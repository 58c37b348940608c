"""What a trace says of tensors that were there before it began: those of earlier cells, weights, arrays."""

import re

import numpy as np
import pytest
import torch

from pitfall_lab.trace.text import sentences
from pitfall_lab.verify import Session

BEFORE = {
    "x": torch.tensor([[1.0], [1.0], [1.0], [5.0]]),
    "part": torch.arange(6.0)[2:],
    "array": np.ones(3),
    "leaf": torch.ones(2, requires_grad=True),
    "kept": [torch.ones(2, 3)],
}
CALLS = (
    "x[:3]",
    "x[[0, 1]]",
    "x.t()",
    "x * 1",
    "part[1:]",
    "part.clone()",
    "torch.from_numpy(array)",
    "torch.as_tensor(array)",
    "torch.tensor(array)",
    "leaf.detach()",
    "leaf.data",
    "kept[0].view(6)",
    "kept[0].t().reshape(6)",
    "x.chunk(2)[1]",
    "x.contiguous()",
    "kept[0].t().contiguous()",
    "leaf.to(torch.float32)",
)


def told(source: str, names: dict[str, object]) -> list[str]:
    """The sentences of a program that finds the given names, as a cell of a notebook does."""
    code = compile(source, "<cell>", "exec")
    with Session("<cell>", "In [2]", source) as session:
        exec(code, names)
    return [text.en for _, text in sentences(session.finish(None))]


@pytest.mark.parametrize("call", CALLS)
def test_memory_is_called_new_exactly_where_torch_made_it(call: str) -> None:
    names = {"torch": torch, **BEFORE}
    (line, *_) = [line for line in told(f"result = {call}\n", names) if "result" in line or "chunk" in line]
    result = names["result"]
    held = [value if isinstance(value, torch.Tensor) else torch.from_numpy(value) for value in _flat(BEFORE)]
    shares = any(one.untyped_storage().data_ptr() == result.untyped_storage().data_ptr() for one in held)
    same = any(one is result for one in held)
    assert ("in new storage" in line) == (not shares)
    assert ("over the existing storage" in line) == (shares and not same)
    assert ("itself" in line) == same


def _flat(names: dict[str, object]) -> list[object]:
    return [one for value in names.values() for one in (value if isinstance(value, list) else [value])]


def test_a_node_of_an_earlier_cell_does_not_enter_the_graph_again() -> None:
    w = torch.ones(2, requires_grad=True)
    h = (w * 2).exp()
    lines = told("y = h * 3\nh.mul_(2)\n", {"h": h})
    assert [re.findall(r"\((\w+Backward\d)\),? enters", line) for line in lines] == [["MulBackward0"], ["MulBackward0"]]
    assert [re.findall(r"\((\w+Backward\d)\),? enters", line) for line in told("h.add_(1)\n", {"h": w * 2})] == [
        ["AddBackward0"]
    ]


def test_a_view_of_a_tensor_of_an_earlier_cell_shares_its_counter_and_an_array_has_none() -> None:
    x, array = torch.zeros(4), np.zeros(3)
    lines = told("v = x[:3]\nd = x.data\na = torch.from_numpy(array)\n", {"torch": torch, "x": x, "array": array})
    assert "It shares counter" in lines[0]
    assert "writes through one do not show on the other's counter" in lines[1]
    assert "which a write through the array does not move" in lines[2]
    v = x[:3]
    version = v._version
    x.add_(1)
    assert v._version == version + 1
