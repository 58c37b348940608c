"""Two losses of one forward pass: the first backward keeps the graph for the second."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
body, left, right = nn.Linear(3, 8), nn.Linear(8, 1), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*body.parameters(), *left.parameters(), *right.parameters()], lr=0.1)
h = torch.tanh(body(torch.randn(6, 3)))
first = left(h).square().mean()
second = F.cross_entropy(right(h), torch.randint(0, 2, (6,)))
optimizer.zero_grad()
first.backward(retain_graph=True)
second.backward()
optimizer.step()
print(first.item() >= 0)
