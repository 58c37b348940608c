"""The caching allocator's own record of a few lines: what it requested from the driver, and what it took from its cache."""

import torch

MIB = 1 << 20
torch.zeros(1, device="cuda")
torch.cuda.empty_cache()
torch.cuda.memory._record_memory_history(max_entries=10_000)
a = torch.randn(4 << 20, device="cuda")
b = a * 2
del a
c = torch.relu(b)
d = torch.relu_(c)
del b
e = torch.cat([c, c])
del c, d, e
torch.cuda.empty_cache()
snapshot = torch.cuda.memory._snapshot()
torch.cuda.memory._record_memory_history(enabled=None)
rows, allocated, reserved = [], 0, 0
for entry in snapshot["device_traces"][0]:
    action, size = entry["action"], entry["size"]
    allocated += {"alloc": size, "free_completed": -size}.get(action, 0)
    reserved += {"segment_alloc": size, "segment_free": -size}.get(action, 0)
    line = next((f["line"] for f in entry.get("frames", ()) if f["filename"].endswith("allocator_events.py")), None)
    rows.append({"action": action, "mib": size / MIB, "allocated_mib": allocated / MIB, "reserved_mib": reserved / MIB, "line": line})
    print(f"{action:16}{size / MIB:8.1f} MiB   allocated {allocated / MIB:7.1f}   reserved {reserved / MIB:7.1f}   line {line}")
result = {"rows": rows}
