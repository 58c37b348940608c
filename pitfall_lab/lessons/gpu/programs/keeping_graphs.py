"""What keeps memory: a list of losses, retain_graph, eval without no_grad, and what checkpointing gives back."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

MIB = 1 << 20
torch.manual_seed(0)
model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.GELU())]).cuda()
x = torch.randn(4096, 2048, device="cuda")
rows = []


def measure(what, run):
    model.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    kept = run()
    torch.cuda.synchronize()
    row = {"what": what, "held_mib": (torch.cuda.memory_allocated() - start) / MIB, "peak_mib": (torch.cuda.max_memory_allocated() - start) / MIB}
    rows.append(row)
    print(f"{what:46}still held {row['held_mib']:9.1f} MiB   peak {row['peak_mib']:9.1f} MiB")
    del kept


def no_grad():
    with torch.no_grad():
        return model(x)


def evaluated():
    model.eval()
    out = model(x)
    model.train()
    return out


def retained():
    loss = model(x).sum()
    loss.backward(retain_graph=True)
    return loss


def released():
    loss = model(x).sum()
    loss.backward()
    return loss


measure("model(x)", lambda: model(x))
measure("model.eval(); model(x)", evaluated)
measure("with torch.no_grad(): model(x)", no_grad)
measure("history.append(loss), three times", lambda: [model(x).sum() for _ in range(3)])
measure("history.append(loss.item()), three times", lambda: [model(x).sum().item() for _ in range(3)])
measure("loss.backward()", released)
measure("loss.backward(retain_graph=True)", retained)
measure("checkpoint_sequential(model, 4, x).sum()", lambda: checkpoint_sequential(model, 4, x, use_reentrant=False).sum())
result = {"rows": rows}
