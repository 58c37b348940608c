"""Second-order MAML with functional parameters: the inner step makes new tensors."""
import torch
from torch.func import functional_call

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
meta = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(2):
    meta.zero_grad()
    for task in range(2):
        phase = torch.rand(1)
        xs, xq = torch.randn(5, 1), torch.randn(5, 1)
        fast = dict(net.named_parameters())
        for _ in range(2):
            inner = (functional_call(net, fast, (xs,)) - torch.sin(xs + phase)).square().mean()
            grads = torch.autograd.grad(inner, tuple(fast.values()), create_graph=True)
            fast = {n: p - 0.1 * g for (n, p), g in zip(fast.items(), grads, strict=True)}
        outer = (functional_call(net, fast, (xq,)) - torch.sin(xq + phase)).square().mean()
        (outer / 2).backward()
    meta.step()
print(f"{outer.item():.3f}")
