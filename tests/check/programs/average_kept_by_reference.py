import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
average = {name: weight for name, weight in model.state_dict().items()}  # PL703 kept
for x in torch.randn(3, 4, 2):
    opt.zero_grad()
    model(x).sum().backward()
    opt.step()  # changed
    for name, weight in model.state_dict().items():
        average[name].mul_(0.9).add_(weight, alpha=0.1)
model.load_state_dict(average)  # used
