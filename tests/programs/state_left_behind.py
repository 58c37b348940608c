# Global settings that the program changes stay as it left them.
import torch

torch.set_default_dtype(torch.float64)
print(torch.ones(1).dtype)
torch.set_default_dtype(torch.float32)
torch.set_printoptions(precision=2)
print(torch.tensor([1.23456]))
torch.set_printoptions(profile="default")
torch.set_grad_enabled(False)
print((torch.ones(1, requires_grad=True) * 2).requires_grad)
torch.set_grad_enabled(True)
