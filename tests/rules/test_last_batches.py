"""Gradients that are added up over several batches: those of the last batches of a pass, and right uses."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
x, y = torch.randn(22, 3), torch.randn(22, 1)
rows = torch.utils.data.TensorDataset(x, y)
loader = torch.utils.data.DataLoader(rows, batch_size=2)
model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
"""
WRONG = {
    "cleared by the next pass, in many rounds": HEAD
    + """
for epoch in range(12):
    opt.zero_grad()  # cleared
    for i, (a, b) in enumerate(loader):
        (F.mse_loss(model(a), b) / 4).backward()  # PL691
        if (i + 1) % 4 == 0:
            opt.step()  # step
            opt.zero_grad()
""",
    "the model clears, at the head of each group": HEAD
    + """
for epoch in range(3):
    for i, (a, b) in enumerate(loader):
        if i % 3 == 0:
            model.zero_grad()
        loss = F.mse_loss(model(a), b) / 3
        loss.backward()  # PL691
        if i % 3 == 2:
            opt.step()
""",
    "never used": HEAD
    + """
def fit():
    for i, (a, b) in enumerate(loader, 1):
        loss = F.mse_loss(model(a), b) / 2
        loss.backward()  # PL691
        if i % 2 == 0:
            opt.step()
            opt.zero_grad()
fit()
""",
    "they join the next pass": HEAD
    + """
for epoch in range(4):
    for i, (a, b) in enumerate(loader):
        loss = F.mse_loss(model(a), b) / 4
        loss.backward()  # PL691
        if (i + 1) % 4 == 0:
            opt.step()
            opt.zero_grad()
""",
}
RIGHT = {
    "a last update": HEAD
    + """
for epoch in range(4):
    for i, (a, b) in enumerate(loader):
        (F.mse_loss(model(a), b) / 4).backward()
        if (i + 1) % 4 == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()
""",
    "batches are counted through all passes": HEAD
    + """
seen = 0
for epoch in range(4):
    for a, b in loader:
        (F.mse_loss(model(a), b) / 4).backward()
        seen += 1
        if seen % 4 == 0:
            opt.step()
            opt.zero_grad()
""",
    "batches that are not finite are dropped": HEAD
    + """
x[8] = float("inf")
for epoch in range(4):
    for i, (a, b) in enumerate(loader):
        loss = F.mse_loss(model(a), b)
        loss.backward()
        if not torch.isfinite(loss):
            opt.zero_grad()
            continue
        opt.step()
        opt.zero_grad()
""",
    "a generator and a discriminator": HEAD
    + """
judge = nn.Linear(1, 1)
opt_judge = torch.optim.SGD(judge.parameters(), lr=0.01)
for epoch in range(3):
    for a, b in loader:
        opt_judge.zero_grad()
        F.softplus(-judge(b)).mean().backward()
        F.softplus(judge(model(a).detach())).mean().backward()
        opt_judge.step()
        opt.zero_grad()
        F.softplus(-judge(model(a))).mean().backward()
        opt.step()
""",
    "two losses per batch, and a probe of the gradient": HEAD
    + """
for epoch in range(3):
    for a, b in loader:
        opt.zero_grad()
        F.mse_loss(model(a), b).backward()
        model.weight.square().sum().backward()
        opt.step()
model.zero_grad()
F.mse_loss(model(x), y).backward()
print(model.weight.grad.norm())
""",
}


def test_last_batches_without_an_update_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_right_accumulation_is_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
