"""Actor and critic share a body; one backward, then one step."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
body, actor, critic = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)
parameters = [p for part in (body, actor, critic) for p in part.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
for _ in range(2):
    h = torch.relu(body(torch.randn(8, 4)))
    policy = torch.distributions.Categorical(logits=actor(h))
    action, value = policy.sample(), critic(h).squeeze(-1)
    returns = torch.randn(8)
    advantage = (returns - value).detach()
    loss = -(policy.log_prob(action) * advantage).mean() + F.mse_loss(value, returns) - 0.01 * policy.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.isfinite(loss).item())
