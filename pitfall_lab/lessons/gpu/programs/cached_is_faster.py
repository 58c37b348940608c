"""What empty_cache costs: the next allocation asks the driver again."""

import statistics
import time

import torch


def seconds(empty):
    taken = []
    for _ in range(30):
        x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        del x
        if empty:
            torch.cuda.empty_cache()
        torch.cuda.synchronize()
        started = time.perf_counter()
        x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
        del x
    return statistics.median(taken)


cached, fresh = seconds(empty=False), seconds(empty=True)
print(f"64 MiB from the cache:          {cached * 1e6:8.1f} µs")
print(f"64 MiB after empty_cache():     {fresh * 1e6:8.1f} µs")
result = {"cached_us": cached * 1e6, "after_empty_cache_us": fresh * 1e6}
