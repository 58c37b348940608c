"""An input is moved along its gradient: a fresh leaf for each step."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
x, y = torch.randn(5, 4), torch.randint(0, 2, (5,))
attacked = x.clone()
for _ in range(3):
    attacked = attacked.detach().requires_grad_(True)
    loss = F.cross_entropy(model(attacked), y)
    (gradient,) = torch.autograd.grad(loss, attacked)
    attacked = (attacked + 0.1 * gradient.sign()).clamp(-3, 3)
print((attacked - x).abs().max().item() <= 0.3 + 1e-5)
