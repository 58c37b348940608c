# An error at the write: a view made under no_grad is edited in grad mode.
import torch

base = torch.ones(4, requires_grad=True) * 1
with torch.no_grad():
    v = base[:2]
v.mul_(3)
