"""NumPy is used for a report, on detached copies and after backward."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
x = torch.randn(6, 2)
prediction = model(x)
loss = prediction.square().mean()
loss.backward()
report = prediction.detach().numpy().copy()
report *= 100
weights = model.weight.detach().numpy()
print(np.round(report.mean() * 0, 1), weights.shape)
