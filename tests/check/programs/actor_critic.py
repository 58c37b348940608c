# Actor and critic share a body and one optimizer, which is stepped between the two backwards.
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8))
actor = nn.Linear(8, 2)
critic = nn.Linear(8, 1)
opt = torch.optim.SGD([*body.parameters(), *actor.parameters(), *critic.parameters()], lr=0.1)

state, reward = torch.randn(5, 4), torch.randn(5)
features = torch.tanh(body(state))  # saved
values = critic(features).squeeze(-1)
logits = actor(features)
critic_loss = (reward - values).pow(2).mean()
actor_loss = -(torch.log_softmax(logits, dim=1)[:, 0] * (reward - values).detach()).mean()
opt.zero_grad()
critic_loss.backward(retain_graph=True)
opt.step()  # PL104 changed
actor_loss.backward()  # backward
opt.step()
