import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
query, key, value, head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
parameters = [each for layer in (query, key, value, head) for each in layer.parameters()]
opt = torch.optim.SGD(parameters, lr=0.1)
words = torch.randn(2, 3, 7, 6)
padding = torch.arange(7) >= torch.tensor([[[7], [5], [3]], [[4], [0], [6]]])
for x, mask in zip(words.flip(0), padding.flip(0), strict=True):
    scores = query(x) @ key(x).transpose(1, 2)
    scores = scores.masked_fill(mask[:, None], float("-inf"))
    weights = F.softmax(scores, dim=-1)  # PL808
    out = (weights @ value(x)).masked_fill(mask[..., None], 0.0).sum(1)
    loss = head(out).square().mean()
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
