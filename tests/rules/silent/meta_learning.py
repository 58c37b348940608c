"""MAML with functional_call, second order."""
import torch
from torch import nn
from torch.func import functional_call
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
outer = torch.optim.Adam(net.parameters(), lr=1e-2)
def batch(phase):
    x = torch.rand(10, 1) * 6 - 3
    return x, torch.sin(x + phase)
for _ in range(2):
    outer.zero_grad()
    for task in range(2):
        phase = torch.rand(1)
        params = dict(net.named_parameters())
        x, y = batch(phase)
        inner = nn.functional.mse_loss(functional_call(net, params, (x,)), y)
        grads = torch.autograd.grad(inner, params.values(), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(params.items(), grads)}
        x, y = batch(phase)
        (nn.functional.mse_loss(functional_call(net, fast, (x,)), y) / 2).backward()
    outer.step()
