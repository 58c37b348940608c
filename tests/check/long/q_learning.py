"""Q learning with a replay memory and a target network that follows now and then."""

import copy
import random

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(6)
random.seed(6)


class Line:
    def reset(self):
        self.place, self.time = 0.0, 0
        return torch.tensor([self.place, 0.0])

    def step(self, action):
        self.place += 0.1 if action else -0.1
        self.time += 1
        return torch.tensor([self.place, self.time / 10]), -abs(self.place - 0.5), self.time >= 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        return self.layers(x)


online = Net()
target = copy.deepcopy(online)
# planted: target = online
optimizer = torch.optim.Adam(online.parameters(), lr=1e-2)
memory, world, updates = [], Line(), 0


def learn():
    batch = random.sample(memory, 16)
    states = torch.stack([item[0] for item in batch])
    actions = torch.tensor([item[1] for item in batch])
    rewards = torch.tensor([item[2] for item in batch])
    following = torch.stack([item[3] for item in batch])
    ended = torch.tensor([item[4] for item in batch], dtype=torch.float32)
    values = online(states).gather(1, actions[:, None]).squeeze(1)
    with torch.no_grad():
        goal = rewards + 0.9 * (1 - ended) * target(following).max(1).values
    loss = F.smooth_l1_loss(values, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for episode in range(16):
    state, done, total = world.reset(), False, 0.0
    epsilon = max(0.1, 1 - episode / 10)
    while not done:
        if random.random() < epsilon:
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = online(state).argmax().item()
        following, reward, done = world.step(action)
        memory.append((state, action, reward, following, done))
        state, total = following, total + reward
        if len(memory) >= 32:
            learn()
            updates += 1
            if updates % 20 == 0:
                target.load_state_dict(online.state_dict())
    if episode % 4 == 3:
        print(episode, round(total, 2))
