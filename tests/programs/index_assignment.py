# Index assignment: every index form writes into x and raises its version; an empty slice does so too.
import torch

x = torch.zeros(3, 4)
x[0] = 1.0
x[1, 2] = 5.0
x[:, 3] = torch.tensor([7.0, 8.0, 9.0])
x[[0, 2], [0, 0]] = torch.tensor([-1.0, -2.0])
x[x == 0] = 0.5
x[...] += 1
x[0:0] = 3.0
x[0] += 1
print(x, x._version)
