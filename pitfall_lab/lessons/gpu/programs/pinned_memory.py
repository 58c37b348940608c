"""Copies to the device from ordinary and from pinned host memory, waiting and not waiting."""

import statistics
import time

import torch

n = 64 << 20
ordinary, pinned = torch.randn(n), torch.randn(n).pin_memory()
target = torch.empty(n, device="cuda")
rows = []


def measure(what, source, non_blocking):
    returned, done = [], []
    for _ in range(8):
        torch.cuda.synchronize()
        started = time.perf_counter()
        target.copy_(source, non_blocking=non_blocking)
        returned.append(time.perf_counter() - started)
        torch.cuda.synchronize()
        done.append(time.perf_counter() - started)
    row = {"what": what, "returned_ms": statistics.median(returned) * 1e3, "done_ms": statistics.median(done) * 1e3}
    row["gb_per_s"] = n * 4 / row["done_ms"] / 1e6
    rows.append(row)
    print(f"{what:34}call returned after {row['returned_ms']:8.2f} ms, copied after {row['done_ms']:8.2f} ms ({row['gb_per_s']:.1f} GB/s)")


measure("ordinary memory", ordinary, non_blocking=False)
measure("ordinary memory, non_blocking", ordinary, non_blocking=True)
measure("pinned memory", pinned, non_blocking=False)
measure("pinned memory, non_blocking", pinned, non_blocking=True)
result = {"rows": rows}
