"""Pitfalls planted in whole notebooks of one's own: what is said of each, and when. No cell is recorded."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook.magic import HINT
from tests.panel.notebook import Notebook

HEAD = "import numpy as np\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F"
DATA = "X = torch.randn(64, 6)\nY = X.sum(1) + 0.1 * torch.randn(64)"
NET = """class Net(nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.head = nn.Linear(16, outputs)
    def forward(self, x):
        return self.head(self.body(x))"""
OPT = "net = Net()\nopt = torch.optim.SGD(net.parameters(), 1e-2)"
LOSS = "loss = F.mse_loss(net(X).squeeze(1), Y)"
BACK = "opt.zero_grad()\nloss.backward()\nopt.step()"
TAGGER = """class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 8, batch_first=True)
        self.head = nn.Linear(8, 1)
    def forward(self, x, state):
        out, state = self.lstm(x, state)
        return self.head(out), state"""
CHUNK = "pred, state = net(seq[:, :5], state)\nloss = pred.square().mean()"
STEPS = (
    "def epoch():\n"
    "    loss = F.mse_loss(net(X).squeeze(1), Y)\n"
    "    opt.zero_grad(); loss.backward(); opt.step()\n"
    "    return loss"
)
BEFORE = {
    "an LSTM's state over runs of a cell": (
        [
            HEAD,
            TAGGER,
            ("net = Tagger()\nopt = torch.optim.SGD(net.parameters(), 0.1)\nseq, state = torch.randn(4, 9, 3), None"),
            CHUNK,
            BACK,
            CHUNK,
        ],
        "used-graph",
        "`loss` leads through `state[0]` into ",
    ),
    "a critic's step between an actor's forward and backward": (
        [
            HEAD,
            "actor, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))",
            "oc = torch.optim.SGD(critic.parameters(), 0.01)\ns, r = torch.randn(16, 4), torch.randn(16, 1)",
            "q = critic(torch.cat([s, actor(s)], 1))\ncritic_loss, actor_loss = F.mse_loss(q, r), -q.mean()",
            "oc.zero_grad()\ncritic_loss.backward(retain_graph=True)\noc.step()",
        ],
        "changed-after-saving",
        "`critic.2.weight` and 1 more changed in In [5]",
    ),
    "NumPy that standardises what a graph has saved": (
        [
            HEAD,
            (
                "raw = np.random.default_rng(0).normal(5, 2, (64, 6)).astype('float32')\n"
                "X = torch.from_numpy(raw)\n"
                "Y = X.sum(1)"
            ),
            NET,
            OPT,
            LOSS,
            "raw -= raw.mean(0)",
        ],
        "changed-silently",
        "`X` changed in In [6], without a new version",
    ),
    "a head that came after the optimizer": (
        [HEAD, DATA, NET, OPT, "net.head = nn.Linear(16, 1)", LOSS],
        "left-out",
        "`net.head.weight` and 1 more came in In [5]",
    ),
    "gradients that no cell clears": (
        [HEAD, DATA, NET, OPT, *[f"{LOSS}\nloss.backward()\nopt.step()"] * 2],
        "gradients-add-up",
        "`net.head.weight.grad` and 3 more",
    ),
    "a history of losses with their graphs": (
        [HEAD, DATA, NET, OPT, STEPS, "history = []", ("for _ in range(20):\n    history.append(epoch())")],
        "graph-grows",
        "`history` keeps 20 losses",
    ),
}


@pytest.fixture
def notebook(monkeypatch):
    """A notebook with the whole extension; what it shows is kept, and no traceback is drawn."""
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook = Notebook(whole=True)
    notebook.shown = []
    monkeypatch.setattr(
        notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: notebook.shown.append(data)
    )
    yield notebook
    notebook.close()


@pytest.mark.parametrize("name", BEFORE)
def test_it_is_warned_of_before_it_hurts(notebook, name):
    cells, kind, begins = BEFORE[name]
    warned = [notebook.run(text, text) for text in cells]
    [warning] = warned[-1]
    assert warning["kind"] == kind
    assert warning["sentence"]["en"].startswith(begins)


FAILS = {
    "features from a function without gradients": (
        [HEAD, DATA, NET, OPT, "@torch.no_grad()\ndef predict(x):\n    return net(x).squeeze(1)", "pred = predict(X)",
        "loss = F.mse_loss(pred, Y)"], BACK, "`@no_grad` in In [5] recorded no graph of `net`'s output",
    ),
    "a weight that was scaled when it was made": (
        [HEAD, DATA, "w = torch.randn(6, requires_grad=True) * 0.1\nb = torch.zeros(1, requires_grad=True)",
        "def model(x):\n    return x @ w + b"], "opt = torch.optim.SGD([w, b], lr=0.1)",
        "`w` is the result of MulBackward0 in In [3], not a leaf",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILS)
def test_it_is_named_where_it_fails(notebook, name):
    cells, last, begins = FAILS[name]
    for text in cells:
        assert notebook.run(text, text) == []
    assert not notebook.shell.run_cell(last, store_history=True, cell_id="last").success
    [hint] = [data[HINT] for data in notebook.shown if HINT in data]
    assert hint["text"]["en"].startswith(f"pitfall_lab: {begins}")
