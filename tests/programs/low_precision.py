# bfloat16, float16, float64, integers, booleans: promotion, casts and lost gradients.
import torch

b = torch.tensor([1.0, 2.0, 3.14159], dtype=torch.bfloat16, requires_grad=True)
(b * b + 1).sum().backward()
print(b.grad, (b + torch.ones(3)).dtype, (torch.tensor([1, 2]) + 1.5).dtype, torch.tensor([True]) + 1)
h = torch.tensor([65504.0], dtype=torch.float16)
print(h + h, h.double() + 1, torch.tensor([300]).to(torch.uint8), torch.tensor([1.7]).long(), b.float().dtype)
