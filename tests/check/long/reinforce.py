"""Policy gradients with a value baseline on a walk of its own making."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(5)


class Walk:
    def reset(self):
        self.place, self.time = torch.zeros(2), 0
        return self.place

    def step(self, action):
        move = torch.tensor([0.2, 0.0]) if action == 1 else torch.tensor([-0.2, 0.1])
        self.place, self.time = self.place + move, self.time + 1
        return self.place, float(self.place[0]), self.time >= 12


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 16), nn.Tanh())
        self.actor, self.critic = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, state):
        hidden = self.body(state)
        return self.actor(hidden), self.critic(hidden)


def episode(policy, world):
    state, done = world.reset(), False
    log_probs, values, rewards = [], [], []
    while not done:
        logits, value = policy(state)
        choice = Categorical(logits=logits)
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        values.append(value.squeeze(-1))
        # planted: values.append(value)
        state, reward, done = world.step(action.item())
        rewards.append(reward)
    return torch.stack(log_probs), torch.stack(values), rewards


policy, world = Policy(), Walk()
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
for number in range(40):
    log_probs, values, rewards = episode(policy, world)
    returns, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + 0.95 * running
        returns.insert(0, running)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    advantage = returns - values.detach()
    loss = -(log_probs * advantage).sum() + 0.5 * (values - returns).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()
    if number % 10 == 9:
        print(number, round(sum(rewards), 2), round(loss.item(), 3))
