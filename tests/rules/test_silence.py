"""Programs that look dangerous and are right draw no error and no warning: short ones below,
realistic ones in ``silent/``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

LEAF = "x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n"
MODEL = (
    "torch.manual_seed(0)\n"
    "model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))\n"
    "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "data = torch.randn(5, 3)\n"
)

RIGHT = {
    "in place on what nothing saved": LEAF + "h = x + 1\nh += 1\nh.sum().backward()",
    "in place before anything is saved": LEAF + "h = x * 2\nh.add_(1)\n(h ** 2).sum().backward()",
    "in place after the multiplication by a constant": LEAF
    + "h = x * 3\ny = h * 2\nh.mul_(10)\n(y.sum() + h.sum()).backward()",
    "a chain of in-place operations that keep their own copies": LEAF
    + "h = x.clone()\nh.mul_(2).sin_().abs_()\nh.sum().backward()",
    "in-place ReLU after a linear layer, whose output is not saved": MODEL
    + "net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))\nnet(data).mean().backward()",
    "writing after backward": LEAF + "h = torch.exp(x)\nh.sum().backward()\nh.zero_()",
    "a saved tensor written, but no backward": LEAF + "h = torch.sigmoid(x)\nh.mul_(2)\nprint(h.sum())",
    "an update under no_grad": LEAF
    + "(x ** 2).sum().backward()\nwith torch.no_grad():\n    x -= 0.1 * x.grad\n    x.grad.zero_()",
    "an ordinary training loop": MODEL
    + (
        "for _ in range(3):\n"
        "    opt.zero_grad()\n"
        "    loss = model(data).square().mean()\n"
        "    loss.backward()\n"
        "    opt.step()"
    ),
    "accumulation over micro-batches": MODEL
    + "opt.zero_grad()\nfor part in data.split(2):\n    (model(part).square().sum() / 5).backward()\nopt.step()",
    "a moving average of parameters": MODEL
    + (
        "import copy\n"
        "average = copy.deepcopy(model)\n"
        "for _ in range(2):\n"
        "    model(data).mean().backward()\n"
        "    opt.step()\n"
        "    opt.zero_grad()\n"
        "    with torch.no_grad():\n"
        "        for a, p in zip(average.parameters(), model.parameters()):\n"
        "            a.mul_(0.9).add_(p, alpha=0.1)"
    ),
    "detach, then clone, then write": LEAF + "h = torch.exp(x)\nc = h.detach().clone()\nc[0] = 100\nh.sum().backward()",
    "a NumPy copy is written": LEAF
    + "h = x * 2\ny = (h ** 2).sum()\na = h.detach().numpy().copy()\na[:] = 0\ny.backward()",
    "NumPy writes what nothing saved": LEAF + "h = x * 2\ny = h.sum()\na = h.detach().numpy()\na[:] = 0\ny.backward()",
    "NumPy writes after backward": LEAF + "h = x * 2\ny = (h ** 2).sum()\ny.backward()\nh.detach().numpy()[:] = 0",
    ".data written where nothing was saved": LEAF + "h = x + 1\nh.data.mul_(2)\nh.sum().backward()",
    ".data of a parameter set before the forward pass": MODEL
    + "model[0].weight.data.fill_(0.1)\nmodel(data).mean().backward()",
    "a leaf filled by init under no_grad": (
        "w = torch.empty(3, requires_grad=True)\nnn.init.uniform_(w)\n(w ** 2).sum().backward()"
    ),
    "clone before the write": LEAF
    + "w = torch.softmax(x, 0)\ny = (w ** 2).sum()\nw = w.clone()\nw[0] = 0\n(y + w.sum()).backward()",
    "a GAN in the right order": MODEL
    + (
        "gen = nn.Linear(2, 3)\n"
        "gen_opt = torch.optim.SGD(gen.parameters(), lr=0.1)\n"
        "fake = gen(torch.randn(4, 2))\n"
        "loss = model(fake.detach()).mean()\n"
        "loss.backward()\n"
        "opt.step()\n"
        "gen_opt.zero_grad()\n"
        "model(fake).mean().backward()\n"
        "gen_opt.step()"
    ),
    "two losses, two backwards, then the step": MODEL
    + "h = model(data)\nh.mean().backward(retain_graph=True)\nh.square().mean().backward()\nopt.step()",
    "a mask written before the forward pass": LEAF + "mask = torch.ones(3)\nmask[1] = 0\n(x * mask).sum().backward()",
    "a buffer of running statistics": MODEL
    + "norm = nn.BatchNorm1d(3)\nfor _ in range(2):\n    norm(data).square().mean().backward()",
    "losses of equal shapes": MODEL + "target = torch.randn(5, 1)\nF.mse_loss(model(data), target).backward()",
    "a loss of squeezed predictions": MODEL
    + "target = torch.randn(5)\nF.mse_loss(model(data).squeeze(-1), target).backward()",
    "one prediction against one target": (
        "p = torch.ones(1, 1, requires_grad=True)\n"
        "with __import__('warnings').catch_warnings():\n"
        "    __import__('warnings').simplefilter('ignore')\n"
        "    F.mse_loss(p, torch.ones(1)).backward()"
    ),
    "pairwise distances of one tensor": LEAF + "d = (x.unsqueeze(1) - x).pow(2).sum()\nd.backward()",
    "pairwise distances to centres, with None": LEAF
    + "centres = torch.tensor([0.0, 1.0, 5.0])\nd = ((x[:, None] - centres) ** 2).mean()\nd.backward()",
    "a matrix minus a column": (
        "a = torch.ones(4, 3, requires_grad=True)\nd = (a - a.mean(1, keepdim=True)).square().mean()\nd.backward()"
    ),
    "an outer difference that is no loss": LEAF + "c = torch.ones(3, 1)\ntable = x - c\nprint(table.shape)",
    "a bias column that is not reduced to one number": LEAF
    + "c = torch.ones(3, 1)\nd = (x - c).abs().sum(dim=1)\nd.max().backward()",
    "gradient checkpointing": MODEL
    + (
        "from torch.utils.checkpoint import checkpoint\n"
        "out = checkpoint(model, data, use_reentrant=False)\n"
        "out.mean().backward()\n"
        "opt.step()"
    ),
}

SILENT = sorted((Path(__file__).parent / "silent").glob("*.py"))


@pytest.mark.parametrize("path", SILENT, ids=lambda p: p.stem)
def test_a_realistic_right_program_draws_nothing(path: Path, shop: Workshop) -> None:
    trace = shop.trace(Subject(path.read_text(encoding="utf-8"), path.name, str(path)))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    assert [f.message.en for f in find(trace) if f.severity != "info"] == []


@pytest.mark.parametrize("title", RIGHT)
def test_a_right_program_draws_nothing(title: str, shop: Workshop) -> None:
    source = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n" + RIGHT[title] + "\n"
    trace = shop.trace(Subject(source, "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    assert [f.message.en for f in find(trace) if f.severity != "info"] == []


def test_a_counter_that_a_batch_norm_takes_from_itself_was_not_kept_by_the_program() -> None:
    text = """
import io, torch
def module(): return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
model = module()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
torch.save({f"module.{name}": value for name, value in model.state_dict().items()}, file := io.BytesIO())
file.seek(0)
state = torch.load(file)
model.load_state_dict(state)
"""
    assert "PL703" not in {finding.rule for finding in find(trace_program(text))}
