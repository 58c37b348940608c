# Finalizers run at their usual moment, between two prints.
import weakref

import torch

x = torch.ones(2)
weakref.finalize(x, print, "x is gone")
v = x[:1]
print("before")
del x
print("the view lives on", v)
v = None
kept = torch.ones(3, requires_grad=True)
out = kept * 3
weakref.finalize(out, print, "out is gone")
print("rebinding")
out = out + 1
print("after")
del out
