# NumPy writes into memory that the square needs: no error, a wrong gradient.
import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = x * 2
y = (h ** 2).sum()  # saved
a = h.detach().numpy()
a[0] = 50.0  # PL301 changed
y.backward()  # backward
print(x.grad)
