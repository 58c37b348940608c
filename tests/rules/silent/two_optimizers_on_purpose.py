"""Losses that reach the parameters of several optimizers, and are meant to: GAN, shared encoder, actor and critic, DDPG."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
make = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
judge = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
for_make, for_judge = torch.optim.Adam(make.parameters()), torch.optim.Adam(judge.parameters())
for _ in range(4):
    real = torch.randn(16, 2) + 2
    for_judge.zero_grad()
    loss = F.softplus(-judge(real)).mean() + F.softplus(judge(make(torch.randn(16, 4)))).mean()
    loss.backward()
    for_judge.step()
    for_make.zero_grad()  # what the judge's loss left is cleared
    F.softplus(-judge(make(torch.randn(16, 4)))).mean().backward()
    for_make.step()

encoder, classes, amount = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
steps = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (encoder, classes, amount)]
for _ in range(4):
    x = torch.randn(16, 4)
    for each in steps:
        each.zero_grad()
    F.cross_entropy(classes(encoder(x).relu()), torch.randint(0, 2, (16,))).backward()
    steps[1].step()
    F.mse_loss(amount(encoder(x).relu()).squeeze(1), x.sum(1)).backward()
    steps[2].step()
    steps[0].step()

trunk, policy, value = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
for_policy = torch.optim.Adam([*trunk.parameters(), *policy.parameters()])
for_value = torch.optim.Adam(value.parameters())
for _ in range(4):
    x = torch.randn(16, 4)
    h, returns = trunk(x).tanh(), x.sum(1)
    for_policy.zero_grad()
    for_value.zero_grad()
    v = value(h).squeeze(1)
    F.mse_loss(v, returns).backward(retain_graph=True)
    for_value.step()
    chosen = torch.log_softmax(policy(h), 1)[:, 0]
    (-(chosen * (returns - v.detach()))).mean().backward()
    for_policy.step()

actor, critic = nn.Linear(3, 1), nn.Linear(4, 1)
for_actor, for_critic = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
for _ in range(4):
    state, action, reward = torch.randn(8, 3), torch.randn(8, 1), torch.randn(8, 1)
    for_critic.zero_grad()
    for_actor.zero_grad()
    F.mse_loss(critic(torch.cat([state, action], 1)), reward).backward()
    for_critic.step()
    (-critic(torch.cat([state, actor(state)], 1))).mean().backward()
    for_actor.step()
print(loss.item())
