# Complex tensors: values, gradients, views as real.
import torch

z = torch.tensor([1 + 2j, -0.5j], requires_grad=True)
w = (z * z.conj()).real.sum() + z.abs().sum()
w.backward()
print(z.grad, torch.view_as_real(z.detach()), z.detach().imag, torch.polar(torch.ones(1), torch.zeros(1)))
