"""One buffer for all batches, masks and indices, filled again only after the round's backward; a look-up table with max_norm used once."""
import torch
from torch import nn

torch.manual_seed(0)
table = nn.Embedding(6, 3, max_norm=1.0)
head = nn.Linear(3, 1)
opt = torch.optim.AdamW([*table.parameters(), *head.parameters()], lr=0.1, fused=True)
index, mask = torch.empty(2, dtype=torch.long), torch.zeros(2, 3, dtype=torch.bool)
for part in range(3):
    index[:] = torch.tensor([part, part + 2])
    mask.zero_()
    mask[:, part] = True
    hidden = table(index).masked_fill(mask, 0.0)
    opt.zero_grad()
    head(hidden).square().mean().backward()
    opt.step()
with torch.no_grad():
    for p in head.parameters():
        p.data = p.data * 0.5
print(head(table(index)).shape)
