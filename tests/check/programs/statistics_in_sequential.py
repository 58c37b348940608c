# The train pass only logs a number, and moves the statistics on its way.
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 1))
images = torch.randn(4, 1, 3, 3)
model.eval()
loss = model(images).square().mean()  # saved
model.train()
print(model(2 * images).mean().item() < 10)  # PL305 changed
loss.backward()  # backward
