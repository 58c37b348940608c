"""The best state is that of the last round, so this run loses nothing; every round before it shows that nothing is kept."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best, lowest = None, float("inf")
for _ in range(4):
    loss = (model(torch.ones(2)) - 1).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()  # changed
    if loss.item() < lowest:
        best, lowest = dict(model.state_dict()), loss.item()  # PL703 kept
model.load_state_dict(best)  # used
print(lowest)
