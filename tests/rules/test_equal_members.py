"""Ensembles whose members are copies of one network, so that their spread is 0: in several forms, and right programs
that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

MEMBERS = """
import copy
from torch.func import functional_call, stack_module_state, vmap
x, y = torch.randn(12, 2), torch.randn(12, 1)

def make():
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))

def fit(net, x, y):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        update(opt, F.mse_loss(net(x), y))

first = make()
"""
BAGGED = """
x, y = torch.randn(30, 2).double(), torch.randn(30).double()

def slopes(rows):
    a, b = x[rows], y[rows]
    return torch.linalg.solve(a.T @ a, a.T @ b)
"""
WRONG = {
    "fits to all rows in another order, with limits of each coefficient": BAGGED + """
def again():
    return torch.randperm(30)  # PL850
fits = torch.stack([slopes(again()) for _ in range(70)])
print(fits.quantile(0.05, dim=0), fits.quantile(0.95, dim=0))
""",
    "predictions of trained copies": MEMBERS + """
members = [copy.deepcopy(first) for _ in range(4)]  # PL850
for net in members:
    fit(net, x, y)
with torch.no_grad():
    print(torch.stack([net(x) for net in members]).std(0).mean())
""",
    "in a loop, with append": MEMBERS + """
members = []
for _ in range(3):
    net = copy.deepcopy(first)  # PL850
    fit(net, x, y)
    members.append(net)
with torch.no_grad():
    print(torch.cat([net(x[:1]) for net in members]).var(dim=0))
""",
    "a class": MEMBERS + """
class Ensemble(nn.Module):
    def __init__(self, net, count):
        super().__init__()
        self.nets = nn.ModuleList([copy.deepcopy(net) for _ in range(count)])  # PL850
    def forward(self, x):
        return torch.stack([net(x) for net in self.nets])
both = Ensemble(first, 5)
print(both(x).std(dim=0))
""",
    "stacked for a vmap": MEMBERS + """
nets = [copy.deepcopy(first) for _ in range(3)]  # PL850
params, buffers = stack_module_state(nets)
out = vmap(lambda p, x: functional_call(first, p, (x,)), in_dims=(0, None))(params, x)
print(out.std(0).max())
""",
    "one number of each": MEMBERS + """
nets = [copy.deepcopy(first) for _ in range(3)]  # PL850
params, buffers = stack_module_state(nets)
out = vmap(lambda p, x: functional_call(first, p, (x,)), in_dims=(0, None))(params, x[:1])
print(out.std())
""",
    "the first one is among them": MEMBERS + """
members = [first, copy.deepcopy(first), copy.deepcopy(first)]  # PL850
answers = torch.stack([net(x).sigmoid().mean() for net in members])
print(answers.std())
""",
}  # fmt: skip
RIGHT = {
    "fits to rows drawn with replacement, and to shuffled targets": BAGGED + """
fits = torch.stack([slopes(torch.randint(30, (30,))) for _ in range(70)])
print(fits.quantile(0.05, dim=0), fits.quantile(0.95, dim=0))
by_chance = torch.stack([torch.linalg.lstsq(x, y[torch.randperm(30), None]).solution[:, 0] for _ in range(70)])
print(by_chance.quantile(0.05, dim=0), by_chance.quantile(0.95, dim=0))
""",
    "members of their own": MEMBERS + """
members = [make() for _ in range(4)]
for net in members:
    fit(net, x, y)
with torch.no_grad():
    print(torch.stack([net(x) for net in members]).std(0).mean())
""",
    "copies that see their own data": MEMBERS + """
members = [copy.deepcopy(first) for _ in range(4)]
for net in members:
    rows = torch.randint(0, 12, (12,))
    fit(net, x[rows], y[rows])
with torch.no_grad():
    print(torch.stack([net(x) for net in members]).std(0).mean())
""",
    "copies that are initialised anew": MEMBERS + """
members = [copy.deepcopy(first) for _ in range(4)]
for net in members:
    nn.init.normal_(net[0].weight)
print(torch.stack([net(x) for net in members]).std(0).mean())
""",
    "stacks of different members": MEMBERS + """
params, buffers = stack_module_state([make() for _ in range(3)])
out = vmap(lambda p, x: functional_call(first, p, (x,)), in_dims=(0, None))(params, x)
print(out.std(0).max())
""",
    "a copy that is compared with its original": MEMBERS + """
old = copy.deepcopy(first)
fit(first, x, y)
print((old(x) - first(x)).std())
""",
    "the mean of copies": MEMBERS + """
members = [copy.deepcopy(first) for _ in range(3)]
print(torch.stack([net(x) for net in members]).mean(0))
""",
}  # fmt: skip


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
