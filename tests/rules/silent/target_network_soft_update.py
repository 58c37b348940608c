"""Q-learning with a target network that follows slowly, outside the graph."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
def network():
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))


online, target = network(), network()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.RMSprop(online.parameters(), lr=1e-3)

for step in range(3):
    state, following = torch.randn(8, 3), torch.randn(8, 3)
    action, reward = torch.randint(0, 2, (8,)), torch.randn(8)
    with torch.no_grad():
        goal = reward + 0.9 * target(following).max(dim=1).values
    value = online(state).gather(1, action.unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), online.parameters()):
            slow.lerp_(fast, 0.05)
print(loss.item() >= 0)
