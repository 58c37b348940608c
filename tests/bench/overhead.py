"""What recording costs: ``python -m tests.bench.overhead``.

Forward and backward of three programs, in one run and in turns: without anything, under a function mode that does nothing (the
floor for every recorder of this kind), under torch's own anomaly mode, and recorded by pitfall_lab with both engines at work.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from pitfall_lab.verify import Session

TEXT = Path(__file__).read_text(encoding="utf-8")


def chain() -> None:
    """2,000 pointwise operations on 64 numbers."""
    x = torch.ones(64, requires_grad=True)
    h = x
    for _ in range(1000):
        h = h * 1.0001
        h = h + 0.0001
    h.sum().backward()


MLP = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
BATCH, LABELS = torch.randn(128, 64), torch.randint(0, 10, (128,))


def mlp() -> None:
    """A perceptron of three layers, batch of 128."""
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


def recorded(program: Callable[[], None]) -> tuple[float, float, int]:
    """Seconds until the program is done, seconds until its trace is, and the number of events."""
    session = Session(__file__, "overhead.py", TEXT)
    gc.collect()
    started = time.perf_counter()
    with session:
        program()
    done = time.perf_counter()
    trace = session.finish()
    return done - started, time.perf_counter() - started, len(trace.events)


def main(rounds: int) -> None:
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {rounds} rounds in turns, forward and backward, CPU")
    print(" " * 28 + "      eager   do-nothing mode   anomaly mode   recorded   with trace   events")
    for program in (chain, mlp, gpt):
        seconds(program, nullcontext())
        taken: dict[str, list[float]] = {"eager": [], "nothing": [], "anomaly": [], "recorded": [], "trace": []}
        events = 0
        for _ in range(rounds):
            taken["eager"].append(seconds(program, nullcontext()))
            taken["nothing"].append(seconds(program, Nothing()))
            with warnings.catch_warnings(action="ignore"):  # anomaly mode warns that it is slow
                taken["anomaly"].append(seconds(program, torch.autograd.set_detect_anomaly(True)))
            running, whole, events = recorded(program)
            taken["recorded"].append(running)
            taken["trace"].append(whole)
        middle = {name: statistics.median(values) for name, values in taken.items()}
        ratios = [f"{middle[name] / middle['eager']:.1f} x" for name in ("nothing", "anomaly", "recorded", "trace")]
        title = (program.__doc__ or "").rstrip(".")
        print(title)
        print(f"{'':28}{middle['eager'] * 1000:8.1f} ms{ratios[0]:>18}{ratios[1]:>15}{ratios[2]:>11}{ratios[3]:>13}{events:9}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
