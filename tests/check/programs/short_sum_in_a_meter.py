import torch
class Meter:
    def __init__(self):
        self.sum = torch.zeros((), dtype=torch.bfloat16)
    def update(self, loss):
        self.sum += loss.detach()  # PL803 changed
torch.manual_seed(0)
w = torch.tensor(2.0, requires_grad=True)
meter = Meter()
for i in range(600):
    loss = (w * 1.0) ** 2 / 4
    meter.update(loss)
loss.backward()
print(meter.sum / 600)
