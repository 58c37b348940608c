"""Memory from `torch.empty` that is written completely, or left out again where it is not."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

torch.manual_seed(0)
# filled completely
out = torch.empty(4, 3)
for i in range(4):
    out[i] = torch.randn(3)
print(out.mean())
# filled by columns and out=
two = torch.empty(2, 6)
two[:, :3] = 1
two[:, 3:] = 2
torch.add(two, 1, out=two)
a = torch.empty(3)
torch.mul(torch.ones(3), 2, out=a)
print((a + 1).sum(), two.sum())
# cache read where it was written
cache = torch.empty(10, 4)
for t in range(5):
    cache[t] = torch.randn(4)
    seen = cache[: t + 1]
    print((seen @ torch.ones(4)).softmax(0).sum())
# padded, lengths known
seqs = [torch.randn(n, 2) for n in (4, 2)]
pad = torch.empty(2, 4, 2)
for i, s in enumerate(seqs):
    pad[i, : len(s)] = s
rnn = nn.LSTM(2, 3, batch_first=True)
packed = pack_padded_sequence(pad, torch.tensor([4, 2]), batch_first=True)
rnn(packed)[0].data.sum().backward()
mask = torch.arange(4)[None] < torch.tensor([4, 2])[:, None]
h = pad.sum(2).masked_fill(~mask, 0)
print(h.shape)
# numpy fills
buf = torch.empty(5)
buf.numpy()[:] = 3
print(buf.sum())
idx = torch.empty(5, dtype=torch.long)
idx[torch.randperm(5)] = torch.arange(5)
print(idx.sum())
lin = nn.Linear(3, 2)
nn.MultiheadAttention(4, 2)(torch.randn(2, 1, 4), torch.randn(2, 1, 4), torch.randn(2, 1, 4))
emb = torch.empty(5, 3).normal_()
print(emb.sum())
r = torch.empty(3).uniform_(-1, 1)
m = torch.empty(3).bernoulli_(0.5)
e = torch.empty(3).exponential_()
print((r * m + e).sum())
g = torch.empty(2, 3)
g.copy_(torch.ones(3))
print(g.sum())
k = torch.empty(4, 4)
k.fill_diagonal_(0)
tri = torch.full((4, 4), 1.0).triu_(1)
print(tri.sum())
nn.init.orthogonal_(torch.empty(3, 3)).sum()
nn.init.trunc_normal_(torch.empty(3, 3)).sum()
p = nn.Parameter(torch.empty(3, 3))
nn.init.eye_(p)
print(p.sum())
q = torch.empty(0)
q = torch.cat([q, torch.ones(2)])
print(q.sum())
z = torch.empty_like(q)
z[...] = q
print(z.sum())
y = torch.empty(3, 2)
y[:, 0] = 1
y[:, -1] = 2
print(y.mean())
data = torch.randn(6, 2)
res = torch.empty(6)
for s in range(0, 6, 4):
    res[s : s + 4] = data[s : s + 4].sum(1)
print(res.mean())
b = torch.empty(3, 4)
b.index_copy_(0, torch.arange(3), torch.ones(3, 4))
print(b.sum())
c = torch.empty(3, 4).scatter_(1, torch.zeros(3, 1).long(), 1.0)
