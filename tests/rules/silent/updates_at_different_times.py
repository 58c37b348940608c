# The actor is updated every second round only, and the head warms up on detached features before all is trained: everything learns in the end.
import torch
from torch import nn

torch.manual_seed(0)
actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
for step in range(4):
    state = torch.randn(6, 3)
    action = actor(state).detach()
    critic_loss = (critic(torch.cat([state, action], dim=1)) - 1).square().mean()
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()
    if step % 2:
        actor_loss = -critic(torch.cat([state, actor(state)], dim=1)).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()

trunk, head = nn.Linear(4, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.05)
for epoch in range(4):
    features = torch.relu(trunk(torch.randn(8, 4)))
    if epoch < 2:
        features = features.detach()
    loss = head(features).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
