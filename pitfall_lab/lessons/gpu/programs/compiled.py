"""A chain of pointwise operations: eager, TorchScript and torch.compile."""

import statistics
import time
import warnings

import torch

warnings.simplefilter("ignore")


def chain(x):
    for _ in range(10):
        x = torch.sin(x) * 1.01 + torch.cos(x)
    return x


x = torch.randn(4096, 4096, device="cuda")


def measure(run):
    started = time.perf_counter()
    run(x)
    torch.cuda.synchronize()
    first = time.perf_counter() - started
    for _ in range(3):
        run(x)
    taken = []
    for _ in range(20):
        torch.cuda.synchronize()
        started = time.perf_counter()
        run(x)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return first, statistics.median(taken)


rows = []
for name, make in (("eager", lambda: chain), ("torch.jit.trace", lambda: torch.jit.trace(chain, x)), ("torch.compile", lambda: torch.compile(chain))):
    try:
        run = make()
        first, again = measure(run)
        rows.append({"what": name, "first_ms": first * 1e3, "ms": again * 1e3, "largest_difference": (run(x) - chain(x)).abs().max().item()})
        print(f"{name:18}first call {first * 1e3:10.1f} ms   later calls {again * 1e3:8.3f} ms")
    except Exception as error:
        rows.append({"what": name, "failed": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"})
        print(name, "did not run here:", rows[-1]["failed"])
result = {"rows": rows}
