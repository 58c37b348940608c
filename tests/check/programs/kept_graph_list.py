import torch
w = torch.tensor(0.5, requires_grad=True)
x = torch.tensor([1.0, 2.0, 3.0])
losses = []
for step in range(4):
    loss = ((w * x - 2 * x) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
    w.grad = None
    losses.append(loss)  # PL511 kept
print(torch.stack(losses))
