# Lifetimes: tensors die when their last name goes, graphs when the result goes; the recorder keeps nothing alive.
import gc
import weakref

import torch

x = torch.ones(3, requires_grad=True)
h = x * 2
y = h.exp()
watch = {"h": weakref.ref(h), "y": weakref.ref(y), "x": weakref.ref(x)}
print({k: r() is not None for k, r in watch.items()})
del h
print({k: r() is not None for k, r in watch.items()})
y = y.sum()
print({k: r() is not None for k, r in watch.items()})
y.backward()
del y, x
gc.collect()
print({k: r() is not None for k, r in watch.items()})


def temporary():
    t = torch.zeros(4)
    return weakref.ref(t), weakref.ref(t + 1)


print([r() for r in temporary()])
