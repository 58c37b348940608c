"""A gradient that a cell reads, and that is the sum of its own backward and of an earlier cell's."""

from __future__ import annotations

import pytest

START = """torch.manual_seed(0)
X, Y = torch.randn(64, 4), torch.randn(64, 1)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
w = torch.randn(4, 1, requires_grad=True)
def flat(m):
    return torch.cat([p.grad.flatten() for p in m.parameters()])
def norm(m):
    return flat(m).norm()"""
ALL = "(net(X) - Y).square().mean().backward()\ng_all = flat(net)"
FEW = "(net(X[:8]) - Y[:8]).square().mean().backward()\ng_few = flat(net)"

STEPS = """opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    opt.zero_grad()
    (net(X) - Y).square().mean().backward()
    opt.step()
print(flat(net).norm())"""
QUARTER = "rows = slice({0}, {0} + 16)\n((net(X[rows]) - Y[rows]).square().sum() / len(X)).backward()\nprint(flat(net))"
HALF = "loss = (net(X[:9]) - Y[:9]).square().mean() / 2\nloss.backward()\nprint(net[0].weight.grad.norm())"
CHUNKS = """net.zero_grad()
for x, y in zip(X.split(16), Y.split(16)):
    ((net(x) - y).square().sum() / 64).backward()
print(flat(net) - g_all)"""


@pytest.mark.parametrize(
    "cells",
    [
        [ALL, FEW],
        ["((net(X) - Y).square().sum() / len(X)).backward()\nprint(flat(net))"] * 2,
        [ALL, "g_all.norm()", FEW.replace("flat(net)", "norm(net)")],
        [
            "(X @ w - Y).square().mean().backward()\nprint(w.grad)",
            "(X @ w - Y).abs().mean().backward()\nother = w.grad.clone()",
        ],
        [
            "loss = (net(X) - Y).square().mean()\nloss.backward()\nprint(net[0].weight.grad.norm())",
            "loss = (net(X) - Y).abs().mean()\nloss.backward()\nprint(net[0].weight.grad.norm())",
        ],
        [
            "(net(X) - Y).square().mean().backward()\nfor p in net.parameters():\n    print(p.grad.norm())",
            "(net(X) - Y).abs().mean().backward()\nsizes = {n: p.grad.norm() for n, p in net.named_parameters()}",
        ],
    ],
)
def test_it_is_said_after_the_second_backward(notebook, cells):
    *before, last = cells
    for text in (START, *before):
        assert notebook.run(text) == []
    [warning] = notebook.run(last)
    assert (warning["kind"], warning["rule"], warning["level"]) == ("gradients-of-two-cells", "PL601", "silent")
    assert [each["count"] for each in warning["cells"]] == [3, len(cells) + 2]
    assert "is the sum of both gradients" in warning["sentence"]["en"]
    assert notebook.run("print('later')") == []


@pytest.mark.parametrize(
    "cells",
    [
        [ALL, "net.zero_grad()\n" + FEW],
        [ALL, "net.zero_grad()", FEW],
        [ALL + "\nnet.zero_grad(set_to_none=False)", FEW],
        [ALL, "for p in net.parameters():\n    p.grad = None\n" + FEW],
        [ALL.partition("\n")[0], FEW],  # read once: the sum may be meant
        [ALL, FEW.partition("\n")[0]],
        [ALL, "g_few = torch.autograd.grad((net(X[:8]) - Y[:8]).square().mean(), list(net.parameters()))"],
        [
            ALL,
            "probe = X[:8].clone().requires_grad_()\nnet(probe).sum().backward()\nprint(probe.grad.abs().mean(0))",
        ],  # the gradient of an input is what is read
        [
            ALL,
            STEPS,
        ],
        [
            ALL,
            CHUNKS,
        ],
        [HALF, HALF],
        [QUARTER.format(0), QUARTER.format(16)],
        ["parts = 4", *["((net(X) - Y).square().mean() / parts).backward()\nprint(flat(net))"] * 3],
    ],
)
def test_what_begins_anew_or_is_read_once_is_not(notebook, cells):
    assert [notebook.run(text) for text in (START, *cells)] == [[]] * (len(cells) + 1)
