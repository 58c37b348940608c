"""Proximal policy optimization on a little walk: rollouts, generalized advantages, clipped surrogate, value loss."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
GAMMA, LAMBDA, CLIP, HORIZON = 0.99, 0.95, 0.2, 32


class Walk:
    """Find the goal at the right end of a corridor."""

    def __init__(self, length=7):
        self.length, self.place = length, length // 2

    def reset(self):
        self.place, self.left = self.length // 2, 20
        return self.seen()

    def seen(self):
        return torch.tensor([self.place / self.length, self.left / 20 if hasattr(self, "left") else 1.0])

    def step(self, action):
        self.place += 1 if action == 1 else -1
        self.left -= 1
        won, lost = self.place >= self.length, self.place < 0
        return self.seen(), 1.0 if won else -1.0 if lost else -0.02, won or lost or self.left == 0


class ActorCritic(nn.Module):
    def __init__(self, inputs, actions, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return Categorical(logits=self.policy(hidden)), self.value(hidden)


@torch.no_grad()
def rollout(walk, model):
    seen, actions, chances, rewards, values, ends = [], [], [], [], [], []
    state = walk.reset()
    for _ in range(HORIZON):
        policy, value = model(state)
        action = policy.sample()
        following, reward, done = walk.step(action.item())
        seen.append(state)
        actions.append(action)
        chances.append(policy.log_prob(action))
        rewards.append(reward)
        values.append(value.item())
        ends.append(done)
        state = walk.reset() if done else following
    return torch.stack(seen), torch.stack(actions), torch.stack(chances), rewards, values, ends


def advantages_of(rewards, values, ends):
    advantages, following, carried = [], values[-1], 0.0
    for reward, value, done in zip(reversed(rewards), reversed(values), reversed(ends)):
        alive = 0.0 if done else 1.0
        surprise = reward + GAMMA * following * alive - value
        carried = surprise + GAMMA * LAMBDA * alive * carried
        advantages.append(carried)
        following = value
    advantages = torch.tensor(advantages[::-1])
    return advantages, advantages + torch.tensor(values)


walk = Walk()
model = ActorCritic(2, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for update in range(2):
    seen, actions, old_chances, rewards, values, ends = rollout(walk, model)
    advantages, returns = advantages_of(rewards, values, ends)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for epoch in range(2):
        policy, predicted = model(seen)
        ratio = (policy.log_prob(actions) - old_chances).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        value_loss = ((predicted - returns) ** 2).mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    print(update, sum(rewards), value_loss.item())
