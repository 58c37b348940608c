"""Models that were put back to their beginning and trained again, while the optimizer goes on."""

from __future__ import annotations

import pytest

START = """import copy
X, Y = torch.randn(64, 4), torch.randn(64, 1)
S = torch.optim.lr_scheduler
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
def make(cls=torch.optim.Adam, **more):
    global opt, sched
    opt = cls(net.parameters(), lr=0.02, **more)
    sched = S.ExponentialLR(opt, gamma=0.5)
def fit(loss=nn.functional.mse_loss, epochs=4):
    for _ in range(epochs):
        for x, y in zip(X.split(16), Y.split(16)):
            opt.zero_grad()
            loss(net(x), y).backward()
            opt.step()
        sched.step()"""
KEEP = "start = copy.deepcopy(net.state_dict())"
OPT = "opt = torch.optim.Adam(net.parameters(), lr=0.02)\nsched = S.ExponentialLR(opt, gamma=0.5)"
SGD = OPT.replace("Adam(net.parameters()", "SGD(net.parameters()")
BACK = "net.load_state_dict(start)"
DRAW = """def draw(m):
    if isinstance(m, nn.Linear):
        nn.init.xavier_uniform_(m.weight)
        nn.init.zeros_(m.bias)"""
NEAR = """def near(out, y):
    far = sum((p - start[n]).square().sum() for n, p in net.named_parameters())
    return (out - y).square().mean() + 0.1 * far"""
PLANTED = {
    "a state": ([KEEP, OPT, "fit()", BACK], "fit(nn.functional.l1_loss)",
        "but `opt` went on from the training before: at the rate 0.00125 (it began with 0.02), with the averages of"),
    "a look between": ([KEEP, OPT, "fit()", BACK, "net(X).mean().item()"], "fit()", "In [6] put `net` back"),
    "a copy of the model": (
        ["first = copy.deepcopy(net)", OPT, "fit()", "net.load_state_dict(first.state_dict())"], "fit()",
        "In [6] put `net` back",
    ),
    "copied in a loop": (
        ["first = [p.detach().clone() for p in net.parameters()]", OPT, "fit()",
        "with torch.no_grad():\n    for p, q in zip(net.parameters(), first):\n        p.copy_(q)"], "fit()",
        "In [6] put `net` back",
    ),
    "assigned through .data": (
        [KEEP, OPT, "fit()", "for n, p in net.named_parameters():\n    p.data = start[n].clone()"], "fit()",
        "In [6] put `net` back",
    ),
    "drawn anew": (
        [OPT, "fit()", "for m in net:\n    if hasattr(m, 'reset_parameters'):\n        m.reset_parameters()"],
        "fit()", "In [5] put `net` back",
    ),
    "drawn anew by a function": (
        [DRAW, OPT, "fit()", "net.apply(draw)"], "fit()", "In [6] put `net` back",
    ),
    "momentum": (
        [KEEP, SGD.replace("lr=0.02", "lr=0.02, momentum=0.9"), "fit()", BACK], "fit()",
        "with the averages of the steps before.",
    ),
    "without a state": ([KEEP, SGD, "fit()", BACK], "fit()", "at the rate 0.00125 (it began with 0.02)."),
    "in one cell": (
        [KEEP, OPT, "fit()"], f"{BACK}\nfit()", "In [6] put `net` back to its beginning and trained it again, but",
    ),
    "in a function": (
        [KEEP, OPT, f"def again():\n    {BACK}\n    fit()", "again()"], "again()", "In [7] put `net` back",
    ),
    "in a loop": (
        [KEEP, OPT], f"for loss in (nn.functional.mse_loss, nn.functional.l1_loss):\n    {BACK}\n    fit(loss)",
        "In [5] puts `net` back to its beginning and trains it again in a loop",
    ),
    "put back at the end": ([KEEP, OPT, f"fit()\n{BACK}"], "fit()", "In [5] put `net` back"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_said_where_it_is_trained_again(notebook, name):
    cells, last, says = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == [], text
    [warning] = notebook.run(last)
    assert (warning["kind"], warning["level"], warning["row"]) == ("begun-again", "silent", "opt")
    assert says in warning["sentence"]["en"]
    assert all(warning[part]["zh"] for part in ("sentence", "explanation", "fix"))
    assert [each["kind"] for each in notebook.run("print('later')")] == ["begun-again"]
    assert notebook.run(OPT) == []


RIGHT = {
    "made anew": [KEEP, OPT, "fit()", f"{BACK}\n{OPT}", "fit()"],
    "made anew later": [KEEP, OPT, "fit()", BACK, OPT, "fit()"],
    "made anew by a function": [KEEP, "make()", "fit()", BACK, "make()\nfit()"],
    "made anew in a loop": [KEEP, OPT, f"for _ in range(2):\n    {BACK}\n    make()\n    fit()"],
    "the best state, only to look at": [
        KEEP, OPT, "fit()\nbest = copy.deepcopy(net.state_dict())", "fit()", "net.load_state_dict(best)", "net(X)",
    ],
    "the best state, and on": [
        OPT, "fit()\nbest = copy.deepcopy(net.state_dict())", "fit()", "net.load_state_dict(best)", "fit()",
    ],
    "the beginning, only to look at": [
        KEEP, OPT, "fit()\nlast = copy.deepcopy(net.state_dict())", BACK, "net(X).mean()", "net.load_state_dict(last)",
        "fit()",
    ],
    "with the optimizer's state": [
        f"{KEEP}\n{OPT}\nbegan = copy.deepcopy((opt.state_dict(), sched.state_dict()))", "fit()",
        f"{BACK}\nopt.load_state_dict(began[0])\nsched.load_state_dict(began[1])", "fit()",
    ],
    "with the optimizer's state, in one cell": [
        f"{KEEP}\n{OPT}\nbegan = copy.deepcopy((opt.state_dict(), sched.state_dict()))", "fit()",
        f"{BACK}\nopt.load_state_dict(began[0])\nsched.load_state_dict(began[1])\nfit()",
    ],
    "the rate set back": [
        KEEP, OPT, "fit()", f"{BACK}\nopt.state.clear()\nfor each in opt.param_groups:\n    each['lr'] = 0.02", "fit()",
    ],
    "a rate that stayed": [
        KEEP, f"{OPT}\nsched = S.ConstantLR(opt, 1.0)", "fit()", BACK, "fit()",
    ],
    "trained on": [KEEP, OPT, "fit()", "fit()", "fit()"],
    "only the head drawn anew": [KEEP, OPT, "fit()", "net[2].reset_parameters()", "fit()"],
    "held near to the beginning": [
        "start = {n: p.detach().clone() for n, p in net.named_parameters()}", OPT,
        NEAR, "fit(near)", "fit(near)",
    ],
    "put back where it has failed": [
        KEEP, OPT, f"for _ in range(2):\n    fit()\n    if not net(X).isfinite().all():\n        {BACK}",
    ],
    "given weights before the first training": [KEEP, OPT, "net[0].reset_parameters()", BACK, "fit()", "fit()"],
    "weights that were frozen": [
        f"for p in net.parameters():\n    p.requires_grad_(False)\n{OPT}\nnet[2].requires_grad_(True)", "fit()",
        "net[0].weight.mean()", "fit()",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_begins_anew_with_its_optimizer_is_right(notebook, name):
    for text in (START, *RIGHT[name]):
        assert [each for each in notebook.run(text) if each["kind"] == "begun-again"] == [], text
