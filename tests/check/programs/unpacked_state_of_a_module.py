import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(3, 5)
        self.head = nn.Linear(5, 1)
        self.state = None

    def reset(self, batch):
        self.state = (torch.zeros(1, batch, 5), torch.zeros(1, batch, 5))

    def forward(self, x):
        out, self.state = self.cell(x, self.state)
        return self.head(out[-1])


torch.manual_seed(0)
model = Model()
model.reset(3)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for window in torch.randn(12, 3, 3).split(4):
    opt.zero_grad()
    loss = model(window).square().mean()
    loss.backward()  # PL502 backward
    opt.step()
