import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 5, batch_first=True)
        self.head = nn.Linear(5, 1)
        self.state = None

    def forward(self, x):
        out, self.state = self.rnn(x, self.state)
        return self.head(out[:, -1])


torch.manual_seed(0)
model = Model()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
sequence = torch.randn(4, 12, 3)
for window in sequence.split(4, dim=1):
    opt.zero_grad()
    loss = model(window).square().mean()
    loss.backward()  # PL502 backward
    opt.step()
