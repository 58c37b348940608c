"""What the live panel costs: ``python -m tests.bench.live`` prints the table of a cell's cost and
that of the start of JupyterLab.

With ``--short`` only the first, up to 200 tensors. Processor time, and each figure is the median of several cells.
"hidden" is the check for stale graphs alone, "shown" has the rows too.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

LOAD = (
    "import time\n"
    "from IPython.core.interactiveshell import InteractiveShell\n"
    "shell = InteractiveShell.instance()\n"
    "began = time.process_time()\n"
    "import pitfall_lab.notebook.magic\n"
    "pitfall_lab.notebook.magic.load_ipython_extension(shell)\n"
    "import sys\n"
    "print(1000 * (time.process_time() - began), 'torch' in sys.modules, 'numpy' in sys.modules)"
)


def plain(count: int) -> dict[str, object]:
    """So many tensors without a graph, a few of which share memory."""
    made: dict[str, object] = {f"t{i}": torch.randn(16) for i in range(count)}
    return made | {f"v{i}": made[f"t{i}"][:4] for i in range(count // 10)}  # type: ignore[index]


def with_graphs(count: int) -> dict[str, object]:
    """So many tensors, half of them results with a graph behind them."""
    made: dict[str, object] = {}
    for i in range(count // 2):
        made[f"w{i}"] = w = torch.randn(8, 8, requires_grad=True)
        made[f"h{i}"] = (w @ w).sigmoid() * 2
    return made


def training() -> dict[str, object]:
    """A network of the size of ResNet-50's graph, its optimizer and its loss."""
    layers = [each for _ in range(53) for each in (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())]
    net, x = nn.Sequential(*layers), torch.randn(64, 64)
    optimizer = torch.optim.Adam(net.parameters())
    return {"net": net, "opt": optimizer, "x": x, "loss": net(x).square().mean()}


def step(namespace: dict[str, object]) -> None:
    """A training cell: thirty steps."""
    net, optimizer, x = (namespace[name] for name in ("net", "opt", "x"))
    for _ in range(30):
        loss = net(x).square().mean()  # type: ignore[operator]
        optimizer.zero_grad()  # type: ignore[attr-defined]
        loss.backward()
        optimizer.step()  # type: ignore[attr-defined]
    namespace["loss"] = loss


def cost(
    namespace: dict[str, object], *, shown: bool, cell: Callable[[], None] = lambda: None, cells: int = 15
) -> tuple[float, float, bool]:
    """Milliseconds of the panel's and of the cell's, per cell, and whether everything was looked at."""
    from pitfall_lab.observe.live.session import Live
    from pitfall_lab.panel.connection import LONGEST, PAGE, PART, SECONDS

    live, mine, its, cut = Live(), [], [], False
    for count in range(1, cells + 1):
        began = time.thread_time()
        live.begin()
        ours = time.thread_time() - began
        began = time.process_time()
        cell()
        its.append(time.process_time() - began)
        began = time.thread_time()
        live.ended(count, (), torch_is_new=False)
        look = live.look(namespace, min(max(SECONDS, its[-1] * PART), LONGEST), (0, PAGE) if shown else None)
        mine.append(ours + time.thread_time() - began)
        cut |= look.cut
    return statistics.median(mine) * 1000, statistics.median(its) * 1000, cut


def table(
    sizes: tuple[int, ...] = (20, 200, 1000, 10_000), trainings: int = 5
) -> list[tuple[str, float, float, float, bool]]:
    """The lines: what, the panel's milliseconds hidden and shown, the cell's, and whether time ran out."""
    out = []
    for what, make in (("tensors", plain), ("tensors, half with graphs", with_graphs)):
        for size in sizes:
            namespace = make(size)
            hidden, _, one = cost(namespace, shown=False)
            shown, _, other = cost(namespace, shown=True)
            out.append((f"{size} {what}", hidden, shown, 0.0, one or other))
    namespace = training()
    hidden, its, one = cost(namespace, shown=False, cell=lambda: step(namespace), cells=trainings)
    shown, _, other = cost(namespace, shown=True, cell=lambda: step(namespace), cells=trainings)
    out.append(("a training cell of 30 steps, 159 layers", hidden, shown, its, one or other))
    return out


def loading(starts: int) -> tuple[float, bool]:
    """Milliseconds that loading the extension takes in a kernel without torch (best of some), and whether
    torch or NumPy came with it.
    """
    found = [
        subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(starts)
    ]
    return min(float(each[0]) for each in found), any("True" in each for each in found)


def main() -> int:
    """Print the tables; 1 where a budget is exceeded: 20 ms for 200 tensors, 2 % of a training cell,
    loading 50 ms, the start 100 ms.
    """
    torch.set_num_threads(1)
    over = 0
    print(f"{'after a cell':<45}{'hidden':>10}{'shown':>10}{'the cell':>12}{'part':>8}")
    short = "--short" in sys.argv[1:]
    for what, hidden, shown, its, cut in table((20, 200), trainings=1) if short else table():
        part = f"{100 * shown / its:.1f} %" if its else ""
        up = "  time was up: not everything was looked at" if cut else ""
        over |= shown > (0.02 * its if its else 20 if what.startswith("200 ") else math.inf)
        print(f"{what:<45}{hidden:>7.1f} ms{shown:>7.1f} ms{its:>9.0f} ms{part:>8}{up}")
    took, heavy = loading(1 if short else 3)
    print(
        f"{'%load_ext pitfall_lab':<45}{took:>17.1f} ms   "
        f"{'imports torch or NumPy' if heavy else 'imports neither torch nor NumPy'}"
    )
    print(f"(load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
    if not short:
        from tests.bench import startup  # needs a browser

        print("\nstart of JupyterLab")
        over |= startup.main(7)
    if over or took > 50:
        print("over budget")
    return int(over or heavy or took > 50)


if __name__ == "__main__":
    sys.exit(main())
