"""Nested tensors with ragged rows, and other tensors that handle operations themselves: what torch does is taken over."""

import torch
from torch.nn import functional as F

rows = [torch.ones(2, 3), torch.full((4, 3), 2.0)]
ragged = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
weight = torch.full((2, 3), 0.5, requires_grad=True)
out = F.linear(ragged * 2, weight).sin()
print(out.shape[0], out.offsets(), out.dim())
loss = out.values().sum()
loss.backward()
print(weight.grad, ragged.grad.values())
for row in out.unbind():
    print(row.shape)
print(torch.nested.to_padded_tensor(out.detach(), 0.0).shape)
query = torch.nested.as_nested_tensor([torch.ones(2, 1, 4), torch.ones(3, 1, 4)], layout=torch.jagged).transpose(1, 2)
print(F.scaled_dot_product_attention(query, query, query).values().sum())
old = torch.nested.nested_tensor(rows, requires_grad=True)
(old * 3).to_padded_tensor(0.0).sum().backward()
print(old.grad)

weight.grad = None
(weight * 2).sum().backward()
print(weight.grad)
