import torch
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(4, 2)
history = []
for step in range(3):
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()
    history.append(model.weight.detach())  # PL702 alias
path = torch.stack(history)
print(path)
