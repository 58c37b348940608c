"""The best weights so far, kept from a model that was made anew, and loaded into the new one."""

from __future__ import annotations

import pytest

START = """import copy
torch.manual_seed(0)
X, Y = torch.randn(40, 3), torch.randn(40, 1)
def error(model):
    with torch.no_grad():
        return (model(X) - Y).square().mean().item()
def epoch():
    for rows in torch.randperm(40).split(20):
        opt.zero_grad()
        (net(X[rows]) - Y[rows]).square().mean().backward()
        opt.step()"""
NONE = "best, best_state = float('inf'), None"
MADE = """net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)"""
AGAIN = MADE.replace("ReLU", "Tanh")
LOOP = """for _ in range(3):
    epoch()
    now = error(net)
    if now < best:
        best, best_state = now, copy.deepcopy(net.state_dict())"""
LOAD = "net.load_state_dict(best_state)\nprint(error(net))"
WON = "best = -1.0  # the second training does not come below it"
FIT = "def fit():\n    global best, best_state\n    " + LOOP.replace("\n", "\n    ")
CLONED = LOOP.replace("copy.deepcopy(net.state_dict())", "{k: v.clone() for k, v in net.state_dict().items()}")
NESTED = LOOP.replace("best, best_state = now, ", "best, record['state'] = now, ")
MODEL = LOOP.replace("net.state_dict()", "net").replace("best_state", "best_net")


def of_snapshots(warned):
    return [each for some in warned for each in some if each["kind"] == "old-snapshot"]


@pytest.mark.parametrize(
    ("cells", "name", "level"),
    [
        ([MADE, LOOP, LOAD, WON, AGAIN, LOOP, LOAD], "best_state", "silent"),
        ([MADE, LOOP, LOAD, WON, MADE, LOOP, LOAD], "best_state", "note"),
        ([MADE, CLONED, LOAD, WON, AGAIN, CLONED, LOAD], "best_state", "silent"),
        ([MADE, FIT, "fit()", WON, AGAIN, "fit()", LOAD], "best_state", "silent"),
        ([MADE, LOOP, LOAD, WON, AGAIN, f"{LOOP}\n{LOAD}"], "best_state", "silent"),
        (
            ["record = {}", MADE, NESTED, WON, AGAIN, NESTED, "net.load_state_dict(record['state'])"],
            "record['state']",
            "silent",
        ),
        ([MADE, MODEL, WON, AGAIN, MODEL, "print(error(best_net))"], "best_net", "silent"),
    ],
)
def test_the_cell_that_loads_the_weights_of_the_earlier_model_is_named(notebook, cells, name, level):
    warned = [notebook.run(text) for text in (START, NONE, *cells)]
    assert of_snapshots(warned[:-1]) == []
    [warning] = of_snapshots(warned[-1:])
    assert (warning["level"], warning["row"]) == (level, name.partition("[")[0])
    assert warning["sentence"]["en"].startswith(f"`{name}` of In [")
    assert "has the weights of the earlier `net`" in warning["sentence"]["en"]
    made = len(cells) + 3 - cells[::-1].index(AGAIN if AGAIN in cells else MADE)
    assert f"In [{made}] made `net` anew" in warning["sentence"]["en"]
    assert f"and In [{len(cells) + 3}] " in warning["sentence"]["en"]
    assert of_snapshots([notebook.run("1 + 1")]) != []
    loop = next(each for each in cells if "epoch()" in each)
    if loop is not FIT:
        again = f"best = float('inf')\n{AGAIN}"
        assert of_snapshots([notebook.run(text) for text in (again, loop)][1:]) == []


@pytest.mark.parametrize(
    "cells",
    [
        [MADE, LOOP, LOAD, f"{AGAIN}\n{NONE}", LOOP, LOAD],
        [MADE, LOOP, WON, LOOP, LOAD],  # the same model goes on
        [MADE, LOOP, WON, MADE, LOAD],  # a new model that is not trained
        [MADE, LOOP, f"{MADE}\nnet.load_state_dict(best_state)", WON, LOOP, LOAD],  # a warm start
        [MADE, "start = copy.deepcopy(net.state_dict())", "epoch()", f"{AGAIN}\nnet.load_state_dict(start)", "epoch()"],
        [MADE, "start = copy.deepcopy(net.state_dict())", "epoch()", AGAIN, "epoch()", "net.load_state_dict(start)"],
        [MADE, LOOP, WON, MADE.replace("8", "9"), LOOP, "print(error(net))"],
        [MADE, LOOP, WON, AGAIN, LOOP, "print(error(net), best)"],
        [MADE, "old = copy.deepcopy(net)\nepoch()", AGAIN, "epoch()", "print(error(old), error(net))"],
    ],
)
def test_copies_that_are_replaced_or_kept_on_purpose_are_right(notebook, cells):
    assert of_snapshots([notebook.run(text) for text in (START, NONE, *cells)]) == []
