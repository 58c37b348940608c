"""L-BFGS asks for the loss several times in one step; the closure clears the gradients."""
import torch

torch.manual_seed(0)
w = torch.zeros(3, requires_grad=True)
opt = torch.optim.LBFGS([w], lr=0.5, max_iter=3)
x, y = torch.randn(20, 3), torch.randn(20)


def closure():
    opt.zero_grad()
    loss = (x @ w - y).square().mean()
    loss.backward()
    return loss


for _ in range(2):
    opt.step(closure)
print(closure().item() > 0)
