# A memory profile made of hooks: it was only meant to look.
import torch
from torch import nn


class Profile(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        self.bytes = 0
        super().__init__(self.count, lambda kept: kept)

    def count(self, tensor):
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor


def attention(scores, values):
    weights = torch.softmax(scores, dim=-1)  # saved
    out = weights @ values
    weights[:, 0] = 0  # PL306 changed
    return out.sum() + weights.sum()


torch.manual_seed(0)
layer = nn.Linear(4, 4)
profile = Profile()
with profile:
    loss = attention(layer(torch.randn(4, 4)), torch.randn(4, 2))
loss.backward()  # backward
print(profile.bytes)
