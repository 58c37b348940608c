import torch
x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
loss = torch.tensor(((w * x - 2 * x) ** 2).mean().item(), requires_grad=True)  # PL505 leaf
loss.backward()
print(w.grad)
