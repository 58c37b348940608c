"""Whole numbers written into tensors of whole numbers, some of them after rounding; and fractions into floating point."""

import torch

counts = torch.zeros(3, dtype=torch.int64)
for value in (0.2, 1.7, 2.2):
    counts[int(value)] += 1
counts[0] = 2.0
counts.copy_(torch.tensor([0.4, 1.6, 2.0]).round())
counts[1:] = torch.tensor([0.4, 1.6]).long()
labels = torch.empty(4, dtype=torch.int64)
labels.copy_(torch.randn(4, 5).argmax(1))
labels.masked_fill_(labels > 3, -100)
image = torch.empty(2, 2, dtype=torch.uint8)
image.copy_(torch.tensor([[0.0, 0.5], [0.25, 1.0]]) * 255)
weights = torch.zeros_like(counts, dtype=torch.float32)
weights[0] = 0.5
keep = torch.zeros(3, dtype=torch.bool)
keep[0] = True
table = torch.tensor([1, 2, 3]) * 0.5
table[0] = 0.25
print(counts, labels.shape, image, weights, keep, table)
