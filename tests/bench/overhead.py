"""What recording and checking cost, each figure beside its budget: ``python -m tests.bench.overhead``; it ends
with 1 when one is exceeded.

Forward and backward of four programs, in one run and in turns: without anything, under a function mode that does
nothing (the floor for every recorder of this kind), under torch's own anomaly mode, recorded by pitfall_lab with and
without numbers (both with both engines at work); and what TorchLens, where it is installed, adds to the forward alone,
in times of what a metadata trace adds to both. What ``pitfall-lab check`` adds to programs of a few lines (more in
tests/bench/checking.py). Then what it costs to read a metadata trace, the peak memory of the CNN, each way in a process
of its own, and the cost of one operation in traces of 10 to 100,000 (torch 2.13 ends the process when it frees a chain
of some 50,000 nodes that Python has looked at: pitfall_lab.verify.fastpath.lane.DEEP). ``--short`` measures the
programs once, where they have a budget, but not the slow CNN, and allows twice as much, since the machine may be busy.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import re
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from pitfall_lab.verify import Session
from tests.bench import checking

PROGRAMS_OF_TESTS = Path(__file__).resolve().parent.parent / "programs"
TEXT = Path(__file__).read_text(encoding="utf-8")


def chain() -> None:
    """2,000 pointwise operations on 64 numbers."""
    x = torch.ones(64, requires_grad=True)
    h = x
    for _ in range(1000):
        h = h * 1.0001
        h = h + 0.0001
    h.sum().backward()


MLP = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
BATCH, LABELS = torch.randn(128, 784), torch.randint(0, 10, (128,))


def mlp() -> None:
    """A perceptron for digits, ten batches of 128."""
    # Three layers, 784-512-512-10. One batch takes milliseconds: what a recording costs once would
    # be most of what is measured.
    for _ in range(10):
        MLP.zero_grad()
        nn.functional.cross_entropy(MLP(BATCH), LABELS).backward()


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        parts = self.mix(self.first(x)).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(count, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """Six layers, 128 wide, 65 letters."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(65, 128), nn.Embedding(64, 128)
        self.layers = nn.ModuleList(Layer(128, 4) for _ in range(6))
        self.head = nn.Linear(128, 65)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.letters(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


MODEL = GPT()
TOKENS = torch.randint(0, 65, (8, 64))


def gpt() -> None:
    """A small GPT, 8 texts of 64 letters."""
    MODEL.zero_grad()
    nn.functional.cross_entropy(MODEL(TOKENS).flatten(0, 1), TOKENS.flatten()).backward()


class Block(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, before: int, after: int, step: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(before, after, 3, step, 1, bias=False),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
        )
        self.norm, self.again = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        plain = before == after and step == 1
        self.around = (
            nn.Identity()
            if plain
            else nn.Sequential(nn.Conv2d(before, after, 1, step, bias=False), nn.BatchNorm2d(after))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.again(self.second(h)) + self.around(x))


class ResNet(nn.Module):
    """ResNet-18 for small pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        sizes = [
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 256, 2),
            (256, 256, 1),
            (256, 512, 2),
            (512, 512, 1),
        ]
        self.blocks = nn.Sequential(*(Block(*size) for size in sizes))
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


RESNET = ResNet()
PICTURES, CLASSES = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))


def cnn() -> None:
    """A ResNet-18 on 8 pictures of 32 x 32."""
    RESNET.zero_grad()
    nn.functional.cross_entropy(RESNET(PICTURES), CLASSES).backward()


class Chain(nn.Module):
    """The chain as a module: TorchLens records modules."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(1000):
            x = x * 1.0001
            x = x + 0.0001
        return x


PROGRAMS: dict[str, Callable[[], None]] = {"chain": chain, "mlp": mlp, "gpt": gpt, "cnn": cnn}
MODULES = {
    "chain": (Chain(), torch.ones(64, requires_grad=True)),
    "mlp": (MLP, BATCH),
    "gpt": (MODEL, TOKENS),
    "cnn": (RESNET, PICTURES),
}
WAYS = ("eager", "nothing", "anomaly", "metadata", "values")
#: How many times eager a trace may take, how many times it the peak memory may be, and how
#: many seconds a check may add.
BUDGETS = {
    ("chain", "metadata"): 2.6,
    ("mlp", "metadata"): 1.7,
    ("gpt", "metadata"): 1.7,
    ("gpt", "values"): 2.7,
    ("cnn", "metadata"): 1.2,
}
MEMORY_BUDGET, CHECK_BUDGET = 1.25, 1.0
SHORT = 2.0
#: Programs of a few lines: one that is right, and one whose repairs are tried.
FEW_LINES = ("printing.py", "error_saved_output.py")
#: How often a program runs its module; TorchLens runs it once.
BATCHES = {"mlp": 10}
LENGTHS = (10, 100, 1_000, 10_000, 100_000)


class Nothing(TorchFunctionMode):
    """The cheapest function mode there can be."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def seconds(program: Callable[[], None], around: AbstractContextManager) -> float:
    gc.collect()
    started = time.perf_counter()
    with around:
        program()
    return time.perf_counter() - started


def recorded(program: Callable[[], None], *, values: bool) -> tuple[float, Any]:
    """Seconds until the trace of a program is there, and the trace."""
    session = Session(__file__, "overhead.py", TEXT, values=values)
    gc.collect()
    started = time.perf_counter()
    with session:
        program()
    trace = session.finish()
    taken = time.perf_counter() - started
    if any(note.kind == "stopped" for note in trace.notes):  # a recording that gave up is fast
        raise AssertionError(trace.notes)
    return taken, trace


def run(program: Callable[[], None], way: str) -> float:
    """Seconds for one run of a program in one of the ways."""
    if way in ("metadata", "values"):
        return recorded(program, values=way == "values")[0]
    if way != "anomaly":
        return seconds(program, Nothing() if way == "nothing" else nullcontext())
    with warnings.catch_warnings(action="ignore"):  # anomaly mode warns that it is slow
        return seconds(program, torch.autograd.set_detect_anomaly(True))


def torchlens(name: str) -> float:
    """Seconds that TorchLens adds to a program's forward (alone: there is no backward in this figure)."""
    import torchlens as tl

    module, given = MODULES[name]
    module(given)
    eager = seconds(lambda: module(given), nullcontext())
    tl.trace(MLP, BATCH)  # what it does once
    return seconds(lambda: tl.trace(module, given), nullcontext()) - eager


def torchlens_elsewhere(name: str) -> float | None:
    """The same in a process of its own: it leaves its hooks in torch. None where it is not installed or failed."""
    if importlib.util.find_spec("torchlens") is None:
        return None
    command = [sys.executable, "-m", "tests.bench.overhead", "--lens", name]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def compare(name: str, rounds: int, ways: Sequence[str] = WAYS) -> dict[str, float]:
    """Median seconds of each way, measured in turns."""
    program = PROGRAMS[name]
    for way in ways:
        run(program, way)
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            taken[way].append(run(program, way))
    return {way: statistics.median(values) for way, values in taken.items()}


def expansion(name: str) -> tuple[int, float, int]:
    """For a metadata trace: its events, the seconds until it is JSON, and the length of that."""
    _, trace = recorded(PROGRAMS[name], values=False)
    started = time.perf_counter()
    text = trace.to_json()
    return len(trace.events), time.perf_counter() - started, len(text)


def peak(way: str) -> float:
    """The peak memory in MiB that three runs of the CNN need, one after the other, in this process."""
    import pitfall_lab.verify  # noqa: F401 - what the import needs is not what recording needs

    for _ in range(3):
        run(cnn, way)
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the process was before it became this one: a copy of the benchmark
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1]) / 1024  # type: ignore[index]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_elsewhere(way: str) -> float:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.overhead", "--peak", way]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def microseconds(length: int, rounds: int) -> tuple[float, float]:
    """Microseconds for one operation, forward and backward, in a chain of ``length``: eager and recorded,
    the session's start included.

    The best of ``rounds``, or of fewer where the chain is long.
    """

    def program() -> None:
        h = torch.ones(64, requires_grad=True)
        for _ in range(length // 2):
            h = h * 1.0001
            h = h + 0.0001
        h.sum().backward()

    rounds = max(1, min(rounds, 20_000 // length))
    program()
    eager = min(seconds(program, nullcontext()) for _ in range(rounds))
    mine = min(recorded(program, values=False)[0] for _ in range(rounds))
    return eager / length * 1e6, mine / length * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=7)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--peak", choices=WAYS)
    parser.add_argument("--lens", choices=PROGRAMS)
    asked = parser.parse_args()
    torch.manual_seed(0)
    if asked.peak:
        print(peak(asked.peak))
        return 0
    if asked.lens:
        print(torchlens(asked.lens))
        return 0
    exceeded = []
    threads = torch.get_num_threads()
    rounds, room = (1, SHORT) if asked.short else (asked.rounds, 1.0)

    def held(what: str, figure: float, budget: float | None, unit: str) -> str:
        """A figure, and beside it the budget that it has."""
        if budget is None:
            return f"{figure:.2f} {unit}"
        if figure > budget * room:
            exceeded.append(f"{what}: {figure:.2f} {unit}, budget {budget * room:.2f}")
        return f"{figure:.2f} {unit} (<= {budget * room:.2f})"

    print(
        f"torch {torch.__version__}, {threads} threads, CPU, forward and backward, median of {rounds} rounds in turns"
    )
    print(f"{'':42}{'eager':>10}{'do-nothing':>14}{'anomaly':>12}{'metadata':>19}{'values':>19}{'TorchLens':>15}")
    for name, program in PROGRAMS.items():
        if asked.short and name == "cnn":
            continue
        ways = [way for way in WAYS if way == "eager" or not asked.short or (name, way) in BUDGETS]
        middle = compare(name, rounds, ways)
        lens = None if asked.short else torchlens_elsewhere(name)
        added, batches = middle["metadata"] - middle["eager"], BATCHES.get(name, 1)
        told = "not measured" if lens is None else f"adds {lens * batches / added:.0f} x"
        title = " ".join((program.__doc__ or "").split()).rstrip(".")
        widths = {"nothing": 14, "anomaly": 12, "metadata": 19, "values": 19}
        times = {
            way: held(f"{name}, {way}", middle[way] / middle["eager"], BUDGETS.get((name, way)), "x")
            for way in ways[1:]
        }
        cells = [f"{times.get(way, '-'):>{width}}" for way, width in widths.items()]
        print(f"{title:42}{middle['eager'] * 1000:7.1f} ms{''.join(cells)}{told:>15}")
        # Both run the same kernels, which no recorder can make faster: what they add is compared.
        if lens is not None and lens * batches < 10 * added:
            exceeded.append(f"{name}: what it adds is less than ten times below what TorchLens adds")
    if not asked.short:
        print(f"\n{'What a check adds':42}{'plain':>10}{'check':>14}{'adds':>19}{'processor adds':>21}")
        for name in FEW_LINES:
            (plain, busy), (check, busy_too) = checking.compared(PROGRAMS_OF_TESTS / name, rounds)
            adds = held(f"check {name}", check - plain, CHECK_BUDGET, "s")
            print(f"{name:42}{plain:8.2f} s{check:12.2f} s{adds:>19}{busy_too - busy:19.2f} s")
        print("\nPeak memory of the CNN")
        usual = peak_elsewhere("eager")
        for way in ("metadata", "values", "anomaly"):
            other = peak_elsewhere(way)
            times = held(f"peak memory, {way}", other / usual, MEMORY_BUDGET if way == "metadata" else None, "x")
            print(f"{way:10}{other:8.0f} MiB, eager {usual:.0f} MiB: {times}")
    print("\nA metadata trace read to the end (events written out, as JSON)")
    for name in ("mlp",) if asked.short else PROGRAMS:
        events, spent, size = expansion(name)
        print(f"{name:8}{events:8} events{spent * 1000:10.1f} ms{size / events:8.0f} bytes an event")
    print("\nOne operation in a metadata trace, forward and backward")
    for length in LENGTHS[:3] if asked.short else LENGTHS:
        eager, mine = microseconds(length, 3 if asked.short else 20)
        print(f"{length:8} operations{eager:9.1f} us eager{mine:9.1f} us recorded{mine / eager:8.2f} x")
    for line in exceeded:
        print("over budget:", line)
    if not exceeded:
        print("every figure is within its budget")
    return int(bool(exceeded))


if __name__ == "__main__":
    sys.exit(main())
