"""LBFGS whose closure forgets to clear."""
import torch
torch.manual_seed(0)
class Rosenbrock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.p = torch.nn.Parameter(torch.tensor([-1.0, 2.0]))
    def forward(self):
        x, y = self.p
        return (1 - x) ** 2 + 5 * (y - x**2) ** 2
f = Rosenbrock()
opt = torch.optim.LBFGS(f.parameters(), lr=0.1, max_iter=4)
def closure():
    loss = f()
    loss.backward()  # PL601 backward
    return loss
for _ in range(3):
    opt.step(closure)  # step
print(f.p)
