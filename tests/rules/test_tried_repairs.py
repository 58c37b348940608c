"""Repairs that are tried where the mistake has one of its other forms."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

PROGRAMS = {
    "PL627": """import torch
from torch import nn
torch.manual_seed(0)
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(3, 2), nn.Linear(2, 1)
state = {"model": Whole().state_dict()}
encoder = nn.Linear(3, 2)
encoder.load_state_dict(state["model"], strict=False)  # PL627
print(encoder(torch.ones(1, 3)))
""",
    "PL627 for a state that was saved by a wrapper and lost its head": """import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.head = nn.Linear(3, 2), nn.Linear(2, classes)
    def forward(self, x):
        return self.head(self.body(x).relu())
kept = {name: value for name, value in nn.DataParallel(Net(5)).state_dict().items() if "head" not in name}
net = Net(2)
net.load_state_dict(kept, strict=False)  # PL627
print(net(torch.ones(1, 3)))
""",
    "PL916": """import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler
torch.manual_seed(0)
def make(n):
    kind = (torch.arange(n) % 8 == 0).long()
    return torch.randn(n, 3), kind
def rare_first(labels):
    return 1.0 / torch.bincount(labels).float()
inputs, targets = make(64)
sampler = WeightedRandomSampler(rare_first(targets), num_samples=64)  # PL916
for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=16, sampler=sampler):
    print(y.float().mean())
""",
    "PL908": """import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 1))
x, y = torch.randn(16, 3), torch.randn(16, 1)
def fit(net, parameters, x):
    opt = torch.optim.SGD(parameters, 0.1)
    net.train()
    for _ in range(3):
        loss = nn.functional.mse_loss(net(x), y)  # PL908
        opt.zero_grad()
        loss.backward()
        opt.step()
fit(net, net.parameters(), x)
for p in net[0].parameters():
    p.requires_grad = False
fit(net, net[1].parameters(), x + 2)
net.eval()
print(net(x).mean())
""",
    "PL524": """import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    t = torch.rand(6, 1, requires_grad=True)
    y = net(t)
    slope = torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]  # PL524
    wanted = torch.cat([y[:, 1:2], -y[:, 0:1]], dim=1)
    loss = (slope - wanted).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    "PL504": """import torch
from torch import nn
torch.manual_seed(0)
codes, encode, decode = nn.Embedding(4, 2), nn.Linear(3, 2), nn.Linear(2, 3)
opt = torch.optim.SGD([*codes.parameters(), *encode.parameters(), *decode.parameters()], 0.1)
x = torch.randn(8, 3)
for _ in range(3):
    z = encode(x)
    q = codes(torch.cdist(z, codes.weight).argmin(1))
    q = z + (q - z).detach()  # PL504
    moved = nn.functional.mse_loss(q, z.detach())
    loss = nn.functional.mse_loss(decode(q), x) + moved
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(codes.weight.norm().item())
""",
}
SLOPE = """import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
start = torch.rand(6, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    t = torch.rand(6, 1, requires_grad=True)
    y = start + t * net(t)
    slope = torch.autograd.grad(y.sum(), t, create_graph=True)[0]
    loss = (slope + y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("code", PROGRAMS)
def test_a_repair_is_found(shop: Workshop, code: str) -> None:
    assert_found(shop, PROGRAMS[code], only=(code.partition(" ")[0],), repaired=True)


def test_a_start_value_matters_in_spite_of_its_slope(shop: Workshop) -> None:
    assert_quiet(shop, SLOPE)
