import torch

torch.manual_seed(0)
w = torch.randn(4, 3, requires_grad=True)
h = torch.randn(5, 4) @ w
h -= h.mean(0)
h /= h.detach().std(0)
loss = h.abs().sum()
loss.backward()
with torch.no_grad():
    w.div_(w.norm(dim=0, keepdim=True))
w.grad = None
img = torch.rand(2, 3, 4, 4)
mean, std = img.mean((0, 2, 3)), img.std((0, 2, 3))
img.sub_(mean[:, None, None]).div_(std[:, None, None])
print(torch.isfinite(img).all().item())
