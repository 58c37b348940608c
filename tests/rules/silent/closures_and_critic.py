"""LBFGS with a closure; a training step made by a function; hooks that log; a WGAN-GP critic."""
import functools
import torch
from torch import nn
torch.manual_seed(0)
def make_step(model, opt, loss_fn):
    seen = []
    model.register_forward_hook(lambda m, i, o: seen.append(o.detach().abs().mean().item()))
    def step(x, y):
        def closure():
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            return loss
        return opt.step(closure).item(), seen[-1]
    return step
net = nn.Linear(2, 1)
step = make_step(net, torch.optim.LBFGS(net.parameters(), max_iter=3), nn.MSELoss())
x = torch.randn(8, 2)
y = x @ torch.tensor([[1.0], [2.0]])
print([step(x, y) for _ in range(2)])
critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
opt = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
for _ in range(2):
    real, fake = torch.randn(4, 2), torch.randn(4, 2) * 2
    eps = torch.rand(4, 1)
    mixed = (eps * real + (1 - eps) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    opt.zero_grad()
    loss.backward()
    opt.step()
    for p in critic.parameters():
        p.data.clamp_(-1, 1)
