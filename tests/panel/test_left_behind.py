"""Parameters that a loss depends on and no optimizer holds: of the loss of this training, not of an earlier one."""

from __future__ import annotations

START = """torch.manual_seed(0)
X, Y = torch.randn(64, 4), torch.randn(64, 1)
ae = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4))
opt = torch.optim.SGD(ae.parameters(), lr=0.05)
for _ in range(3):
    loss = (ae(X) - X).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()"""
HEAD = "head = nn.Linear(3, 1)\nopt = torch.optim.SGD([*ae[0].parameters(), *head.parameters()], lr=0.05)"
ON_THE_CODE = "loss = (head(ae[0](X)) - Y).square().mean()\nopt.zero_grad()\nloss.backward()\nopt.step()"
THROUGH_ALL = "loss = (ae(X) - X).square().mean()\nopt.zero_grad()\nloss.backward()\nopt.step()"


def _found(notebook, cells):
    warnings = [each for text in (START, *cells) for each in notebook.run(text)]
    return [each["sentence"]["en"] for each in warnings if each["kind"] == "left-out"]


def test_a_loss_of_before_the_optimizer_says_nothing(notebook):
    assert _found(notebook, [HEAD, ON_THE_CODE]) == []


def test_a_loss_that_was_computed_since_does(notebook):
    (said,) = _found(notebook, [HEAD, THROUGH_ALL])
    assert "`ae.2.weight` and 1 more" in said
