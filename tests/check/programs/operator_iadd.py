import operator

import torch

torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
x = torch.randn(5, 3)
scores = torch.tanh(x @ w)  # saved
totals = [scores]
operator.iadd(totals[0], 1.0)  # PL101 changed
loss = totals[0].sum()
loss.backward()  # backward
print(w.grad)
