"""What a row says of an object, and what stands below it when it is unfolded."""

from __future__ import annotations

import pytest

NET = """net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
opt = torch.optim.SGD(net[0].parameters(), 0.1)
net[1].bias.requires_grad_(False)"""
MADE = """x = torch.ones(4, 3, dtype=torch.float64)
w = torch.ones(3, requires_grad=True)
y = (w * w).double()
z = x @ y
array = x.numpy()[1:]
view = x[0]"""
STEP = "net(torch.ones(4, 3)).sum().backward()\nopt.step()"


def test_a_row_says_shape_dtype_device_bytes_memory_version_and_gradient(notebook):
    notebook.run(MADE)
    notebook.run("x.add_(1)\n(w * 2).sum().backward()")
    rows = notebook.rows()
    x, w, y, z = (rows[name] for name in "xwyz")
    assert (x["shape"], x["dtype"], x["device"], x["bytes"], x["version"], x["changed"]) == (
        [4, 3],
        "float64",
        "cpu",
        96,
        [0, 1],
        True,
    )
    assert x["storage"] == rows["view"]["storage"] == rows["array"]["storage"] != w["storage"]
    assert (x["grad"], w["grad"], y["grad"], z["grad"], z["grad_fn"]) == (
        "none",
        "leaf",
        "graph",
        "graph",
        "MvBackward0",
    )
    assert (w["has_grad"], x["has_grad"], w["changed"], rows["view"]["changed"]) == (True, False, True, True)
    assert [(each["node"], each["cell"]) for each in w["saved_by"]] == [("MulBackward0", 2)] * len(w["saved_by"]) != []
    assert (rows["array"]["kind"], rows["array"]["shape"]) == ("array", [3, 3])


def test_modules_and_optimizers_unfold_to_their_parameters(notebook):
    notebook.run(NET)
    assert (notebook.rows()["net"]["kind"], notebook.rows()["opt"]["kind"]) == ("module", "optimizer")
    [first] = [row for row in notebook.unfold("net").values() if row["id"] == "net\x1f0"]
    assert first["children"] == 2
    inside = notebook.unfold(first["id"])
    assert {name.rpartition(".")[2]: row["detail"]["optimizer"] for name, row in inside.items()} == {
        "weight": "opt",
        "bias": "opt",
    }
    notebook.run("old = net[0].weight.detach().clone()\n" + STEP)
    weight = next(row for name, row in notebook.unfold("net\x1f0").items() if name.endswith("weight"))
    now = notebook.shell.user_ns
    change = (now["net"][0].weight.detach() - now["old"]).norm() / now["old"].norm()
    assert weight["detail"]["ratio"] == pytest.approx(change.item(), rel=1e-5)
    assert weight["detail"]["grad_norm"] == pytest.approx(now["net"][0].weight.grad.norm().item(), rel=1e-5)
    assert weight["has_grad"] is True
    last = {name.rpartition(".")[2]: row["detail"] for name, row in notebook.unfold("net\x1f1").items()}
    assert (last["bias"]["frozen"], last["weight"]["frozen"], last["weight"]["optimizer"]) == (True, False, None)
    held = notebook.unfold("opt")
    assert {name.rpartition(".")[2] for name in held} == {"weight", "bias"}
