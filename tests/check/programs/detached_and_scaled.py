import torch
w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = w + 1
shown = h.detach()  # PL702 alias
shown *= 100  # changed
loss = h.sum()
loss.backward()
print(loss)
print(shown)
