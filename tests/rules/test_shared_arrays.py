"""Arrays that are written again after tensors of them were kept: other forms, and right programs like them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import random
from collections import deque

import numpy as np
import torch

torch.manual_seed(0)
random.seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

class Room:
    def __init__(self):
        self.place = np.zeros(2, dtype=np.float32)

    def reset(self):
        self.place[:] = 0
        return self.place

    def step(self, move):
        self.place += move
        return self.place, -float(abs(self.place).sum())

def learn(states, rewards):
    loss = (net(states).squeeze(1) - rewards).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRONG = {
    "an attribute that two methods hand out": """
import numpy as np
import torch

class Cart:
    def reset(self, start):
        self.state = np.array(start, dtype=np.float32)
        return self.state
    def step(self, force):
        self.state[1] += 0.1 * force
        self.state[0] += 0.1 * self.state[1]
        return self.state, -float(abs(self.state[0]))

def episode(cart, start):
    states, rewards = [], []
    place = cart.reset(start)
    for _ in range(5):
        states.append(torch.from_numpy(place))  # PL701
        place, reward = cart.step(1.0)
        rewards.append(reward)
    return torch.stack(states), torch.tensor(rewards)

print(episode(Cart(), [0.5, 1.0]))
""",
    "a memory of pairs": HEAD
    + """
class Memory:
    def __init__(self):
        self.items = []
    def push(self, state, reward):
        self.items.append((torch.from_numpy(state), reward))  # PL701
    def sample(self, n):
        states, rewards = zip(*random.sample(self.items, n))
        return torch.stack(states), torch.tensor(rewards)

room, memory = Room(), Memory()
for episode in range(10):
    state = room.reset()
    for t in range(10):
        state, reward = room.step(random.choice([0.1, -0.1]))
        memory.push(state, reward)
        if len(memory.items) > 16:
            learn(*memory.sample(8))
""",
    "a deque of dictionaries": HEAD
    + """
room, seen = Room(), deque(maxlen=50)
for t in range(60):
    if t % 10 == 0:
        now = room.reset()
    now, reward = room.step(0.1)
    seen.append({"state": torch.as_tensor(now), "reward": reward})  # PL701
    if len(seen) >= 20:
        batch = random.sample(list(seen), 6)
        learn(torch.stack([b["state"] for b in batch]), torch.tensor([b["reward"] for b in batch]))
""",
    "two lists and a generator": HEAD
    + """
def walk(n):
    at = np.zeros(2, dtype=np.float32)
    for i in range(n):
        at += np.float32(0.5)
        yield at, float(i)

xs, ys = [], []
for x, y in walk(8):
    xs.append(torch.from_numpy(x))  # PL701
    ys.append(y)
    if len(xs) > 3:
        learn(torch.stack(xs[-3:]), torch.tensor(ys[-3:]))
""",
}
RIGHT = {
    "the room hands out copies": (HEAD.replace("return self.place,", "return self.place.copy(),"))
    + """
room, items = Room(), []
for t in range(40):
    state, reward = room.step(random.choice([0.1, -0.1]))
    items.append((torch.from_numpy(state), reward))
    if len(items) > 16:
        states, rewards = zip(*random.sample(items, 8))
        learn(torch.stack(states), torch.tensor(rewards))
""",
    "the memory copies": HEAD
    + """
room, items = Room(), []
for t in range(40):
    state, reward = room.step(random.choice([0.1, -0.1]))
    items.append((torch.tensor(state), reward))
    if len(items) > 16:
        states, rewards = zip(*random.sample(items, 8))
        learn(torch.stack(states), torch.tensor(rewards))
""",
    "used at once": HEAD
    + """
room = Room()
for t in range(40):
    state, reward = room.step(random.choice([0.1, -0.1]))
    learn(torch.from_numpy(state)[None], torch.tensor([reward]))
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
