"""Losses that were given numbers of another shape or kind than they work on, told by their graphs alone."""

from __future__ import annotations

import pytest

DATA = "X, y, c = torch.randn(12, 4), torch.randn(12), torch.randint(0, 3, (12,))\nF = nn.functional"
NET = (
    "net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))\n"
    "many = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))"
)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        ("((net(X) - y) ** 2).mean()", "every-pair"),
        ("(y - net(X)).abs().mean().sqrt()", "every-pair"),
        ("(net(X).squeeze(1) - y.view(12, 1)).square().sum()", "every-pair"),
        ("-(y.sigmoid() * F.logsigmoid(net(X)) + (1 - y.sigmoid()) * F.logsigmoid(-net(X))).mean()", "every-pair"),
        ("0.5 * (net(X) - y).square().mean() + 0.1 * many(X).square().mean()", "every-pair"),
        ("F.cross_entropy(many(X).softmax(1), c)", "softmax-twice"),
        ("nn.CrossEntropyLoss()(F.softmax(many(X).view(12, 1, 3), 2).squeeze(1), c)", "softmax-twice"),
        ("nn.BCEWithLogitsLoss()(net(X).sigmoid().squeeze(1), (y > 0).float())", "sigmoid-twice"),
        ("F.nll_loss(many(X), c)", "no-logarithm"),
        ("F.nll_loss(many(X).softmax(1), c)", "no-logarithm"),
    ],
)
def test_it_is_said_before_backward(notebook, loss, kind):
    assert [notebook.run(DATA, "a"), notebook.run(NET, "b")] == [[], []]
    [warning] = notebook.run(f"loss = {loss}", "c")
    assert (warning["kind"], warning["row"], warning["level"]) == (kind, "loss", "silent")
    assert [(each["id"], each["line"]) for each in warning["cells"]] == [("c", 1)]
    notebook.run("loss.backward()", "d")
    assert [each["kind"] for each in notebook.page.last("warnings")["warnings"]] == [kind]  # it stays true
    assert notebook.run("loss = (net(X).squeeze(1) - y).square().mean()", "c") == []


@pytest.mark.parametrize("loss", ["F.mse_loss(net(X), y)", "F.l1_loss(net(X), y)", "F.smooth_l1_loss(net(X), y)"])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_torchs_own_losses_stretch_before_they_compare(notebook, loss):
    notebook.run(DATA + "\n" + NET, "a")
    [warning] = notebook.run(f"loss = {loss}", "c")
    assert (warning["kind"], warning["rule"]) == ("every-pair", "PL401")
    assert "12 × 12" in warning["sentence"]["en"]


@pytest.mark.parametrize(
    "loss",
    [
        "(net(X) - y.unsqueeze(1)).square().mean()",
        "(net(X)[:, 0] - y).square().mean()",
        "(net(X) - net(X).T).square().mean()",  # every pair, and meant
        "(torch.cdist(net(X), y.view(12, 1))).mean()",
        "(many(X) - many(X).mean(0)).square().mean()",
        "F.cross_entropy(many(X), c)",
        "F.nll_loss(many(X).log_softmax(1), c)",
        "F.nll_loss((many(X).softmax(1) + 1e-8).log(), c)",
        "F.kl_div(many(X).log_softmax(1), many(X).softmax(1).detach(), reduction='batchmean')",
        "F.cross_entropy(many(X), many(X).detach().softmax(1))",
        "F.binary_cross_entropy(net(X).sigmoid().squeeze(1), (y > 0).float())",
        "F.binary_cross_entropy_with_logits(net(X).squeeze(1), (y > 0).float())",
        "(net(X) * torch.randn(4)).square().mean()",
        "(many(X[:3]) - torch.eye(3)).square().mean()",
        "many(X)[:3].softmax(1).matmul(torch.ones(3)).sum()",
    ],
)
def test_what_is_as_it_should_be_is_not(notebook, loss):
    assert [notebook.run(DATA, "a"), notebook.run(NET, "b"), notebook.run(f"loss = {loss}", "c")] == [[], [], []]
