# torch.func: grad, vmap, jvp, functional_call.
import torch
from torch.func import functional_call, grad, jvp, vmap

f = lambda x: (x**3).sum()
x = torch.tensor([1.0, 2.0])
print(grad(f)(x), vmap(lambda row: row.sum())(torch.ones(3, 2)), jvp(f, (x,), (torch.ones(2),))[1])
layer = torch.nn.Linear(2, 1)
print(functional_call(layer, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, (x,)))
