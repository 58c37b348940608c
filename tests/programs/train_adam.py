# A training loop with Adam, clipping, a scheduler and evaluation under no_grad.
import torch
from torch import nn

torch.manual_seed(2)
x, y = torch.randn(12, 4), torch.randint(0, 3, (12,))
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
opt = torch.optim.Adam(model.parameters(), lr=0.05)
schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)
for _ in range(4):
    opt.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    schedule.step()
model.eval()
with torch.no_grad():
    print(round(loss.item(), 4), model(x).argmax(1).shape, schedule.get_last_lr())
