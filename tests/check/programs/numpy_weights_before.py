import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(4, 3)
before = model.weight.detach().numpy()  # PL701 alias
loss = model(x).pow(2).mean()
loss.backward()
opt.step()
print(model.weight.detach().numpy() - before)
