import torch
from torch import nn
torch.manual_seed(0)
def train(model, loader, every):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for n, (x, y) in enumerate(loader, 1):
        criterion(model(x), y).backward()  # PL604 backward
        if n % every == 0:
            opt.step()  # step
            opt.zero_grad()
data = [(torch.randn(3, 2), torch.randint(3, (3,))) for _ in range(6)]
train(nn.Linear(2, 3), data, 3)
