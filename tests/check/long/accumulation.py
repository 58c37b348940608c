"""Gradients of four small batches make a step; warm-up, clipping, logs, and a checkpoint that is read again."""

import io

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(12)
ACCUMULATE, EPOCHS = 4, 5
x = torch.randn(240, 8)
y = (x @ torch.randn(8, 3)).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 24), nn.LayerNorm(24)
        self.drop, self.second = nn.Dropout(0.1), nn.Linear(24, 3)

    def forward(self, inputs):
        return self.second(self.drop(F.gelu(self.norm(self.first(inputs)))))


def warm_up(step):
    return min(1.0, (step + 1) / 8)


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)
checkpoint = io.BytesIO()
for epoch in range(EPOCHS):
    model.train()
    running = 0.0
    optimizer.zero_grad()
    for number, (inputs, labels) in enumerate(loader, 1):
        loss = F.cross_entropy(model(inputs), labels) / ACCUMULATE
        # planted: loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        running += loss.item()
        if number % ACCUMULATE == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    if epoch == 2:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
    print(epoch, round(running, 3), f"{scheduler.get_last_lr()[0]:.1e}")

checkpoint.seek(0)
saved = torch.load(checkpoint)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
for inputs, labels in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    print((model(x).argmax(1) == y).float().mean().item())
