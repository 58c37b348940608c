# Broadcasting forward, and the sums over stretched dimensions on the way back.
import torch

row = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
column = torch.tensor([[10.0], [20.0]], requires_grad=True)
scalar = torch.tensor(2.0, requires_grad=True)
table = row + column
scaled = table * scalar
scaled.sum().backward()
print(table.shape, row.grad, column.grad, scalar.grad)
print((torch.zeros(3, 1) + torch.zeros(3)).shape, torch.broadcast_shapes((2, 1, 3), (4, 1)))
