# What an error leaves alive: the tensors and nodes that its traceback's frames hold, and no others; nothing when it is dropped.
import gc
import sys
import traceback
import weakref

import torch

gc.disable()


class Anything:
    """Lives as long as the node that it is put on."""


def alive(watched):
    return [name for name, reference in watched.items() if reference() is not None]


def watch(watched, name, value):
    watched[name] = weakref.ref(value)
    return value


def frames(error):
    return [(entry.name, entry.lineno) for entry in traceback.extract_tb(error.__traceback__) if entry.filename == __file__]


def held(error):
    walk, names = error.__traceback__, []
    while walk is not None:
        if walk.tb_frame.f_code.co_filename == __file__:
            names.append(sorted(walk.tb_frame.f_locals) if walk.tb_frame.f_globals is not walk.tb_frame.f_locals else "module")
        walk = walk.tb_next
    return names


def stale(watched):
    x = torch.ones(3, requires_grad=True)
    y = torch.exp(x)
    z = (y * 2).sum()
    watched |= {name: weakref.ref(value) for name, value in {"x": x, "y": y, "z": z}.items()}
    y.grad_fn.metadata["end"], z.grad_fn.metadata["end"] = watch(watched, "exp", Anything()), watch(watched, "sum", Anything())
    y.add_(1)
    z.backward()


def twice(watched):
    x = torch.ones(3, requires_grad=True)
    z = (x * x).sum()
    watched |= {"x": weakref.ref(x), "z": weakref.ref(z)}
    z.grad_fn.metadata["end"] = watch(watched, "sum", Anything())
    z.backward()
    z.backward()


def in_a_hook(watched):
    x = torch.ones(3, requires_grad=True)
    y = x * 2

    def hook(gradient):
        watched["gradient"] = weakref.ref(gradient)
        raise KeyError("mine")

    y.register_hook(hook)
    z = y.sum()
    watched |= {"x": weakref.ref(x), "y": weakref.ref(y), "z": weakref.ref(z)}
    z.backward()


def by_grad(watched):
    x = torch.ones(3, requires_grad=True)
    other = torch.ones(3, requires_grad=True)
    z = (x * 3).sum()
    watched |= {"x": weakref.ref(x), "other": weakref.ref(other), "z": weakref.ref(z)}
    torch.autograd.grad(z, other)


def forward(watched):
    a, b = torch.ones(2, 3), torch.ones(2, 3)
    watch(watched, "a", a)
    torch.matmul(watch(watched, "temporary", a + 1), watch(watched, "other", b.clone()))


def only_looked_at(watched):
    a = torch.ones(2)
    watch(watched, "temporary", a + 1).item()


def in_python_of_torch(watched):
    a, b = torch.ones(4, requires_grad=True), torch.ones(3, dtype=torch.long)
    watched |= {"a": weakref.ref(a), "b": weakref.ref(b)}
    torch.nn.functional.cross_entropy(watch(watched, "temporary", a * 1), b)


def leaf_write(watched):
    a = torch.ones(4, requires_grad=True)
    watched |= {"a": weakref.ref(a)}
    a += 1


for fails in (stale, twice, in_a_hook, by_grad, forward, only_looked_at, in_python_of_torch, leaf_write):
    for _ in range(2):  # the second time, the recorder knows the lines
        watched = {}
        try:
            fails(watched)
        except Exception as error:
            kept = error
            print(fails.__name__, type(kept).__name__, frames(kept), held(kept))
            print(" ", alive(watched), sys.getrefcount(kept))
            if fails in (forward, leaf_write):  # torch's own frames in Python come twice, and count
                print(" ", [sys.getrefcount(made()) for made in watched.values() if made() is not None])
            print(" ", traceback.format_exc().count("\n") > 3, kept.__context__, kept.__cause__)
        kept.__traceback__ = None
        print(" ", alive(watched))
        del kept
        print(" ", alive(watched))

x = torch.ones(3, requires_grad=True)
before = sys.getrefcount(x)
for _ in range(3):
    y = x.exp()
    try:
        y.add_(1).sum().backward(inputs=[y])
        y.sum().backward()
    except RuntimeError:
        pass
    del y
print(sys.getrefcount(x) - before, sys.exc_info(), hasattr(sys, "last_value"), x.grad)
