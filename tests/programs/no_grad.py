# no_grad, enable_grad, inference_mode, set_grad_enabled and the decorator.
import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
with torch.no_grad():
    y = w * 2
    w -= 0.1
    with torch.enable_grad():
        z = w * 3
print(y.requires_grad, z.requires_grad, w._version, torch.is_grad_enabled())


@torch.no_grad()
def score(t):
    return t.sum()


with torch.inference_mode():
    i = w * 4
with torch.set_grad_enabled(False):
    s = w + 1
print(score(w).requires_grad, i.is_inference(), s.requires_grad)
