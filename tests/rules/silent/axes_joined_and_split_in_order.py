# Heads, patches, groups, both directions, time folded into the batch: axes that are joined or split where they stand.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
n, length, heads, size = 2, 5, 4, 2
width = heads * size
query, key, value, out = (nn.Linear(width, width) for _ in range(4))
x = torch.randn(n, length, width)
q, k, v = (layer(x).view(n, length, heads, size).transpose(1, 2) for layer in (query, key, value))
mixed = (q @ k.mT / size**0.5).softmax(-1) @ v
y = out(mixed.transpose(1, 2).reshape(n, length, width))
same = (y.view(-1, width) @ torch.randn(width, 3)).view(n, length, 3)

image = torch.randn(2, 3, 8, 8)
patches = image.reshape(2, 3, 4, 2, 4, 2).permute(0, 2, 4, 3, 5, 1).reshape(2, 16, 12)
tokens = nn.Linear(12, 6)(patches)
finer = nn.Conv2d(3, 12, 3, padding=1)(image).view(2, 3, 2, 2, 8, 8).permute(0, 1, 4, 2, 5, 3).reshape(2, 3, 16, 16)
grouped = nn.Conv2d(3, 6, 1)(image).view(2, 3, 2, 8, 8)
grouped = (grouped - grouped.mean(dim=(2, 3, 4), keepdim=True)).view(2, 6, 8, 8) * torch.rand(6, 1, 1)

_, (last, _) = nn.LSTM(4, 3, num_layers=2, bidirectional=True)(torch.randn(5, 6, 4))
layers = last.view(2, 2, 6, 3)
read = nn.Linear(6, 1)(torch.cat([layers[-1, 0], layers[-1, 1]], dim=-1))
scores = nn.Conv2d(3, 5, 1)(image)
pixels = F.cross_entropy(scores.permute(0, 2, 3, 1).reshape(-1, 5), torch.randint(0, 5, (128,)))
folded = nn.Linear(4, 4)(torch.randn(3, 7, 4).flatten(0, 1)).unflatten(0, (3, 7)) * torch.rand(7, 4)
pooled, _ = nn.MultiheadAttention(8, 2)(torch.randn(5, 3, 8), torch.randn(5, 3, 8), torch.randn(5, 3, 8))

(same.sum() + tokens.sum() + (finer * torch.rand(16)).sum() + grouped.sum() + read.sum() + pixels + folded.sum() + pooled.sum()).backward()
