import torch
a = torch.arange(5.0)
a[1:] += a[:-1]  # PL405 changed
