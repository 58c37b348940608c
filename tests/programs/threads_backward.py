"""Torch used in other threads: what they may have changed is met anew."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

x = torch.ones(3, requires_grad=True)
y = x.exp()


def work():
    (x * 2).sum().backward()


thread = threading.Thread(target=work)
thread.start()
thread.join()
print(x.grad)
x.grad.zero_()


def through(t):
    y.sum().backward()
    return t.detach() * 2


with ThreadPoolExecutor(1) as pool:
    doubled = pool.submit(through, x).result()
print(doubled, x.grad)
try:
    y.sum().backward()
except RuntimeError as error:
    print(str(error)[:40])

kept = {}


def build():
    kept["h"] = x * 5
    with torch.no_grad():
        x.add_(1)


thread = threading.Thread(target=build)
thread.start()
thread.join()
h = kept["h"] * x
h.sum().backward()
print(x.grad, x._version)
