import torch
from torch import nn
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (z.view(n, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        a = torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v
        merged = a.transpose(1, 2).view(n, t, c)  # PL406 used
        return self.out(merged)
net = Attention(8, 2)
net(torch.randn(2, 3, 8)).mean().backward()
