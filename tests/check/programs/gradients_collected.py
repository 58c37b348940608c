import torch
x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor([0.5, 1, 1], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
grads = []
for i in range(3):
    opt.zero_grad(set_to_none=False)
    ((w * x[i]) ** 2).mean().backward()
    grads.append(w.grad)  # PL605 kept
print(torch.stack(grads).mean(0))
