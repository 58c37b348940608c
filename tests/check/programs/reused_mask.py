# One mask for all steps of a sequence; backward needs it as it was at each step.
import torch

torch.manual_seed(0)
scores = torch.randn(4, 4, requires_grad=True)
mask = torch.zeros(4, 4, dtype=torch.bool)
picked = []
for step in range(3):
    mask[:, step] = True  # PL106 changed
    picked.append(scores.masked_fill(mask, 0.0).sum())  # saved
torch.stack(picked).sum().backward()  # backward
print(scores.grad)
