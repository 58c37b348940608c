# Legal: in-place work that no backward needs, in many shapes; nothing may be reported as wrong.
import torch

x = torch.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
h = x * 3
h += 1
h.clamp_(min=0)
buffer = torch.zeros(2, 2)
buffer[0] = h[0]
buffer[1] = h[1] * 2
kept = torch.exp(h).clone()
kept.mul_(2)
out = buffer.sum() + kept.mean()
out.backward()
with torch.no_grad():
    x -= 0.1 * x.grad
x.grad.zero_()
print(x.detach().sum().item() > 0, buffer._version)
