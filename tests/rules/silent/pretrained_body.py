"""A loaded body with a new head, a frozen body in evaluation mode, a teacher that follows, a judge that is frozen for a while."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


trained = make()
net = make()
net.apply(initialise)
net.load_state_dict(trained.state_dict())
nn.init.normal_(net[3].weight, std=0.01)  # a new head
nn.init.zeros_(net[3].bias)
x, y = torch.randn(8, 3), torch.randint(0, 2, (8,))

body = net[:3]
body.requires_grad_(False)
opt = torch.optim.SGD(net[3].parameters(), lr=0.1)
for _ in range(3):
    net.train()
    body.eval()
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

# its own statistics in training mode, weights that follow the student
student, teacher = make(), make()
teacher.load_state_dict(student.state_dict())
teacher.requires_grad_(False)
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(3):
    loss = (student(x) - teacher(x + 0.1)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
            t.lerp_(s, 0.1)

# a judge that is only frozen while the maker learns
maker, judge = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
makes, judges = torch.optim.SGD(maker.parameters(), lr=0.1), torch.optim.SGD(judge.parameters(), lr=0.1)
for _ in range(3):
    judge.requires_grad_(True)
    judges.zero_grad()
    (judge(maker(torch.randn(4, 2)).detach()).mean() - judge(x[:4]).mean()).backward()
    judges.step()
    judge.requires_grad_(False)
    makes.zero_grad()
    (-judge(maker(torch.randn(4, 2))).mean()).backward()
    makes.step()

best = copy.deepcopy(net.state_dict())
net.load_state_dict(best)
net.load_state_dict(trained.state_dict())
print(net(x).sum().item())

# a row without any score gets a value
scores = torch.randn(2, 3, requires_grad=True)
mask = torch.tensor([[False, False, True], [True, True, True]])
shares = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=1)
shares = torch.where(mask.all(1, keepdim=True), torch.zeros_like(shares), shares)
with torch.no_grad():
    print(shares.sum().item(), torch.zeros(0).mean(), torch.zeros(1).std())
