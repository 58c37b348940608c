# A chain of 600 operations: nothing may recurse over the graph.
import torch

x = torch.tensor([1.0], requires_grad=True)
h = x
for i in range(600):
    h = h * 1.0 + 0.001
h.sum().backward()
print(round(h.item(), 3), x.grad)
