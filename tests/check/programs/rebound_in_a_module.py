import torch
from torch import nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
m = M()
for i in range(2):
    (m.w ** 2).sum().backward()
    m.w = m.w - 0.1 * m.w.grad  # PL205 made
