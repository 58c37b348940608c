"""The memory of accumulation: a backward for each of four pieces, one backward at the end, and one large batch."""

import torch
from torch import nn

MIB = 1 << 20
WIDTH, ROWS = 2048, 16384
rows = []


def start():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)).cuda()
    return net, torch.randn(ROWS, 64, device="cuda")


def a_backward_for_each_piece(net, data):
    for piece in data.chunk(4):
        loss = net(piece).square().mean() / 4
        loss.backward()
        del loss


def one_backward_at_the_end(net, data):
    total = 0
    for piece in data.chunk(4):
        total = total + net(piece).square().mean() / 4
    total.backward()


def one_large_batch(net, data):
    net(data).square().mean().backward()


def measure(program):
    net, data = start()
    program(net, data)  # libraries take their workspaces in a first run
    net.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    program(net, data)
    torch.cuda.synchronize()
    held, peak = (torch.cuda.memory_allocated() - before) / MIB, (torch.cuda.max_memory_allocated() - before) / MIB
    rows.append({"what": program.__name__, "held_mib": held, "peak_mib": peak})
    print(f"{program.__name__.replace('_', ' '):28}peak {peak:7.1f} MiB   held at the end {held:5.1f} MiB")


block = ROWS // 4 * WIDTH * 4 / MIB
print(f"the tanh results of one piece: {block:.0f} MiB")
for program in (a_backward_for_each_piece, one_backward_at_the_end, one_large_batch):
    measure(program)
result = {"block_mib": block, "rows": rows}
