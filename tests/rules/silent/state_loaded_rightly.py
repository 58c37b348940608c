"""States that are loaded at once, cloned, given to another model, or written to a file and read again."""

import copy
import io

import torch

torch.manual_seed(0)
model, twin = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
twin.load_state_dict(model.state_dict())
model.load_state_dict(model.state_dict())
start = copy.deepcopy(model.state_dict())
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(3, 2)).square().mean().backward()
    opt.step()
    best = {name: value.clone() for name, value in model.state_dict().items()}
    twin.load_state_dict(model.state_dict())
file = io.BytesIO()
torch.save(model.state_dict(), file)
model.load_state_dict(start)
model.load_state_dict(best)
file.seek(0)
model.load_state_dict(torch.load(file))
