# Silent: the fused optimizer does not raise versions; a backward after its step uses the new weights.
import torch

w = torch.tensor([2.0], requires_grad=True)
x = torch.tensor([3.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.5, fused=True)
out = (w * x).sum()
out.backward(retain_graph=True)
opt.step()
x.grad = None
out.backward()
print(x.grad, w.detach(), w._version)
