"""Attributes that torch does not read: misspelt on a parameter, set on a module, set on an optimizer."""

from __future__ import annotations

import pytest

NET = (
    "net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))\nopt = torch.optim.SGD(net.parameters(), lr=0.1)"
)


@pytest.mark.parametrize(
    ("text", "row", "words", "mended"),
    [
        (
            "for p in net[0].parameters():\n    p.require_grad = False", "net\x1f0\x1fweight",
            ("`require_grad = False` was set on `net.0.weight` and 1 more, but torch does not read that name: "
            "`requires_grad` is still"),
            "for p in net[0].parameters():\n    p.requires_grad = False",
        ),
        (
            "net[0].requires_grad = False", "net\x1f0",
            "`requires_grad = False` was set on the module `net.0`, which stores it and does nothing",
            "net[0].requires_grad_(False)",
        ),
        (
            "opt.lr = 0.01", "opt",
            "`lr = 0.01` was set on `opt`, but `step()` does not read it: `lr` is still 0.1 in its parameter groups.",
            "for group in opt.param_groups:\n    group['lr'] = 0.01",
        ),
        ("opt.learning_rate = 0.01", "opt", "`lr` is still 0.1", "opt.param_groups[0]['lr'] = 0.01"),
    ],
)  # fmt: skip
def test_it_is_said_until_torch_has_it(notebook, text, row, words, mended):
    assert notebook.run(NET, "net") == []
    [warning] = notebook.run(text, "set")
    assert (warning["row"], warning["level"]) == (row, "silent")
    assert words in warning["sentence"]["en"]
    [again] = notebook.run("1 + 1", "other")
    assert again["cells"] == warning["cells"]
    assert [each["count"] for each in again["cells"]] == [3]
    assert notebook.run(mended, "mended") == []
