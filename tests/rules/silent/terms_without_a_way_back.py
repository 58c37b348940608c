"""Terms without a way back that are meant: targets, teachers, baselines."""
import torch
from torch import nn

torch.manual_seed(0)
value, teacher = nn.Linear(3, 1), nn.Linear(3, 4)
student = nn.Linear(3, 4)
opt = torch.optim.SGD([*value.parameters(), *student.parameters()], lr=0.1)
baseline = torch.zeros(())
for _ in range(2):
    s, s2 = torch.randn(3), torch.randn(3)
    delta = 1.0 + 0.9 * value(s2).detach() - value(s)
    with torch.no_grad():
        t = teacher(s).softmax(-1)
    kl = (t * t.log()).sum() - (t * student(s).log_softmax(-1)).sum()
    loss = delta.pow(2).sum() + kl + baseline
    opt.zero_grad()
    loss.backward()
    opt.step()
    baseline = 0.9 * baseline + 0.1 * loss.detach()
print(loss.item() > 0)
