"""Draws the pictures of docs/compare.md anew: ``python -m tests.docs.comparison``. Live tensors, one line each."""

from __future__ import annotations

from pathlib import Path

import torch

from pitfall_lab import show_broadcast, show_memory, show_storage, show_versions
from pitfall_lab.views.picture import Picture

FOLDER = Path(__file__).resolve().parents[2] / "pitfall_lab" / "docs"
STEPS = """\
import torch

w = torch.ones(64, 64, requires_grad=True)
x = torch.ones(32, 64)
for _ in range(2):
    h = torch.relu(x @ w)
    h = torch.tanh(h @ w)
    loss = h.square().mean()
    loss.backward()
    w.grad = None
"""


def pictures() -> dict[str, Picture]:
    """The pictures by file name."""
    x = torch.arange(6.0).reshape(2, 3)
    column, array = x[:, 1], x.numpy()
    h = torch.arange(3.0)
    prediction, target = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1.0, 2.0, 3.0])
    return {
        "compare-storage.svg": show_storage(x, x.t(), column, array),
        "compare-versions.svg": show_versions(h, h.detach(), h.data),
        "compare-broadcast.svg": show_broadcast(prediction, target),
        "compare-memory.svg": show_memory(STEPS),
    }


if __name__ == "__main__":
    for name, picture in pictures().items():
        picture.save(FOLDER / name)
        print((FOLDER / name).relative_to(FOLDER.parents[1]))
