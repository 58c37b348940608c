"""Tokens that are predicted with a shift, through a bottleneck or a mask; terms that are printed or used later; rows sorted and brought back."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

torch.manual_seed(0)
emb, rnn, head = nn.Embedding(9, 6), nn.GRU(6, 6, batch_first=True), nn.Linear(6, 9)
decode = nn.GRU(6, 6, batch_first=True)
opt = torch.optim.Adam([p for m in (emb, rnn, head, decode) for p in m.parameters()])
ids = torch.randint(1, 9, (4, 6))
y, lengths = torch.tensor([0, 1, 2, 0]), torch.tensor([2, 6, 3, 5])
for _ in range(2):
    logits = head(rnn(emb(ids))[0])
    shifted = F.cross_entropy(logits[:, :-1].reshape(-1, 9), ids[:, 1:].reshape(-1))
    summary = rnn(emb(ids))[1][-1]
    again = F.cross_entropy(head(decode(summary.unsqueeze(1).expand(4, 6, 6))[0]).reshape(-1, 9), ids.reshape(-1))
    labels, masked = ids.clone(), ids.clone()
    hidden = torch.rand(4, 6) < 0.3
    hidden[0, 0] = True
    masked[hidden] = 0
    labels[~hidden] = -100
    filled = F.cross_entropy(head(rnn(emb(masked))[0]).reshape(-1, 9), labels.reshape(-1))
    penalty = emb.weight.square().sum()
    watched = head.weight.abs().sum()
    print(f"{watched:.3f}")
    terms = {"shifted": shifted, "again": again, "filled": filled, "penalty": 1e-3 * penalty}
    loss = sum(terms.values())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(emb.parameters(), 1.0)
    opt.step()
    # sorted by length, and brought back or taken together
    lens, order = lengths.sort(descending=True)
    last = rnn(pack_padded_sequence(emb(ids)[order], lens, batch_first=True))[1][-1]
    both = F.cross_entropy(head(last), y[order]) + F.cross_entropy(head(last[order.argsort()]), y)
    loose = rnn(pack_padded_sequence(emb(ids), lengths, batch_first=True, enforce_sorted=False))[1][-1]
    both = both + F.cross_entropy(head(loose), y)
    # distances of sorted numbers
    one, other = torch.randn(5), head(loose)[:, 0]
    both = both + (other.sort()[0] - one.sort()[0][:4]).abs().mean() + (other[other.argsort()] - torch.arange(4.0)).abs().mean()
    opt.zero_grad()
    both.backward()
    opt.step()
print(loss.item(), both.item())
