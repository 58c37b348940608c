"""Models that are run in training mode only to look: their running statistics move, and no parameter does."""

from __future__ import annotations

import pytest

DATA = "X, Y = torch.randn(32, 4), torch.randn(32, 1)\nfar = 5 + 3 * torch.randn(32, 4)"
NET = """net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)"""
STEP = "loss = (net(X) - Y).square().mean()\nopt.zero_grad()\nloss.backward()\nopt.step()"
TRAIN = "for _ in range(5):\n    " + STEP.replace("\n", "\n    ")
LOOK = "with torch.no_grad():\n    out = net(far)"


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        ([NET, TRAIN, LOOK], "In [5] ran `net` in training mode"),
        ([NET, TRAIN, LOOK, "with torch.no_grad():\n    print(net(far).mean())"], "In [5], In [6] ran `net`"),
        ([NET, TRAIN, "print((net(far) - Y).abs().mean().item())"], "In [5] ran `net`"),  # the graph is gone as well
        ([f"{NET}\n{TRAIN}", "@torch.inference_mode()\ndef error():\n    return (net(X) - Y).abs().mean()", "error()"],
        "In [5] ran"), ([NET.replace("BatchNorm1d(6)", "BatchNorm1d(6, affine=False)"), TRAIN,
        "net.requires_grad_(False)", LOOK], "In [6] ran `net`"),
        ([("nets = {'a': nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1))}\n"
        "net = nets['a']\n"
        "opt = torch.optim.Adam(net.parameters())"), TRAIN, ("for _ in range(3):\n"
        "    with torch.no_grad():\n"
        "        net(far)")], "In [5] ran"),
    ],
)  # fmt: skip
def test_it_is_said_until_the_model_is_trained_again(notebook, cells, where):
    warned = [notebook.run(text, str(at)) for at, text in enumerate([DATA, *cells])]
    [warning] = warned[-1]
    assert (warning["kind"], warning["level"], warning["rule"]) == ("statistics-moved", "silent", "PL904")
    assert warning["sentence"]["en"].startswith(where)
    assert "`net.eval()` before" in warning["fix"]["en"] or "nets" in cells[0]
    assert notebook.run("1 + 1", "other") != []
    if "net.requires_grad_(False)" not in cells:
        assert notebook.run(TRAIN, "train") == []


@pytest.mark.parametrize(
    "cells",
    [
        [NET, LOOK, TRAIN],  # training writes them anew
        [NET, "net(X).shape", TRAIN, "net.eval()\nwith torch.no_grad():\n    net(far)"],
        [NET, TRAIN, f"net.eval()\n{LOOK}\nnet.train()", TRAIN],
        [
            NET,
            TRAIN,
            "loss = (net(X) - Y).square().mean()",
            "opt.zero_grad()",
            "loss.backward()",
            "opt.step()",
        ],  # step by step
        [
            NET,
            TRAIN,
            "(net(X[:16]) - Y[:16]).square().mean().backward()",
            "(net(X[16:]) - Y[16:]).square().mean().backward()\nopt.step()",
        ],
        [NET, TRAIN, f"net[1].reset_running_stats()\nnet[1].momentum = None\n{LOOK}"],  # computed anew, on purpose
        [NET, TRAIN, f"net.train()\n{LOOK}\nnet.eval()"],  # to other data, on purpose
        [NET, TRAIN, "torch.optim.swa_utils.update_bn([X, far], net)"],
        [NET.replace("BatchNorm1d(6)", "BatchNorm1d(6, track_running_stats=False)"), TRAIN, LOOK],
        [NET.replace("BatchNorm1d", "LayerNorm"), TRAIN, LOOK],
        [  # a GAN: the generator is run without gradients where the critic is trained
            NET.replace("net", "G").replace("(6, 1)", "(6, 4)").replace("opt =", "og ="),
            "D = nn.Linear(4, 1)\nod = torch.optim.SGD(D.parameters(), 0.1)",
            "og.zero_grad(); (-D(G(X)).mean()).backward(); og.step()",
            (
                "with torch.no_grad():\n"
                "    fake = G(X)\n"
                "od.zero_grad(); (D(fake).mean() - D(X).mean()).backward(); od.step()"
            ),
        ],
    ],
)
def test_training_and_what_is_meant_is_not(notebook, cells):
    warned = [notebook.run(text, str(at)) for at, text in enumerate([DATA, *cells])]
    assert [each["kind"] for some in warned for each in some if each["kind"] == "statistics-moved"] == []


def test_statistics_that_were_computed_anew_afterwards_are_right(notebook):
    for text in (DATA, NET, TRAIN, LOOK):
        notebook.run(text)
    assert notebook.run(f"net[1].reset_running_stats()\nnet.train()\n{LOOK}") == []
