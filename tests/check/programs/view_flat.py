# The write goes through view(-1), and what it breaks is the multiplication that saved its input.
import torch

w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
weights = w * 2
out = weights * weights  # saved
weights.view(-1)[0] = 100.0  # PL101 changed
loss = out.sum() + weights.sum()
loss.backward()  # backward
