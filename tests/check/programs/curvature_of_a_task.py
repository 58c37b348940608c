import torch

torch.manual_seed(0)
w = torch.nn.Parameter(torch.tensor([0.3, -0.2]))
b = torch.nn.Parameter(torch.zeros(1))
meta = torch.optim.SGD([w, b], lr=0.1)
support, query = torch.randn(6, 2), torch.randn(6, 2)
answer = torch.tensor([1.0, -1.0])


def loss_of(x, w, b):
    return ((x @ w + b - x @ answer) ** 2).mean()


for epoch in range(2):
    inner = loss_of(support, w, b)
    gw, gb = torch.autograd.grad(inner, (w, b))  # PL509 made
    penalty = gw.norm() + gb.norm()
    meta.zero_grad()
    penalty.backward()  # backward
    meta.step()
