from dataclasses import dataclass, field

import torch


@dataclass
class Meter:
    total: float = 0.0
    history: list = field(default_factory=list)

    def update(self, loss):
        self.history.append(loss)  # PL511 kept
        self.total += float(loss)


torch.manual_seed(0)
w = torch.randn(10, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.01)
meter = Meter()
for step in range(6):
    opt.zero_grad()
    loss = (w * torch.randn(10)).square().sum()
    loss.backward()
    opt.step()
    meter.update(loss)
print(f"{meter.total:.2f}", len(meter.history))
