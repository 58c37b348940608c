"""A batch is drawn by an index tensor and augmented in place; the data set stays as it is, as meant."""

import torch

torch.manual_seed(0)
data = torch.randn(8, 3)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for index in torch.randperm(8).split(4):
        batch = data[index]
        batch.add_(0.01 * torch.randn(4, 3))
        batch[0] = 0
        opt.zero_grad()
        model(batch).square().mean().backward()
        opt.step()
print(data.shape)
