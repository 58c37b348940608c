# Generators and comprehensions: operations happen when values are asked for.
import torch


def batches(data, size):
    for start in range(0, len(data), size):
        yield data[start : start + size]


x = torch.arange(6.0, requires_grad=True)
total = sum((b * 2).sum() for b in batches(x, 2))
total.backward()
print(x.grad, [t.item() for t in x.detach()], max(torch.tensor([3.0, 5.0])), list(map(float, x)))
