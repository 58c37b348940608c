import torch


class Average:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def add(self, value, n=1):
        self.sum += value * n  # PL511 kept
        self.count += n


torch.manual_seed(0)
w = torch.randn(10, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.01)
avg = Average()
for step in range(6):
    opt.zero_grad()
    loss = (w * torch.randn(10)).square().sum()
    loss.backward()
    opt.step()
    avg.add(loss)
print(avg.sum / avg.count)
