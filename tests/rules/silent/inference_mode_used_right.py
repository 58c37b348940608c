import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 2)
x = torch.randn(4, 3)
with torch.inference_mode():
    before = model(x)
    before += 1
    mean = before.mean()
loss = (model(x) - before.clone()).square().mean()
loss.backward()
print(mean, before.argmax(-1).tolist())
