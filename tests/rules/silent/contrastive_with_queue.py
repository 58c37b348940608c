"""SimCLR's loss with the diagonal masked before the softmax, and a momentum encoder with a queue."""
import copy
import torch
from torch import nn
torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
keys = copy.deepcopy(encoder)
for p in keys.parameters():
    p.requires_grad = False
queue = nn.functional.normalize(torch.randn(8, 12), dim=0)
pointer = 0
opt = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
for _ in range(3):
    a = torch.randn(6, 4)
    b = a + 0.1 * torch.randn(6, 4)
    q = nn.functional.normalize(encoder(a), dim=1)
    with torch.no_grad():
        for pq, pk in zip(encoder.parameters(), keys.parameters()):
            pk.data = pk.data * 0.99 + pq.data * 0.01
        k = nn.functional.normalize(keys(b), dim=1)
    positive = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
    negative = torch.einsum("nc,ck->nk", [q, queue.clone().detach()])
    logits = torch.cat([positive, negative], dim=1) / 0.2
    moco = nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
    z = torch.cat([q, nn.functional.normalize(encoder(b), dim=1)])
    sim = z @ z.T / 0.5
    sim.masked_fill_(torch.eye(len(z), dtype=torch.bool), float("-inf"))
    simclr = nn.functional.cross_entropy(sim, torch.arange(len(z)).roll(len(a)))
    opt.zero_grad()
    (moco + simclr).backward()
    opt.step()
    queue[:, pointer : pointer + 6] = k.T
    pointer = (pointer + 6) % 12
