"""Early stopping as a class: the state is kept as it is."""

import torch


class EarlyStopping:
    def __init__(self):
        self.best, self.state = float("inf"), None

    def look(self, value, model):
        if value < self.best:
            self.best = value
            self.state = model.state_dict()  # PL703 kept


torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
stopping = EarlyStopping()
for _ in range(2):
    opt.zero_grad()
    loss = model(torch.ones(4, 2)).square().mean()
    stopping.look(loss.item(), model)
    loss.backward()
    opt.step()  # changed
model.load_state_dict(stopping.state)  # used
