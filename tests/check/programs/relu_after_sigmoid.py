# ReLU written in place onto the result of sigmoid, which sigmoid needs for its gradient.
import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(6, requires_grad=True)
h = torch.sigmoid(x)  # saved
F.relu_(h)  # PL105 changed
loss = h.sum()
loss.backward()  # backward
