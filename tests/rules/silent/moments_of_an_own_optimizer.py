"""An optimizer of one's own keeps moments that change in place in every step: they are no data, and are meant to."""

import torch
from torch import nn


class OwnAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})
        self.times = 0

    @torch.no_grad()
    def step(self):
        self.times += 1
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                m, v = state["m"], state["v"]
                m.mul_(first).add_(p.grad, alpha=1 - first)
                v.mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
                mean, spread = m / (1 - first**self.times), v / (1 - second**self.times)
                p.addcdiv_(mean, spread.sqrt().add_(1e-8), value=-group["lr"])


torch.manual_seed(0)
x = torch.randn(32, 4)
y = x.sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = OwnAdam(net.parameters())
for _ in range(6):
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    opt.step()
print(loss.item())
