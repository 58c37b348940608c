"""Gradients that no optimizer uses: a teacher, an average of weights, an encoder that was left out."""

from __future__ import annotations

import pytest

DATA = "X, Y = torch.randn(24, 5), torch.randint(0, 3, (24,))"
MAKE = (
    "import copy\n"
    "net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))\n"
    "opt = torch.optim.SGD(net.parameters(), 0.1)"
)
LOOP = """for _ in range(4):
    loss = nn.functional.mse_loss(net(X + 0.1 * torch.randn_like(X)), {target})
    opt.zero_grad(); loss.backward(); opt.step()
    {after}"""


@pytest.mark.parametrize(
    ("other", "after"),
    [
        ("nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))", "pass"),
        (
            "copy.deepcopy(net)",
            "torch._foreach_lerp_([*other.parameters()], [p.detach() for p in net.parameters()], 0.1)",
        ),
    ],
)
def test_a_teacher_that_collects_gradients(notebook, other, after):
    notebook.run(DATA)
    notebook.run(MAKE, "net")
    assert notebook.run(f"other = {other}\nfor p in other.parameters():\n    p.data.mul_(1)", "other") == []
    after = after if after == "pass" else f"with torch.no_grad():\n        {after}"
    [warning] = notebook.run(LOOP.format(target="other(X)", after=after), "loop")
    assert (warning["kind"], warning["row"], warning["level"]) == ("idle-gradients", "other", "note")
    assert warning["sentence"]["en"].startswith(
        "`loss.backward()` adds gradients to the 4 parameters of `other`, which no optimizer holds"
    )
    other = notebook.shell.user_ns["other"]
    other[0].weight.grad.fill_(1000.0)
    notebook.run(LOOP.format(target="other(X)", after=after), "loop")
    assert (other[0].weight.grad > 900).all()  # they are not cleared
    mended = "other.requires_grad_(False)\nother.zero_grad()\n" + LOOP.format(target="other(X)", after=after)
    assert notebook.run(mended, "loop") == []


def test_an_encoder_that_the_optimizer_was_not_given(notebook):
    notebook.run(DATA)
    notebook.run("encoder, head = nn.Linear(5, 8), nn.Linear(8, 3)\nopt = torch.optim.Adam(head.parameters())", "net")
    text = "for _ in range(3):\n    loss = nn.functional.cross_entropy(head(encoder(X).relu()), Y)\n"
    text += "    opt.zero_grad(); loss.backward(); opt.step()"
    [warning] = notebook.run(text, "loop")
    assert (warning["kind"], warning["row"]) == ("idle-gradients", "encoder")
    assert notebook.run("opt.add_param_group({'params': encoder.parameters()})\n" + text, "loop") == []
