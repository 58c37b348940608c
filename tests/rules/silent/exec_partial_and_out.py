import functools
import operator

import torch

torch.manual_seed(0)
x = torch.randn(3, requires_grad=True)
exec("h = x * 2\nh += 1\n")
total = functools.reduce(operator.add, [h.sin(), h.cos(), h.square()])
scale = functools.partial(torch.mul, other=0.5)
out = torch.empty(3)
with torch.no_grad():
    torch.add(x, 1, out=out)
(scale(total) * out).sum().backward()
with torch.no_grad():
    operator.isub(x, x.grad)
    out.zero_()
print(x.shape)
