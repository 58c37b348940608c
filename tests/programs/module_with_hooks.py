# Hooks on tensors and modules run in their order and may change a gradient.
import torch
from torch import nn

layer = nn.Linear(2, 1)
with torch.no_grad():
    layer.weight.fill_(1.0)
    layer.bias.zero_()
calls = []
layer.register_forward_hook(lambda module, args, output: calls.append("forward"))
layer.register_full_backward_hook(lambda module, grad_input, grad_output: calls.append("backward"))
x = torch.ones(1, 2, requires_grad=True)
h = x * 2
handle = h.register_hook(lambda g: g * 10)
layer(h).sum().backward()
handle.remove()
print(calls, x.grad)
