import torch
from torch import nn


class Trainer:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def learn(self, inputs, targets):
        error = nn.functional.mse_loss(self.net(inputs), targets)
        error.backward()  # PL601 backward
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()  # step
        return error.item()


torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)))
x, y = torch.randn(16, 3), torch.randn(16, 1)
for _ in range(3):
    print(round(trainer.learn(x, y), 4))
