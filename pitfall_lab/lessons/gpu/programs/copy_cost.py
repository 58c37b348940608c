"""When a GPU is faster: matrix products from small to large, with and without the copies to the device and back."""

import statistics
import time

import torch


def seconds(run, repeat):
    run()
    torch.cuda.synchronize()
    taken = []
    for _ in range(repeat):
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


rows = []
print(f"CPU threads: {torch.get_num_threads()}")
print(f"{'n':>6}{'CPU':>14}{'GPU':>14}{'GPU + copies':>16}")
for n in (16, 64, 256, 1024, 4096):
    a, b = torch.randn(n, n), torch.randn(n, n)
    x, y = a.cuda(), b.cuda()
    repeat = 20 if n < 2000 else 5
    row = {
        "n": n,
        "cpu_us": seconds(lambda: a @ b, repeat) * 1e6,
        "gpu_us": seconds(lambda: x @ y, repeat) * 1e6,
        "gpu_with_copies_us": seconds(lambda: (a.cuda() @ b.cuda()).cpu(), repeat) * 1e6,
    }
    rows.append(row)
    print(f"{n:6}{row['cpu_us']:11.1f} µs{row['gpu_us']:11.1f} µs{row['gpu_with_copies_us']:13.1f} µs")

tiny = torch.randn(8, device="cuda")


def many_small(t):
    for _ in range(1000):
        t = t * 1.0001
    return t


small = {"cpu_us": seconds(lambda: many_small(torch.randn(8)), 5) * 1e6, "gpu_us": seconds(lambda: many_small(tiny), 5) * 1e6}
print(f"1,000 multiplications of 8 numbers: CPU {small['cpu_us'] / 1000:.1f} µs each, GPU {small['gpu_us'] / 1000:.1f} µs each")
try:
    whole = torch.ones(4, 4, dtype=torch.int64, device="cuda")
    integer = f"fine: {(whole @ whole).dtype}"
except RuntimeError as error:
    integer = f"RuntimeError: {str(error).splitlines()[0]}"
print("int64 @ int64 on the GPU:", integer)
result = {"rows": rows, "thousand_small": small, "int64_matmul": integer, "cpu_threads": torch.get_num_threads()}
