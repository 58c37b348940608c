"""Orders of rows and columns that are meant: one order for both, mixup, bagging, picked columns, axes swapped before they are joined."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(2):
    order = torch.randperm(len(x))
    for part in order.split(4):
        loss = F.cross_entropy(net(x[part]), y[part])
        opt.zero_grad()
        loss.backward()
        opt.step()
    partner = torch.randperm(len(x))
    logits = net(0.7 * x + 0.3 * x[partner])
    loss = 0.7 * F.cross_entropy(logits, y) + 0.3 * F.cross_entropy(logits, y[partner])
    opt.zero_grad()
    loss.backward()
    opt.step()
    first = torch.randperm(len(x))
    xs, ys = x[first], y[first]
    second = torch.randperm(len(xs))
    loss = F.cross_entropy(net(xs[second]), ys[second])
    opt.zero_grad()
    loss.backward()
    opt.step()

# one sample of the data for each member of an ensemble
for member in [nn.Linear(4, 3) for _ in range(2)]:
    steps = torch.optim.SGD(member.parameters(), lr=0.1)
    chosen = torch.randint(0, len(x), (len(x),))
    F.cross_entropy(member(x[chosen]), y[chosen]).backward()
    steps.step()

# critic of a mutual information: pairs that belong together against pairs that do not
critic = nn.Linear(6, 1)
other = torch.randn(8, 2)
joint, apart = critic(torch.cat([x, other], 1)), critic(torch.cat([x, other[torch.randperm(8)]], 1))
(apart.exp().mean().log() - joint.mean()).backward()

# columns in another order, one for each feature; one value for each row
hidden = nn.Linear(4, 8)(x)
shuffled = hidden[:, torch.randperm(8)]
picked = net(x)[torch.arange(8), y]
square = net(x)[:, y].diagonal()
(shuffled.sum() + picked.sum() + square.sum()).backward()

# time first in the layer, example first in the data
rnn, head = nn.GRU(2, 5), nn.Linear(5, 3)
words, tags = torch.randn(6, 4, 2), torch.randint(0, 3, (4, 6))
out = head(rnn(words)[0])
F.cross_entropy(out.transpose(0, 1).reshape(-1, 3), tags.reshape(-1)).backward()
print(F.cross_entropy(head(rnn(words)[0]).permute(1, 2, 0), tags).item())
