"""Two ways to get a billion random numbers onto the device."""

import resource
import time

import torch

torch.zeros(1, device="cuda")
n = 1_000_000_000
rows = []


def timed(what, make):
    torch.cuda.synchronize()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    x = make()
    torch.cuda.synchronize()
    row = {"what": what, "seconds": time.perf_counter() - started, "host_peak_grew_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}
    rows.append(row)
    print(f"{what:34}{row['seconds']:8.3f} s   host memory peak grew by {row['host_peak_grew_mib']:8.1f} MiB")
    del x


timed("torch.randn(n, device='cuda')", lambda: torch.randn(n, device="cuda"))
timed("torch.randn(n).cuda()", lambda: torch.randn(n).cuda())
result = {"rows": rows}
