import torch

torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = (w**3).sum()
    (g,) = torch.autograd.grad(loss, w, create_graph=True)  # PL512 kept
    w.grad = g.detach()
    opt.step()
print(w)
