# The program's own function mode, dispatch mode and tensor subclass keep working.
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Names(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class Count(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        dispatched.append(str(func))
        return func(*args, **(kwargs or {}))


class Marked(torch.Tensor):
    pass


seen, dispatched = [], []
with Names():
    a = torch.ones(2) * 3
with Count():
    b = a + 1
marked = torch.ones(2).as_subclass(Marked)
print(seen, dispatched, type(marked + 1).__name__, type(torch.stack([marked, marked])).__name__)
