"""States that are cut with a reason: a loss in each step, between pieces, refinement, targets; the last step of sequences of one length."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
cell, read = nn.GRUCell(2, 4), nn.Linear(4, 2)
opt = torch.optim.SGD([*cell.parameters(), *read.parameters()], lr=0.05)
x = torch.randn(3, 6, 2)
for _ in range(2):
    # a loss in each step, one step of history
    state, loss = torch.zeros(3, 4), 0.0
    for t in range(5):
        state = cell(x[:, t], state.detach())
        loss = loss + F.mse_loss(read(state), x[:, t + 1])
    opt.zero_grad()
    loss.backward()
    opt.step()
    # history within a piece, none between two
    state = torch.zeros(3, 4)
    for piece in x.split(3, dim=1):
        state = state.detach()
        for t in range(3):
            state = cell(piece[:, t], state)
        opt.zero_grad()
        read(state).square().mean().backward()
        opt.step()

# an estimate that is refined, each correction trained by its own loss
refine = nn.Linear(4, 2)
flow, goal, total = torch.zeros(3, 2), torch.randn(3, 2), 0.0
for _ in range(3):
    flow = flow.detach() + refine(torch.cat([flow.detach(), goal], 1))
    total = total + (flow - goal).abs().mean()
total.backward()

# power iteration for a spectral norm: the vectors are constants
weight = nn.Parameter(torch.randn(4, 3))
u = torch.randn(4)
for _ in range(3):
    v = F.normalize((weight.t() @ u).detach(), dim=0)
    u = F.normalize((weight @ v).detach(), dim=0)
(u @ weight @ v).backward()

# lengths: all the same, each one's own end, and the layer's last state
rnn = nn.LSTM(2, 4, batch_first=True)
packed = pack_padded_sequence(x, torch.tensor([6, 6, 6]), batch_first=True)
even, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True)
lengths = torch.tensor([6, 4, 2])
out, (h, _) = rnn(pack_padded_sequence(x, lengths, batch_first=True))
padded, sizes = pad_packed_sequence(out, batch_first=True)
ends = padded[torch.arange(3), sizes - 1]
pooled = (padded * (torch.arange(6) < sizes[:, None]).unsqueeze(-1)).sum(1) / sizes[:, None]
(even[:, -1].sum() + ends.sum() + h[-1].sum() + pooled.sum() + padded[:, 0].sum()).backward()

# means over what counts: by the mask, by a weight for each place, by noise
there = (torch.arange(6) < sizes[:, None]).float()
error = (rnn(x)[0] - 1).square().mean(-1)
weights = torch.tensor([0.0, 1.0, 1.0])[:, None].expand(3, 6).contiguous()
masked = (error * there).sum() / there.sum() + (error * there).mean() / there.mean()
masked = masked + (error * weights).mean() + (error * torch.bernoulli(torch.full((3, 6), 0.5))).mean()
masked.backward()

# masks of both conventions, each where it belongs; attention along the axis that is meant
future = torch.ones(6, 6, dtype=torch.bool).triu(1)
q = nn.Linear(2, 8)(x)
seen = F.scaled_dot_product_attention(q, q, q, attn_mask=~future) + F.scaled_dot_product_attention(q, q, q, is_causal=True)
steps_first, batch_first = nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2, batch_first=True)
turned = q.transpose(0, 1)
one = steps_first(turned, turned, turned, attn_mask=future)[0].mean(0)
two = batch_first(q, q, q)[0].mean(1)
F.cross_entropy(nn.Linear(8, 3)(one + two + seen.mean(1)), torch.tensor([0, 1, 2])).backward()
print(total.item(), ends.sum().item(), masked.item())
