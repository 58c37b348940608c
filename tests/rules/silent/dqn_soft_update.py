"""DQN as it should be, with a soft update of the target network."""
import random
from collections import deque, namedtuple
import torch
from torch import nn
Step = namedtuple("Step", "state action reward next_state done")
random.seed(0)
torch.manual_seed(0)
memory = deque(maxlen=100)
for _ in range(40):
    memory.append(Step(torch.randn(4), random.randrange(2), random.random(), torch.randn(4), random.random() < 0.1))
online, target = (nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)) for _ in range(2))
target.load_state_dict(online.state_dict())
optim = torch.optim.Adam(online.parameters(), lr=1e-3, amsgrad=True)
for update in range(3):
    batch = Step(*zip(*random.sample(list(memory), 8)))
    states, next_states = torch.stack(batch.state), torch.stack(batch.next_state)
    actions = torch.tensor(batch.action).unsqueeze(1)
    rewards, dones = torch.tensor(batch.reward), torch.tensor(batch.done)
    q = online(states).gather(1, actions)
    best = torch.zeros(8)
    with torch.no_grad():
        best[~dones] = target(next_states[~dones]).max(1).values
    loss = nn.SmoothL1Loss()(q, (rewards + 0.99 * best).unsqueeze(1))
    optim.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(online.parameters(), 100)
    optim.step()
    state = target.state_dict()
    for key, value in online.state_dict().items():
        state[key] = value * 0.005 + state[key] * 0.995
    target.load_state_dict(state)
