# A tensor class that counts what it is asked: whoever watches must not be counted.

import torch
from torch.overrides import TorchFunctionMode

asked = []


class Counted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Loud(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        print("mode:", func.__name__)
        return func(*args, **(kwargs or {}))


a = torch.ones(2).as_subclass(Counted)
a.requires_grad_()
w = torch.tensor([2.0, 3.0], requires_grad=True)
with Loud():
    total = (torch.nn.functional.softmax(a, 0) * w).sum()
total.backward()
print(type(total).__name__, asked)
print(a.grad, w.grad, asked)
