"""relu and relu_ on 10,000 × 10,000 numbers, with the peak counter read wrongly and rightly."""

import torch

MIB = 1 << 20


def growth(change, reset):
    torch.cuda.synchronize()
    if reset:
        torch.cuda.reset_peak_memory_stats()
    start_peak, start = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    kept = change()
    torch.cuda.synchronize()
    grown = torch.cuda.memory_allocated() - start, torch.cuda.max_memory_allocated() - start_peak
    del kept
    return grown


rows = []
for reset in (False, True):
    torch.cuda.reset_peak_memory_stats()
    x = torch.randn(10_000, 10_000, device="cuda")
    for name, change in (
        ("torch.relu(x)", lambda: torch.relu(x)),
        ("torch.relu_(x)", lambda: torch.relu_(x)),
        ("x * 2 (allocates!)", lambda: x * 2),
    ):
        allocated, peak = growth(change, reset)
        rows.append({"code": name, "peak_reset": reset, "allocated_mib": allocated / MIB, "peak_grew_mib": peak / MIB})
        print(f"{'peak reset' if reset else 'not reset':12}{name:22}allocated {allocated / MIB:7.1f} MiB   peak counter grew by {peak / MIB:7.1f} MiB")
    del x
result = {"rows": rows}
