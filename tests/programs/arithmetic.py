# Arithmetic with tensors and numbers on both sides, and its gradients.
import torch

a = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
b = torch.tensor([0.5, 3.0, -1.0], requires_grad=True)
out = a + b - a * b + a / b + a**2 + 2**a + a**2.5 + (-a) + (3 - b) + 1 / a + b * 2 + 2 * b - 1 + (a - 0.5) ** 3 + abs(b)
out.sum().backward()
print(out.detach(), a.grad, b.grad)
print(7 // torch.tensor([2, 3]), torch.tensor([7, -7]) % 3, torch.tensor([5]) // 2)
print((a > b).tolist(), (a == a).all().item(), (a >= 2) & (b < 0), torch.tensor([1, 2]) / 2)
