"""Every allocation of one training step, and what the cache holds meanwhile: ReLU out of place, in place, and checkpointed."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

MIB = 1 << 20


def build(inplace):
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU(inplace=inplace))]).cuda()


def timeline(kind):
    model = build(inplace=kind == "in place")
    x = torch.randn(8192, 1024, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    points = []

    def note(where):
        points.append({"where": where, "allocated_mib": (torch.cuda.memory_allocated() - start) / MIB, "reserved_mib": torch.cuda.memory_reserved() / MIB})

    note("start")
    handles = [layer.register_forward_hook(lambda module, *_: note("forward " + type(module).__name__)) for layer in model]
    out = checkpoint_sequential(model, 4, x, use_reentrant=False) if kind == "checkpointed" else model(x)
    for handle in handles:
        handle.remove()
    note("forward done")
    loss = out.sum()
    for index, layer in enumerate(model):
        if isinstance(layer, nn.Linear):
            layer.weight.register_post_accumulate_grad_hook(lambda _, i=index: note(f"gradient of layer {i}"))
    loss.backward()
    note("backward done")
    del loss, out
    model.zero_grad()
    note("zero_grad()")
    return {"kind": kind, "points": points, "peak_mib": (torch.cuda.max_memory_allocated() - start) / MIB, "cached_after_mib": torch.cuda.memory_reserved() / MIB}


rows = []
for kind in ("out of place", "in place", "checkpointed"):
    row = timeline(kind)
    rows.append(row)
    print(f"{kind:14}peak above the start {row['peak_mib']:8.1f} MiB   reserved after it {row['cached_after_mib']:8.1f} MiB   {len(row['points'])} points")
result = {"rows": rows}
