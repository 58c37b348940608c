"""Where the memory of a dropped CUDA tensor goes: back to PyTorch's cache, not to the driver."""

import torch

MIB = 1 << 20
rows = []


def note(what):
    free, total = torch.cuda.mem_get_info()
    row = {
        "step": what,
        "allocated_mib": torch.cuda.memory_allocated() / MIB,
        "reserved_mib": torch.cuda.memory_reserved() / MIB,
        "driver_used_mib": (total - free) / MIB,
    }
    rows.append(row)
    print(f"{what:42}{row['allocated_mib']:12.1f}{row['reserved_mib']:12.1f}{row['driver_used_mib']:14.1f}")


print(f"{'MiB':42}{'allocated':>12}{'reserved':>12}{'driver used':>14}")
torch.cuda.init()
note("before anything")
x = torch.randn(1_000_000_000, device="cuda")
note("x = randn(1_000_000_000, device='cuda')")
x = None
note("x = None")
torch.cuda.synchronize()
note("torch.cuda.synchronize()")
y = torch.randn(500_000_000, device="cuda")
note("y = randn(500_000_000): taken from the cache")
torch.cuda.empty_cache()
note("empty_cache() while y lives")
kept = y[:10]
y = None
torch.cuda.empty_cache()
note("y = None, but kept = y[:10] holds its storage")
kept = kept.clone()
torch.cuda.empty_cache()
note("kept = kept.clone(); empty_cache()")
result = {"rows": rows}
