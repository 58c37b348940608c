"""A forward hook that replaces the output, so that nothing in front of it learns, is named; others are not."""

from __future__ import annotations

import pytest

START = """torch.manual_seed(0)
X, Y = torch.randn(32, 4), torch.randn(32, 1)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01, weight_decay=0.1)
seen = {}
def train(n=3):
    for _ in range(n):
        loss = (net(X) - Y).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()"""
LOOK = "\nwith torch.no_grad():\n    net(X)"
NAMED = """def keep(module, inputs, output):
    if 'first' not in seen:
        seen['first'] = output.detach()
    return seen['first']
handle = net[1].register_forward_hook(keep)"""
OWN = """class Probe:
    def __call__(self, module, inputs, output):
        pass
    def hook(self, module, inputs, output):
        return seen.setdefault('a', output)
handle = net[1].register_forward_hook(Probe().hook)"""
PLANTED = {
    "a lambda": ("net[1].register_forward_hook(lambda m, i, o: seen.setdefault('a', o.detach()))" + LOOK, "train()"),
    "a function": (NAMED + LOOK, "train()"),
    "a method": (OWN + LOOK, "train()"),
    "trained in the same cell": (NAMED + LOOK + "\ntrain(20)", ""),
}
CUT = """class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x):
        return self.head(self.body(x).detach())
net = Cut()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
net.body.register_forward_hook(lambda m, i, o: seen.update(a=o.detach()))"""
RIGHT = {
    "returns None": ["net[1].register_forward_hook(lambda m, i, o: seen.update(a=o.detach()))", "train()"],
    "stores in a def": [
        "def keep(m, i, o):\n    seen['a'] = o.detach()\nhandle = net[1].register_forward_hook(keep)",
        "train()",
    ],
    "changes the output": ["net[1].register_forward_hook(lambda m, i, o: o * 2)", "train()"],
    "cut on purpose": ["net[1].register_forward_hook(lambda m, i, o: o.detach())", "train()"],
    "removed": [NAMED + LOOK + "\nhandle.remove()", "train()"],
    "only evaluated": [NAMED + LOOK, "with torch.no_grad():\n    shown = net(X)"],
    "cut in the model": [CUT, "train()"],
    "frozen in front": [
        "net[0].requires_grad_(False)\nopt = torch.optim.SGD(net[2].parameters(), lr=0.01)",
        NAMED + LOOK,
        "train()",
    ],
    "only the head is held": ["opt = torch.optim.SGD(net[2].parameters(), lr=0.01)", NAMED + LOOK],
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_hook_is_named_after_the_training(notebook, name):
    assert notebook.run(START) == []
    register, training = PLANTED[name]
    warnings = notebook.run(register)
    if training:
        assert warnings == []
        warnings = notebook.run(training)
    [warning] = warnings
    assert warning["kind"] == "hook-replaces-output"
    assert "The forward hook of In [3] on `net.1` returns `seen" in warning["sentence"]["en"]
    assert "`net.0.weight` and 1 more, in front of it, got no gradient" in warning["sentence"]["en"]
    assert "net[1]._forward_hooks.clear()" in warning["fix"]["en"]
    assert ("`setdefault` returns" in warning["explanation"]["en"]) == ("setdefault" in register)
    assert [each["kind"] for each in notebook.run("train()")] == ["hook-replaces-output"]
    assert notebook.run("net[1]._forward_hooks.clear()") == []


@pytest.mark.parametrize("name", RIGHT)
def test_a_hook_that_lets_the_model_learn_is_right(notebook, name):
    for text in (START, *RIGHT[name]):
        assert notebook.run(text) == []
    assert notebook.run("print('later')") == []
