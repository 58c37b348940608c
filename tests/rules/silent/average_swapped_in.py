"""EMA with AveragedModel and by hand with swapped weights for the evaluation."""
import torch
from torch import nn
torch.manual_seed(0)
class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.backup = {}
    def update(self, model):
        for k, v in model.named_parameters():
            self.shadow[k] = self.decay * self.shadow[k] + (1 - self.decay) * v.data
    def apply(self, model):
        for k, v in model.named_parameters():
            self.backup[k] = v.data
            v.data = self.shadow[k]
    def restore(self, model):
        for k, v in model.named_parameters():
            v.data = self.backup[k]
        self.backup = {}
model = nn.Linear(3, 1)
ema, averaged = EMA(model, 0.9), torch.optim.swa_utils.AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(3):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update(model)
    averaged.update_parameters(model)
    ema.apply(model)
    with torch.no_grad():
        print(nn.functional.mse_loss(model(x), y).item(), averaged(x).mean().item())
    ema.restore(model)
