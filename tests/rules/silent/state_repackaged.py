"""Truncated backpropagation by a generator, detached between the parts; LSTM state as a tuple."""
import torch
from torch import nn
torch.manual_seed(0)
def chunks(sequence, size):
    for start in range(0, sequence.size(1), size):
        yield sequence[:, start : start + size]
def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(map(repackage, h))
rnn, head = nn.LSTM(2, 5, num_layers=2, batch_first=True, dropout=0.1), nn.Linear(5, 2)
opt = torch.optim.RMSprop([*rnn.parameters(), *head.parameters()], lr=1e-3)
series = torch.randn(3, 13, 2)
hidden = None
for part, goal in zip(chunks(series[:, :-1], 4), chunks(series[:, 1:], 4)):
    hidden = repackage(hidden) if hidden is not None else None
    out, hidden = rnn(part, hidden)
    loss = nn.functional.mse_loss(head(out), goal)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(rnn.parameters(), 0.25)
    opt.step()
    print(loss.item())
