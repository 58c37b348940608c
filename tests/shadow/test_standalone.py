"""The facade needs no torch: programs run in a process where importing torch is impossible."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "copies and views": """
import torch
import numpy as np
a = np.arange(6.0).reshape(2, 3)
t = torch.from_numpy(a)
v = t.view(3, 2)
v[0] = 7
assert a[0, 0] == 7 and t._version == 1
c, d = t.clone(), t.detach()
d += 1
assert t[0, 0].item() == 8 and c[0, 0].item() == 7
assert t.t().reshape(6).data_ptr() != t.data_ptr() and t[[0]].data_ptr() != t.data_ptr()
print(t.shape, t.stride(), t.t().is_contiguous())
""",
    "version errors": """
import torch
x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
h = torch.sigmoid(x)
y = h * 2
h.mul_(10)
try:
    (y.sum() + h.sum()).backward()
except RuntimeError as error:
    print(str(error).split(";")[0])
else:
    raise AssertionError("backward should have failed")
""",
    "data and numpy are silent": """
import torch
x = torch.ones(3, requires_grad=True)
y = x.exp()
y.data.zero_()
y.sum().backward()
assert x.grad.tolist() == [0.0, 0.0, 0.0]
""",
    "training": """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
x = torch.randn(32, 2)
target = x[:, :1] * x[:, 1:]
first = None
for _ in range(150):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), target)
    loss.backward()
    optimizer.step()
    first = first or loss.item()
assert loss.item() < first / 2
""",
}


def blocked(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program on the facade in a process where ``import torch`` fails."""
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from pitfall_lab.shadow import run\n"
        f"names, error, printed = run({program!r})\n"
        "print(printed, end='')\n"
        "if error: raise error"
    )
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("title", PROGRAMS)
def test_the_program_runs_without_torch(title: str) -> None:
    done = blocked(PROGRAMS[title])
    assert done.returncode == 0, done.stderr


def test_the_message_is_torchs() -> None:
    done = blocked(PROGRAMS["version errors"])
    assert done.stdout == (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        "[torch.FloatTensor [3]], which is output 0 of Sigmoid, is at version 1\n"
    )


@pytest.mark.parametrize(
    "module",
    [
        "dtypes",
        "storage",
        "graph",
        "engine",
        "policy",
        "facade.running",
        "facade",
        "registry",
        "ops.building",
        "ops.views",
    ],
)
def test_the_examples_in_the_text_are_true(module: str) -> None:
    loaded = importlib.import_module(f"pitfall_lab.shadow.{module}")
    assert doctest.testmod(loaded).failed == 0
