"""An EMA teacher whose shadow weights are the model's own tensors."""
import torch
from torch import nn
torch.manual_seed(0)
class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach() for k, v in model.named_parameters()}  # PL702 alias
    @torch.no_grad()
    def update(self, model):
        for k, v in model.named_parameters():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)  # used
model = nn.Linear(3, 1)
ema = EMA(model, 0.9)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(3):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()  # changed
    ema.update(model)
print(ema.shadow["weight"])
