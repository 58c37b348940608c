"""A recurrent network over long sequences in windows, its state carried on, with a rate that falls after each epoch."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(7)
LENGTH, WINDOW, BATCH, HIDDEN = 120, 10, 6, 12
time = torch.arange(LENGTH + 1) * 0.2
waves = torch.stack([torch.sin(time * (1 + 0.1 * k)) for k in range(BATCH + 2)])[:, :, None]
train, valid = waves[:BATCH], waves[BATCH:]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.read = nn.GRUCell(1, HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, x, hidden):
        outputs = []
        for t in range(x.shape[1]):
            hidden = self.cell(x[:, t], hidden)
            outputs.append(self.read(hidden))
        return torch.stack(outputs, dim=1), hidden


def validate(model):
    model.eval()
    hidden, total = torch.zeros(len(valid), HIDDEN), 0.0
    with torch.no_grad():
        for start in range(0, LENGTH, WINDOW):
            x, y = valid[:, start : start + WINDOW], valid[:, start + 1 : start + WINDOW + 1]
            output, hidden = model(x, hidden)
            total += F.mse_loss(output, y).item()
    model.train()
    return total


model = Recurrent()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
for epoch in range(7):
    hidden = torch.zeros(BATCH, HIDDEN)
    total = 0.0
    for start in range(0, LENGTH, WINDOW):
        x, y = train[:, start : start + WINDOW], train[:, start + 1 : start + WINDOW + 1]
        hidden = hidden.detach()
        output, hidden = model(x, hidden)
        loss = F.mse_loss(output, y)
        # planted: loss = F.mse_loss(output, y[:, :, 0])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    scheduler.step()
    print(epoch, round(total, 4), round(validate(model), 4), scheduler.get_last_lr())
