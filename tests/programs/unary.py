# exp, log, sqrt, sigmoid, tanh, relu, abs, sin, cos: values and gradients.
import torch

x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
for f in (torch.exp, torch.log, torch.sqrt, torch.sigmoid, torch.tanh, torch.relu, torch.abs, torch.sin, torch.cos):
    y = f(x)
    (g,) = torch.autograd.grad(y.sum(), x)
    print(f.__name__, [round(v, 4) for v in y.tolist()], [round(v, 4) for v in g.tolist()], y.grad_fn.name())
print(torch.nn.functional.relu(torch.tensor([-1.0, 1.0])), x.exp().log().sqrt().detach())
