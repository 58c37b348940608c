# An error at the view: strides that do not fit; reshape would copy instead.
import torch

m = torch.arange(6.0).view(2, 3).t()
print(m.reshape(6))
m.view(6)
