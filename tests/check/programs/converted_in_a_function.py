import torch
def standardise(data, dtype=torch.float32):
    scaled = data.to(dtype)  # PL705 alias
    scaled -= scaled.mean(0)  # changed
    scaled /= scaled.std(0)
    shift = data.mean(0)
    return scaled, shift
torch.manual_seed(0)
table = torch.randn(5, 2) + 3
w = torch.zeros(2, requires_grad=True)
z, shift = standardise(table)
(z @ w - shift.sum()).square().mean().backward()
