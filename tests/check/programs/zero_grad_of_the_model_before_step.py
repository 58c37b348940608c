import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, wanted = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(2):
    error = (model(inputs) - wanted).abs().mean()
    error.backward()  # backward
    model.zero_grad(set_to_none=False)  # PL602 cleared
    opt.step()  # step
print(error.item())
