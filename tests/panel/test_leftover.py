"""Gradients that a look left behind, and that the first step of the next training uses."""

from __future__ import annotations

import pytest

START = """torch.manual_seed(0)
X, Y = torch.randn(64, 4), torch.randn(64, 1)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
def after(n=3):
    for _ in range(n):
        loss = (net(X) - Y).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
def before(n=3):
    for _ in range(n):
        opt.zero_grad()
        loss = (net(X) - Y).square().mean()
        loss.backward()
        opt.step()"""
PROBE = "probe = X[:8].clone().requires_grad_()\nnet(probe).sum().backward()\nprint(probe.grad.abs().mean(0))"

PLANTED = {
    "a look at the input's gradient": [
        "after()",
        PROBE,
        "after()",
    ],
    "the size of the gradients": [
        "after()",
        ("(net(X[:16]) - Y[:16]).square().mean().backward()\nprint([p.grad.norm().item() for p in net.parameters()])"),
        "print('more')",
        "for group in opt.param_groups:\n    group['lr'] = 0.01\nafter(5)",
    ],
    "in a function, before any training": [
        (
            "def check():\n    loss = net(X[:1]).square().sum()\n    loss.backward()\n"
            "    return net[0].weight.grad is not None\ncheck()"
        ),
        (
            "for x, y in zip(X.split(16), Y.split(16)):\n    (net(x) - y).square().mean().backward()\n"
            "    opt.step()\n    net.zero_grad()"
        ),
    ],
    "accumulated over rounds": [
        PROBE,
        (
            "for i in range(4):\n    ((net(X) - Y).square().mean() / 2).backward()\n    if i % 2:\n"
            "        opt.step()\n        opt.zero_grad()"
        ),
    ],
    "one step per cell": [
        "loss = (net(X) - Y).square().mean()\nloss.backward()\nopt.step()\nopt.zero_grad()",
        PROBE,
        "loss = (net(X) - Y).square().mean()\nloss.backward()\nopt.step()\nopt.zero_grad()",
    ],
}


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_named_after_the_training_cell(notebook, name):
    *cells, last = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == []
    look = next(at for at, text in enumerate(cells, 3) if "backward" in text and "opt.step" not in text)
    [warning] = notebook.run(last)
    assert warning["kind"] == "gradients-left"
    assert f"The `backward()` of In [{look}] left `net.0.weight.grad` and 3 more behind" in warning["sentence"]["en"]
    assert [each["count"] for each in warning["cells"]] == [look, len(cells) + 3]
    assert notebook.run("print('later')") == []


@pytest.mark.parametrize(
    "cells",
    [
        [
            "before()",
            PROBE,
            "before()",
        ],
        [
            "after()",
            PROBE,
            "opt.zero_grad()",
            "after()",
        ],
        [
            "after()",
            PROBE,
            "net.zero_grad(set_to_none=False)",
            "after()",
        ],
        [
            "after()",
            PROBE.replace("net(probe).sum().backward()", "probe.grad, = torch.autograd.grad(net(probe).sum(), probe)"),
            "after()",
        ],
        [
            "after()",
            "probe = X[:8].clone().requires_grad_()\nnet(probe).sum().backward(inputs=[probe])",
            "after()",
        ],
        [
            "(net(X) - Y).square().mean().backward()",
            "(1e-3 * net[0].weight.square().sum()).backward()\nopt.step()\nopt.zero_grad()",
        ],
        [
            "loss = (net(X) - Y).square().mean()",
            "loss.backward()",
            "opt.step()\nopt.zero_grad()",
            "loss = (net(X) - Y).square().mean()",
            "loss.backward()",
            "opt.step()\nopt.zero_grad()",
        ],
        [
            "after()",
            PROBE,
            "net = nn.Sequential(nn.Linear(4, 1))\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nafter()",
        ],
        [
            (
                "from torch.optim import LBFGS\nopt = LBFGS(net.parameters())\ndef closure():\n"
                "    opt.zero_grad()\n    loss = (net(X) - Y).square().mean()\n    loss.backward()\n"
                "    return loss"
            ),
            PROBE,
            "for _ in range(2):\n    opt.step(closure)",
        ],
    ],
)
def test_what_is_cleared_before_is_right(notebook, cells):
    for text in (START, *cells):
        assert notebook.run(text) == []
