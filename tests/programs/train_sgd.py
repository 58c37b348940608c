# A training loop: linear regression by SGD with zero_grad, backward, step.
import torch

torch.manual_seed(1)
x = torch.linspace(-1, 1, 16).unsqueeze(1)
target = 3 * x + 0.5
model = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
for epoch in range(8):
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), target)
    loss.backward()
    opt.step()
print(round(loss.item(), 4), [tuple(p.shape) for p in model.parameters()])
