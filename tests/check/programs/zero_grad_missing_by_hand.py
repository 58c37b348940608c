import torch

torch.manual_seed(0)
x = torch.linspace(-1, 1, 10)
y = 3 * x + 1
a = torch.zeros(1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for epoch in range(5):
    loss = ((a * x + b - y) ** 2).mean()
    loss.backward()  # PL601 backward
    with torch.no_grad():
        for p in (a, b):
            p -= 0.3 * p.grad  # step
print(a.item(), b.item())
