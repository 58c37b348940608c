"""A target network takes over the weights every few rounds, straight from the state of the other one: two memories, one copy."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
online = nn.Linear(4, 2)
target = copy.deepcopy(online)
opt = torch.optim.SGD(online.parameters(), lr=0.1)
x, following, reward = torch.randn(30, 4), torch.randn(30, 4), torch.rand(30)
for step in range(12):
    with torch.no_grad():
        goal = reward + 0.9 * target(following).max(1).values
    loss = (online(x).max(1).values - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 4 == 3:
        state = online.state_dict()
        target.load_state_dict(state)
print(loss.item())
