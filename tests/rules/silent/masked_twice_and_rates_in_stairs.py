"""Shares masked before and after the softmax, and whole quotients that count: stairs of a rate, rows, bins."""

import torch
import torch.nn.functional as F
torch.manual_seed(0)
s = torch.randn(2, 3, 4, requires_grad=True); v = torch.randn(2, 4, 5); m = torch.tensor([[1., 1, 1, 0], [1, 1, 0, 0]])[:, None]
a = s.softmax(-1) * m; a = a / a.sum(-1, keepdim=True); (a @ v).sum().backward()
(F.dropout(s.softmax(-1), 0.5) @ v).sum().backward()
gate = s.softmax(-1) * torch.rand(2, 3, 4); (gate @ v).sum().backward()
a = s.masked_fill(m == 0, -1e9).softmax(-1) * m; (a @ v).sum().backward()
p = s.softmax(-1); (p * F.one_hot(torch.randint(0, 4, (2, 3)), 4)).sum(-1).log().neg().mean().backward()
topv, topi = s.softmax(-1).topk(2); moe = torch.zeros(2, 3, 4).scatter(2, topi, topv); (moe @ v).sum().backward()
b = F.normalize(s.softmax(-1) * m, p=1, dim=-1); (b @ v).sum().backward()
i = torch.arange(12); row, col = i // 4, i % 4; print(row.float().mean(), col)
n = torch.tensor(7); print(n // 2, (n // 10) * 0.5)
idx = torch.randint(0, 50, (8,)); cell = idx // 64; t = torch.randn(3, 2); print(t[cell])
steps = torch.arange(1, 5) // 10; print(0.1 ** steps)
for epoch in range(3):
    lr = 0.1 * (0.5 ** (torch.tensor(epoch) // 10)); print(lr)
px = torch.randint(0, 256, (4, 4), dtype=torch.uint8); print(px // 32, px.float() / 255)
age = torch.randint(0, 9, (5,)); dec = torch.nn.functional.one_hot(age // 10, 3); print(dec.float() @ torch.randn(3, 1))
