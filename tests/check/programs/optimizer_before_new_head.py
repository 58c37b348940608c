import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.head = nn.Linear(6, classes)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def finetune(data, target):
    net = Net(10)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)  # kept
    net.head = nn.Linear(6, 3)  # PL606 made
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(data), target)
        loss.backward()  # gradient
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
print(finetune(torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])))
