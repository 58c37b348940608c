import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 8), nn.Tanh())
        self.score = nn.Linear(8, 1)

    def forward(self, points):
        return self.score(self.body(points)).squeeze(1)


torch.manual_seed(0)
maker, critic = nn.Linear(3, 2), Critic()
maker_opt = torch.optim.SGD(maker.parameters(), lr=0.1)
critic_opt = torch.optim.SGD(critic.parameters(), lr=0.1)
judge = nn.BCEWithLogitsLoss()
for real in torch.randn(2, 5, 2):
    fake = maker(torch.randn(5, 3)).detach()  # PL504 cut
    loss = judge(critic(real), torch.ones(5)) + judge(critic(fake), torch.zeros(5))
    critic_opt.zero_grad()
    loss.backward()
    critic_opt.step()
    maker_loss = judge(critic(fake), torch.ones(5))
    maker_opt.zero_grad()
    maker_loss.backward()  # backward
    maker_opt.step()
