"""Weights that stay equal or zero in training."""

from __future__ import annotations

import pytest

DATA = "torch.manual_seed(0)\nX = torch.randn(60, 5)\nY = (X[:, 0] > 0).long()"
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 2)
        for p in self.parameters():
            {fill}
    def forward(self, x):
        return self.two({act}(self.one(x)))
net = Net()
opt = torch.optim.{opt}(net.parameters(), lr=0.1)"""
LOOP = """for _ in range(6):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(X), Y)
    loss.backward()
    opt.step()"""


@pytest.mark.parametrize(
    ("fill", "act", "kind", "words"),
    [
        ("nn.init.zeros_(p)", "torch.relu", "zero-weights", "`net.one.weight` and 1 more: every weight is still zero"),
        (
            "nn.init.constant_(p, 0.1)",
            "torch.relu",
            "equal-weights",
            "`net.one.weight`: its 8 units still have equal weights",
        ),
        ("nn.init.ones_(p)", "torch.tanh", "equal-weights", "`net.one.weight`: its 8 units"),
    ],
)
def test_a_net_of_zeros_or_of_equal_units(notebook, fill, act, kind, words):
    assert notebook.run(DATA) == []
    assert (
        notebook.run(NET.format(fill=fill, act=act, opt="Adam" if "ones" in fill else "SGD"), "net") == []
    )  # it is not wrong yet
    [warning] = notebook.run(LOOP, "loop")
    assert (warning["kind"], warning["level"]) == (kind, "silent")
    assert warning["sentence"]["en"].startswith(words)
    assert [each["kind"] for each in notebook.run("1 + 1")] == [kind]
    net = notebook.shell.user_ns["net"].one.weight  # and it is true
    assert net.allclose(net[:1].expand_as(net))
    assert notebook.run("nn.init.normal_(net.one.weight); nn.init.normal_(net.two.weight)", "mend") == []
    assert notebook.run(LOOP, "loop") == []


@pytest.mark.parametrize(("start", "kind"), [("torch.zeros", "zero-weights"), ("0.5 * torch.ones", "equal-weights")])
@pytest.mark.parametrize("clear", ["p.grad = None", "p.grad.zero_()"])
def test_weights_of_ones_own_whose_units_are_columns(notebook, start, kind, clear):
    notebook.run(DATA)
    notebook.run(f"W1, W2 = ({start}(*shape) for shape in ((5, 8), (8, 2)))")
    notebook.run("W1.requires_grad_(); W2.requires_grad_()\nb = torch.zeros(8, requires_grad=True)")
    [warning] = notebook.run(f"""for _ in range(6):
    loss = nn.functional.cross_entropy(torch.tanh(X @ W1 + b) @ W2, Y)
    loss.backward()
    with torch.no_grad():
        for p in (W1, W2, b):
            p -= 0.1 * p.grad
            {clear}""")
    assert (warning["kind"], warning["row"]) == (kind, "W1")
    assert [each["kind"] for each in notebook.run("1 + 1")] == [kind]
