import torch
from torch import nn

torch.manual_seed(0)
conv = nn.Conv2d(3, 4, 3, padding=1)
image = torch.randn(2, 5, 5, 3)
out = conv(image.view(2, 3, 5, 5))  # PL407 made used
out.mean().backward()
