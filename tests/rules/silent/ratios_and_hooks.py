"""Old policies kept without a graph, twins and dropout compared, hooks that are removed, results that are not needed."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
states, actions, gains = torch.randn(6, 3), torch.randint(0, 2, (6, 1)), torch.randn(6, 1)
with torch.no_grad():
    old = F.log_softmax(policy(states), 1).gather(1, actions)
for _ in range(3):
    new = F.log_softmax(policy(states), 1).gather(1, actions)
    ratio = (new - old).exp()
    on_policy = (new - new.detach()).exp()
    loss = -(torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean() + (on_policy * gains).mean())
    opt.zero_grad()
    loss.backward()
    opt.step()

one, two = nn.Linear(3, 1), nn.Linear(3, 1)
two.load_state_dict(one.state_dict())
drop = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
opt = torch.optim.SGD([*one.parameters(), *two.parameters(), *drop.parameters()], lr=0.1)
for _ in range(3):
    apart = (one(states) - two(states)).square().mean() + (drop(states) - drop(states)).square().mean()
    augmented = (one(states) - one(states + 0.1 * torch.randn_like(states))).square().mean()
    loss = apart + augmented + F.mse_loss(one(states), gains) + F.mse_loss(two(states[:, :3]), -gains)
    opt.zero_grad()
    loss.backward()
    opt.step()

# hooks: on a value of the round, and on a weight until the round's end
seen = []
for _ in range(3):
    handle = one.weight.register_hook(lambda g: g * 0.5)
    watching = one.register_forward_hook(lambda module, given, result: seen.append(result.detach().mean()))
    out = one(states)
    out.register_hook(lambda g: g.clamp(-1, 1))
    opt.zero_grad()
    out.square().mean().backward()
    opt.step()
    handle.remove()
    watching.remove()


def remembered(g):
    return g * 1.0


# as many calls more in each round, but of a function that the program calls itself
for length in range(1, 4):
    text = torch.zeros(1, 3)
    for _ in range(length):
        text = remembered(text)
    opt.zero_grad()
    (one(text).sum() + two(text).sum()).backward()
    opt.step()

began = time.perf_counter()
for _ in range(3):
    torch.relu(states)
    states.mul(2)
print(time.perf_counter() > began)
try:
    states.view(5, 5)
except RuntimeError:
    states.add_(0)
policy(states)
gains.clamp_(-1, 1)
states.requires_grad_(False)
torch.add(states, 1, out=torch.empty(6, 3))
print(len(seen), states.sum().item())
