"""One training step in float32, TF32, float16 with a scaler, and bfloat16: time, peak memory, and what underflows."""

import statistics
import time

import torch
from torch import nn

MIB = 1 << 20


def build():
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(4096, 4096), nn.GELU())], nn.Linear(4096, 10)).cuda()


def run(kind):
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", enabled=kind == "float16")
    x, target = torch.randn(4096, 4096, device="cuda"), torch.randint(0, 10, (4096,), device="cuda")
    low = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(kind)
    taken = []
    for step in range(12):
        if step == 2:
            torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        started = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=low or torch.float16, enabled=low is not None):
            loss = nn.functional.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return {
        "kind": kind, "ms": statistics.median(taken[2:]) * 1e3, "peak_mib": torch.cuda.max_memory_allocated() / MIB, "loss": loss.item(),
        "weights": str(model[0].weight.dtype), "scale": scaler.get_scale() if kind == "float16" else None,
    }


rows = []
for kind in ("float32", "tf32", "float16", "bfloat16"):
    row = run(kind)
    rows.append(row)
    print(f"{kind:10}{row['ms']:9.2f} ms a step{row['peak_mib']:11.1f} MiB peak   loss {row['loss']:.4f}   weights stay {row['weights']}")

small = {}
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    w = torch.tensor([1.0], device="cuda", dtype=dtype, requires_grad=True)
    (w * 1e-4 * 1e-5).sum().backward()
    small[str(dtype)] = w.grad.item()
print("a gradient of 1e-9:", small)
result = {"rows": rows, "gradient_of_1e-9": small}
