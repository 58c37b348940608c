"""Models that are trained in evaluation mode, because nothing switches them back."""

from __future__ import annotations

import pytest

DATA = "X, Y = torch.randn(12, 4), torch.randn(12, 1)"
NET = """net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)"""
SCORE = "def score():\n    net.eval()\n    with torch.no_grad():\n        return (net(X) - Y).square().mean().item()"
STEP = "loss = (net(X) - Y).square().mean()\nopt.zero_grad()\nloss.backward()\nopt.step()"
TRAIN = "for _ in range(3):\n    " + STEP.replace("\n", "\n    ")
FIT = "def fit():\n    " + TRAIN.replace("\n", "\n    ")

#: A body, and a head with a dropout of its own.
HEAD = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 6))
        self.head = nn.Sequential(nn.Linear(6, 6), nn.Dropout(), nn.Linear(6, 1))
    def forward(self, x):
        return self.head(self.body(x))
net = Net()"""
#: A linear layer on top of a body that is not trained, with a dropout in between.
PROBE = HEAD.replace(
    "nn.Sequential(nn.Linear(6, 6), nn.Dropout(), nn.Linear(6, 1))", "nn.Sequential(nn.Dropout(), nn.Linear(6, 1))"
)

CLASS = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 1), nn.Dropout())
    def forward(self, x):
        return self.body(x)"""


@pytest.mark.parametrize(
    "cells",
    [
        [NET, SCORE, "score()", TRAIN],
        [NET, SCORE, "score()", FIT, "fit()"],
        [NET, "net.eval()\nnet(X).shape", STEP],
        [NET, SCORE, f"{TRAIN}\n    print(score())"],
        [HEAD, "opt = torch.optim.SGD(net.head.parameters(), 0.1)\nnet.eval()", STEP],
        [NET, SCORE, FIT + "\n        score()", "fit()"],
        [CLASS, "net = Net()\nopt = torch.optim.Adam(net.parameters())", "net.eval()", STEP],
        [NET, SCORE + "\n\ndef go():\n    net.train()\n    score()", "score()", TRAIN],
        [NET, FIT, "net.train()", "net.eval()\nnet(X).mean()", "fit()"],
    ],
)
def test_it_is_said_when_the_parameters_have_changed(notebook, cells):
    warned = [notebook.run(text, str(at)) for at, text in enumerate([DATA, *cells])]
    assert warned[:-1] == [[]] * (len(warned) - 1)
    [warning] = warned[-1]
    assert (warning["kind"], warning["rule"], warning["level"]) == ("evaluation-left-on", "PL903", "silent")
    assert warning["sentence"]["en"].startswith("`net` ")
    assert [each["role"] for each in warning["cells"]] == ["changed"]
    assert notebook.run(f"net.train()\n{TRAIN}", "mend") == []


@pytest.mark.parametrize(
    "cells",
    [
        [NET, SCORE, TRAIN, "score()"],
        [NET, SCORE, f"{TRAIN}\nscore()"],
        [NET, SCORE, "score()", f"net.train()\n{TRAIN}\nscore()"],
        [
            NET,
            SCORE,
            "def go():\n    net.train()\n    " + TRAIN.replace("\n", "\n    ") + "\n    score()",
            "score()",
            "go()",
        ],
        [
            NET.replace("nn.Dropout(0.3), ", ""),
            "net.train()\nnet(X)",
            "net.eval()",
            TRAIN,
        ],  # statistics that stay as they are, with other weights: often meant
        [NET, "import copy\nbest = copy.deepcopy(net.state_dict())", "net.eval()", "net.load_state_dict(best)"],
        [
            NET,
            "net[1].eval()\nfor p in net[1].parameters():\n    p.requires_grad_(False)",
            TRAIN,
        ],  # frozen statistics, on purpose
        [
            "net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1))\nnet[:2].requires_grad_(False)",
            "opt = torch.optim.SGD(net[2].parameters(), 0.1)\nnet.eval()",
            TRAIN,
        ],
        [
            "net = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)",
            SCORE,
            "score()",
            TRAIN,
        ],  # nothing in it has a mode
        [PROBE, "net.body.requires_grad_(False)\nopt = torch.optim.SGD(net.head.parameters(), 0.1)\nnet.eval()", TRAIN],
        [
            PROBE,
            "opt = torch.optim.SGD(net.head.parameters(), 0.1)\nnet.eval()",
            TRAIN,
        ],  # the body has gradients, and stays as it is
        [
            PROBE,
            (
                "net.requires_grad_(False)\n"
                "net.head = nn.Linear(6, 1)\n"
                "opt = torch.optim.SGD(net.head.parameters(), 0.1)\n"
                "net.eval()"
            ),
            "with torch.no_grad():\n    z = net.body(X)",
            TRAIN.replace("net(X)", "net.head(z)"),
        ],
        [NET, "teacher = nn.Sequential(nn.Linear(4, 1), nn.Dropout())\nteacher.eval()", TRAIN],
    ],
)
def test_what_is_switched_back_or_only_measured_is_not(notebook, cells):
    assert [notebook.run(text, str(at)) for at, text in enumerate([DATA, *cells])] == [[]] * (len(cells) + 1)
