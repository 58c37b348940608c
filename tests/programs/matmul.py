# Matrix products: vector, matrix, batch, linear.
import torch
import torch.nn.functional as F

a = torch.arange(6.0).view(2, 3).requires_grad_()
b = torch.arange(3.0, requires_grad=True)
w = torch.full((4, 3), 0.5, requires_grad=True)
bias = torch.zeros(4, requires_grad=True)
out = (a @ b).sum() + torch.matmul(a, a.t()).sum() + F.linear(a, w, bias).sum() + torch.mm(a, w.T).mean() + torch.dot(b, b)
out.backward()
print(out.item(), a.grad, b.grad, w.grad[0], bias.grad)
print(torch.bmm(torch.ones(2, 2, 3), torch.ones(2, 3, 1)).flatten())
