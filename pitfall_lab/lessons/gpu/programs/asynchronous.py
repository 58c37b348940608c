"""A call returns before the GPU has done it: what a clock without synchronize measures."""

import time

import torch

x = torch.randn(8192, 8192, device="cuda")
x @ x
torch.cuda.synchronize()


def clock(run):
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    taken = (time.perf_counter() - started) * 1e3
    torch.cuda.synchronize()
    return taken


def waiting():
    x @ x
    torch.cuda.synchronize()


begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
x @ x
end.record()
torch.cuda.synchronize()
rows = [
    {"what": "x @ x, clock stopped at once", "ms": clock(lambda: x @ x)},
    {"what": "x @ x, then synchronize()", "ms": clock(waiting)},
    {"what": "x @ x, then .sum().item()", "ms": clock(lambda: (x @ x).sum().item())},
    {"what": "x @ x, then print (first number)", "ms": clock(lambda: str((x @ x)[0, 0]))},
    {"what": "CUDA events around x @ x", "ms": begin.elapsed_time(end)},
]
for row in rows:
    print(f"{row['what']:36}{row['ms']:9.3f} ms")
result = {"rows": rows}
