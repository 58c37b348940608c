# backward with a gradient, retain_graph, autograd.grad, create_graph, accumulation, zero_grad.
import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x**3
y.backward(torch.tensor([1.0, 10.0]), retain_graph=True)
print(x.grad)
y.sum().backward()
print(x.grad)
x.grad.zero_()
x.grad = None
(g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
(gg,) = torch.autograd.grad(g.sum(), x)
print(g.detach(), gg, x.grad)
u = torch.tensor(1.0, requires_grad=True)
print(torch.autograd.grad(x.sum(), [x, u], allow_unused=True))
