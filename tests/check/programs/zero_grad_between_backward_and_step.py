import torch
from torch import nn


def train(model, optimizer, data):
    for x, y in data:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()  # backward
        optimizer.zero_grad()  # PL602 cleared
        optimizer.step()  # step
        print(round(loss.item(), 4))


torch.manual_seed(0)
net = nn.Linear(3, 1)
train(net, torch.optim.SGD(net.parameters(), lr=0.1), [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)])
