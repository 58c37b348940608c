"""Experiences are stored as detached copies and stacked later."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(3, 2)
memory = []
state = torch.randn(3)
for _ in range(5):
    with torch.no_grad():
        action = policy(state).argmax().item()
    following = state + 0.1 * torch.randn(3)
    memory.append((state.clone(), action, following.clone()))
    state = following
states = torch.stack([s for s, _, _ in memory])
actions = torch.tensor([a for _, a, _ in memory])
loss = F.cross_entropy(policy(states), actions)
loss.backward()
print(len(memory))
