# In-place activations on a result that nobody saved: allowed, and the gradient is right.
import torch

x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
for name in ("exp_", "sigmoid_", "tanh_", "relu_", "neg_", "abs_", "sin_"):
    h = x + 0
    getattr(h, name)()
    (g,) = torch.autograd.grad(h.sum(), x)
    print(name, [round(v, 4) for v in h.tolist()], [round(v, 4) for v in g.tolist()], h._version)
h = x * x + 1
h.log_().add_(1)
torch.nn.functional.relu(h, inplace=True)
h.sum().backward()
print(x.grad)
