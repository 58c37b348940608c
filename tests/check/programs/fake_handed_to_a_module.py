import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x):
        return self.layers(x)  # made


maker, judge = Net(), Net()
maker_opt, judge_opt = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (maker, judge))
for _ in range(2):
    fake = maker(torch.randn(3, 2))
    judge_opt.zero_grad()
    (judge(fake).mean() - judge(torch.ones(3, 2)).mean()).backward()  # freed
    judge_opt.step()
    maker_opt.zero_grad()
    loss = -judge(fake).mean()
    loss.backward()  # PL501 backward
    maker_opt.step()
print(loss.item())
