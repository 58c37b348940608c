import torch

weights = torch.tensor([[0.5, 1.0], [2.0, 4.0]], requires_grad=True)
scores = weights * 3
for row in scores:  # made
    row *= 0.5  # PL202 changed
loss = (scores**2).sum()
loss.backward()
print(weights.grad)
