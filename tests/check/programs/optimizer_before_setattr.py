import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)  # kept
for name, module in list(net.named_children()):
    if isinstance(module, nn.Linear):
        setattr(net, name, nn.Linear(module.in_features, module.out_features, bias=False))  # PL606 made
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()  # gradient
    opt.step()
print(loss)
