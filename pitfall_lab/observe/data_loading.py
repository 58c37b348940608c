"""Reads from the objects of a ``DataLoader`` which random numbers its dataset draws, which examples are drawn, and
whether its workers divide the examples (:func:`generators` and :func:`undivided`).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch

DEPTH = 4
SAMPLES = ("__getitem__", "__getitems__", "__iter__")
IN_WORKERS = {"get_worker_info", "initial_seed"}
DRAWING = {
    "bernoulli", "choice", "choices", "cycle", "default_rng", "exponential_", "integers", "multinomial", "normal",
    "normal_", "permutation", "rand", "rand_like", "randint", "randn", "randn_like", "random", "random_", "randperm",
    "sample", "shuffle", "standard_normal", "uniform", "uniform_",
}  # fmt: skip
"""Functions that draw random numbers, or repeat a sequence without end: with these, workers need not divide the
data.
"""
SHARING = ("worker", "rank", "shard", "world_size", "islice")
"""If a name contains one of these, the dataset may divide its data between readers."""
PLAIN = (
    type(None), bool, int, float, str, bytes, Path, list, tuple, dict, set, np.ndarray, np.generic, torch.Tensor,
)  # fmt: skip
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def source_of(loader: Any) -> Any:
    """The dataset of a ``DataLoader``; for a ``Subset`` (nested up to ``DEPTH``, 4, levels) the dataset that it is
    taken from. None if the loader has none.
    """
    dataset = vars(loader).get("dataset")
    for _ in range(DEPTH):
        if not isinstance(dataset, torch.utils.data.Subset):
            break
        dataset = dataset.dataset
    return dataset


def generators(loader: Any, dataset: Any) -> dict[str, str]:
    """The random number generators (of NumPy, ``random`` or torch) that a dataset holds as attributes and reads in the
    methods that make its samples: the attributes' names, each with a SHA-256 digest of the generator's present state.

    Empty if there are none, if ``loader`` has a ``worker_init_fn``, or if the dataset asks in which worker it runs: it
    may use different generators.
    """
    try:
        attributes = object.__getattribute__(dataset, "__dict__")
    except AttributeError:
        return {}
    held = {
        n: value
        for n, value in attributes.items()
        if isinstance(value, GENERATORS) and not isinstance(value, random.SystemRandom)
    }
    read = _read_for_samples(type(dataset)) if held and vars(loader).get("worker_init_fn") is None else set()
    return {} if read & IN_WORKERS else {name: _digest(value) for name, value in held.items() if name in read}


def undivided(loader: Any) -> bool:
    """Whether each of several workers (``num_workers`` of at least 2) reads all of an ``IterableDataset``, as no code
    that makes its samples asks in which worker it runs.

    False if that is uncertain: with a ``worker_init_fn``, an ``__iter__`` of torch, random numbers in the stream (each
    worker draws different ones), a name that suggests other readers (:data:`SHARING`), or an attribute that is not one
    of Python's, NumPy's or torch's data types, as it may divide the data itself.
    """
    dataset = vars(loader).get("dataset")
    workers = vars(loader).get("num_workers")
    if not isinstance(dataset, torch.utils.data.IterableDataset) or not isinstance(workers, int) or workers < 2:
        return False
    cls, held = type(dataset), object.__getattribute__(dataset, "__dict__")
    if (
        vars(loader).get("worker_init_fn") is not None
        or not isinstance(getattr(cls, "__iter__", None), FunctionType)
        or cls.__iter__.__module__.startswith("torch.")
        or not all(isinstance(value, PLAIN) for value in held.values())
    ):
        return False
    read = _read_in(cls)
    return not read & (IN_WORKERS | DRAWING) and not any(part in name.lower() for name in read for part in SHARING)


def _read_in(cls: type) -> set[str]:
    """All names that ``__iter__`` of a class reads, including those read in nested functions, and in the methods and
    functions of its module that these names refer to.
    """
    methods = {name: f for base in reversed(cls.__mro__) for name, f in vars(base).items()}
    work, read, seen = ["__iter__"], set[str](), set[str]()
    around = getattr(cls.__iter__, "__globals__", {})  # type: ignore[attr-defined]
    while work:
        name = work.pop()
        found = methods.get(name, around.get(name))
        found = getattr(found, "__func__", found)
        if name in seen or not isinstance(found, FunctionType):
            continue
        seen.add(name)
        for code in codes(found.__code__):
            names = {*code.co_names, *code.co_freevars, *code.co_varnames}
            read |= names
            work += names
    return read


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code object itself, and those of all functions nested in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


def examples(loader: Any) -> int | None:
    """The length of a loader's dataset, if it is known without running code of the program; else None.

    It is known for a list, tuple, ``TensorDataset`` or ``Subset``, and for a class whose ``__len__`` only returns the
    length of an attribute that is a list, tuple, array or plain tensor.
    """
    return _length(vars(loader).get("dataset"))


def _length(dataset: Any) -> int | None:
    if isinstance(dataset, list | tuple | torch.utils.data.TensorDataset | torch.utils.data.Subset):
        length = getattr(type(dataset), "__len__", None)
        return len(dataset) if not isinstance(length, FunctionType) or length.__module__.startswith("torch.") else None
    length = getattr(type(dataset), "__len__", None)
    names = length.__code__.co_names if isinstance(length, FunctionType) else ()
    if len(names) == 2 and (names[0] == "len" or names[1] in ("shape", "size")):  # return len(self.x), self.x.shape[0]
        held = getattr(dataset, "__dict__", {}).get(names[1] if names[0] == "len" else names[0])
        return len(held) if isinstance(held, list | tuple | np.ndarray) or type(held) is torch.Tensor else None
    return None


def weights(loader: Any) -> int | None:
    """The number of weights of a loader's ``WeightedRandomSampler``; None if its weights are not one-dimensional, or if
    it has another sampler (including a subclass).
    """
    sampler = vars(loader).get("sampler")
    held = vars(sampler).get("weights") if type(sampler) is torch.utils.data.WeightedRandomSampler else None
    return len(held) if isinstance(held, torch.Tensor) and held.dim() == 1 else None


def _read_for_samples(cls: type) -> set[str]:
    """All names that are read by the methods that make a sample, and by the methods of the class that these names refer
    to.
    """
    methods = {
        name: f for base in reversed(cls.__mro__) for name, f in vars(base).items() if isinstance(f, FunctionType)
    }
    work, read, seen = list(SAMPLES), set[str](), set[str]()
    while work:
        name = work.pop()
        if name in methods and name not in seen:
            seen.add(name)
            read.update(methods[name].__code__.co_names)
            work += methods[name].__code__.co_names
    return read


def _digest(generator: Any) -> str:
    state: Any
    if isinstance(generator, np.random.Generator):
        state = generator.bit_generator.state
    elif isinstance(generator, torch.Generator):
        state = generator.get_state().tolist()
    else:
        state = generator.getstate() if isinstance(generator, random.Random) else generator.get_state(legacy=False)
    return hashlib.sha256(repr(state).encode()).hexdigest()
