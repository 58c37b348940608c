# Sigmoid and an in-place ReLU in a row inside nn.Sequential: one line of the program saves and changes.
import torch
import torch.nn as nn

torch.manual_seed(1)
net = nn.Sequential(
    nn.Linear(3, 8),
    nn.Sigmoid(),
    nn.ReLU(True),
    nn.Linear(8, 1),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    optimizer.zero_grad()
    prediction = net(torch.randn(5, 3))  # PL105 saved changed
    loss = prediction.square().mean()
    loss.backward()  # backward
    optimizer.step()
