import torch

weight = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([weight], lr=0.5)  # kept
weight = torch.ones(3, requires_grad=True)  # PL606 made
for _ in range(3):
    weight.grad = None
    loss = weight.pow(2).sum()
    loss.backward()  # gradient
    opt.step()
print(weight)
