import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head, self.state = nn.LSTM(3, 5), nn.Linear(5, 1), None

    def forward(self, x):
        if self.state is not None:
            self.state = tuple(s.detach() for s in self.state)
        out, self.state = self.rnn(x, self.state)
        return self.head(out)


torch.manual_seed(0)
model = Model()
opt = torch.optim.RMSprop(model.parameters(), lr=0.01)
for chunk in torch.randn(12, 2, 3).split(4):
    opt.zero_grad(set_to_none=True)
    loss = model(chunk).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
print(f"{loss.item():.4f}")
