import torch

x = torch.tensor([0.5, 1.5], requires_grad=True)
hidden = torch.tanh(x)  # made
hidden.requires_grad = True  # PL207 changed
loss = hidden.square().sum()
loss.backward()
print(hidden.grad, x.grad)
