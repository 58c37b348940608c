"""NaN looked for and shown, rows exchanged through copies and indices."""

import random

import torch

nan = torch.tensor(float("nan"))
print(nan == nan, nan != float("nan"))
x = torch.randn(6, 3)
x[1, 2] = float("nan")
mask = x != x
x = torch.where(torch.isnan(x), 0.0, x)
print((x == 0).sum(), mask.sum(), (x != x.flip(0)).any())
y = torch.tensor([1.0, float("nan")])
print(y == torch.tensor([1.0, float("nan")]), torch.equal(y, y), torch.allclose(y, y, equal_nan=True))

rows = torch.arange(12.0).view(4, 3)
rows[[0, 1]] = rows[[1, 0]]
kept = rows[2].clone()
rows[2] = rows[3]
rows[3] = kept
rows[0], rows[1] = rows[1].clone(), rows[0].clone()
rows[1:], rows[0] = rows[:-1].clone(), rows[-1].clone()  # a shift by one
ring = torch.zeros(4)
for step in range(6):  # a window that moves on
    for i in range(3):
        ring[i] = ring[i + 1]
    ring[3] = step
table = torch.zeros(3, 3)
for i in range(3):
    for j in range(i):
        table[i, j] = i * j
        table[j, i] = table[i, j]
order = list(range(4))
random.shuffle(order)
print(rows[order].sum(), ring, table)
listed = [rows[0], rows[1]]
listed[0], listed[1] = listed[1], listed[0]
print(torch.stack(listed))
