# The penalty of a critic on the size of its slope, without a record of the slope.
import torch
from torch import nn
torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(critic.parameters())
def gradient_penalty(real, fake):
    mix = (0.5 * real + 0.5 * fake).requires_grad_()
    out = critic(mix)
    g = torch.autograd.grad(  # PL509 made
        outputs=out,
        inputs=mix,
        grad_outputs=torch.ones_like(out),
    )[0]
    return ((g.norm(2, dim=1) - 1) ** 2).mean()
for _ in range(2):
    opt.zero_grad()
    gp = gradient_penalty(torch.randn(4, 2), torch.randn(4, 2))
    gp.backward()  # backward
    opt.step()
