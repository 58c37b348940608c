"""After training one entry of the state is replaced and all are loaded back: the other entries are copied onto themselves, on purpose."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
x, y = torch.randn(40, 4), torch.randint(0, 2, (40,))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(10):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
state = net.state_dict()
state["2.bias"] = torch.zeros(2)
net.load_state_dict(state)
print(net(x).argmax(1).float().mean())
