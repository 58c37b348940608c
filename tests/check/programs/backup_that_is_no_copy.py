# "to" is taken for a copy: the values before the update are kept, and then compared with what they became.
import torch

torch.manual_seed(0)
weights = torch.randn(5)
before = weights.to(torch.float32)  # PL705 alias
weights += 0.1 * torch.randn(5)  # changed
print("moved by", (weights - before).norm().item())
