# Actor and critic share a body; the fused optimizer steps between the two backwards, and nothing is raised.
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8))
    actor, critic = nn.Linear(8, 2), nn.Linear(8, 1)
    parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    opt = torch.optim.AdamW(parameters, lr=0.1, fused=True)
    state, reward = torch.randn(5, 4), torch.randn(5)
    features = torch.tanh(body(state))  # saved
    logits = actor(features)
    value_loss = (reward - critic(features).squeeze(-1)).square().mean()
    opt.zero_grad()
    value_loss.backward(retain_graph=True)
    opt.step()  # PL304 changed
    policy_loss = -torch.log_softmax(logits, dim=1)[:, 0].mean()
    policy_loss.backward()  # backward
    opt.step()


main()
