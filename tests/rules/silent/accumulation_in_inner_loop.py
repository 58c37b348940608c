"""Small batches add up in an inner loop; gradients are cleared once for each update, by the model."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for batch in torch.randn(2, 12, 3):
    model.zero_grad()
    for part in batch.split(4):
        loss = model(part).square().sum() / len(batch)
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step()
print(model.weight.shape)
