# Modules of many kinds: convolution, norm, dropout, embedding, GRU, attention; all mirrored or modelled, none refused.
import torch
from torch import nn

torch.manual_seed(3)
image = torch.rand(2, 1, 6, 6)
net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 2))
loss = net(image).sum()
loss.backward()
print(sorted((n, tuple(p.grad.shape)) for n, p in net.named_parameters()))
embedding = nn.Embedding(5, 4)
sequence, hidden = nn.GRU(4, 3, batch_first=True)(embedding(torch.tensor([[1, 2, 3]])))
print(sequence.shape, hidden.shape, nn.LayerNorm(4)(torch.ones(2, 4)).abs().max().item())
print(nn.functional.scaled_dot_product_attention(*torch.rand(3, 1, 2, 3, 4)).shape)
