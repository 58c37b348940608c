import numpy as np
import torch
w = torch.tensor([1.0, 2.0], requires_grad=True)
def snapshot():
    return w.detach().numpy()
start = w.detach().numpy()  # PL701 alias
for step in range(2):
    (w ** 2).sum().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
print(np.allclose(start, w.detach().numpy()))
