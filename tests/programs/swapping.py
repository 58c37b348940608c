"""Tensors that swap what they are: by hand, and by a module's conversion. Labels and names stay with the objects."""

import torch
from torch import nn

a, b = torch.ones(3), torch.zeros(2)
torch.utils.swap_tensors(a, b)
print(a, b)
c = a + 1
b.mul_(3)
print(a, b, c)

w = torch.ones(2, requires_grad=True)
v = torch.full((2,), 5.0, requires_grad=True)
torch.utils.swap_tensors(w, v)
(w * v * w).sum().backward()
print(w.grad, v.grad)

torch.__future__.set_swap_module_params_on_conversion(True)
try:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    kept = model[0].weight
    model(torch.ones(4, 2)).sum().backward()
    model.double()
    print(kept.dtype, kept is model[0].weight, kept.grad.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(4, 2, dtype=torch.double)).sum().backward()
        optimizer.step()
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    print(kept, model[0].weight is kept)
finally:
    torch.__future__.set_swap_module_params_on_conversion(False)

held = torch.ones(2, requires_grad=True)
used = held * 2
try:
    torch.utils.swap_tensors(held, torch.zeros(2, requires_grad=True))
    used.sum().backward()
except RuntimeError as error:
    print(str(error)[:60])
