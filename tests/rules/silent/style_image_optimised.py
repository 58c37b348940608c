"""An image is the parameter; it is clamped under no_grad after each step."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
features = nn.Conv2d(1, 3, 3)
for parameter in features.parameters():
    parameter.requires_grad_(False)
goal = features(torch.rand(1, 1, 8, 8)).mean(dim=(2, 3))
image = torch.rand(1, 1, 8, 8, requires_grad=True)
optimizer = torch.optim.Adam([image], lr=0.05)
for _ in range(3):
    loss = F.mse_loss(features(image).mean(dim=(2, 3)), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        image.clamp_(0, 1)
print(image.min().item() >= 0)
