# 10**9 elements out of one: expand makes a huge shape and no memory.
import torch

x = torch.zeros(1).expand(10**9)
print(x.shape, x.stride(), x[5], x[:10].sum(), x.untyped_storage().nbytes())
