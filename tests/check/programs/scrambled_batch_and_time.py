import torch
from torch import nn
torch.manual_seed(0)
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 4)
        self.head = nn.Linear(4, 2)
    def forward(self, batch):
        n, t, f = batch.shape
        steps = batch.reshape(t, n, f)  # PL407 made
        out, _ = self.rnn(steps)
        return self.head(out[-1])
net = Tagger()
batch = torch.randn(5, 6, 3)
net(batch).square().mean().backward()
