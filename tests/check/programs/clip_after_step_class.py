import torch
from torch import nn


class Learner:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=0.01)

    def step(self, x, y):
        self.opt.zero_grad()
        loss = (self.net(x) - y).pow(2).mean()
        loss.backward()  # backward
        self.opt.step()  # step
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)  # PL603 changed
        return loss.item()


torch.manual_seed(0)
learner = Learner()
for _ in range(2):
    print(round(learner.step(torch.randn(6, 2), 10 * torch.randn(6, 1)), 3))
