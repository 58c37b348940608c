# Threads: grad mode is per thread; a worker computes while the main thread waits.
import threading

import torch

results = {}


def work(name):
    x = torch.full((2,), 2.0, requires_grad=True)
    (x**2).sum().backward()
    results[name] = (x.grad.tolist(), torch.is_grad_enabled())


with torch.no_grad():
    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
print(sorted(results.items()), torch.is_grad_enabled(), torch.ones(2).sum())
