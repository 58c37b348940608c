"""Reads what a ``DataLoader`` is made of, as far as it decides which random numbers its dataset draws, which examples
are drawn, and whether its workers share them out (:func:`generators` and :func:`undivided`).
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
"""What draws random numbers, or repeats a sequence without end: workers may all do this."""
SHARING = ("worker", "rank", "shard", "world_size", "islice")
"""Names with one of these in them: the dataset may know of other readers."""
PLAIN = (
    type(None), bool, int, float, str, bytes, Path, list, tuple, dict, set, np.ndarray, np.generic, torch.Tensor,
)  # fmt: skip
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def source_of(loader: Any) -> Any:
    """The dataset of a ``DataLoader``; for a ``Subset`` (up to ``DEPTH``, 4, one in another) the dataset that it is a
    part of. None if the loader has none.
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

    Empty if there are none, if ``loader`` has a ``worker_init_fn``, or if the dataset looks which worker it is in: it
    may give each another generator.
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
    """Whether each of several workers (``num_workers`` of at least 2) reads all of an ``IterableDataset``: nothing in
    the code that makes its samples asks which worker it is in.

    False where that is not certain: a ``worker_init_fn``, an ``__iter__`` of torch's, random numbers in the stream
    (each worker draws others), a name that suggests other readers (:data:`SHARING`), or an attribute other than plain
    data, which may do the sharing itself.
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
    """All names that ``__iter__`` of a class reads, and those that the methods and the functions of its module read
    which these name, nested functions and their constants too.
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
    """The code itself, and that of all functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


def examples(loader: Any) -> int | None:
    """The length of a loader's dataset, if it is known without running code of the program; else None. Known is that of
    a list, tuple, ``TensorDataset`` or ``Subset``, and of a class whose ``__len__`` only returns the length of an
    attribute that is a list, tuple, array or plain tensor.
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
    """The number of weights of a loader's ``WeightedRandomSampler``, which are a vector; None if it has another sampler
    (a subclass too).
    """
    sampler = vars(loader).get("sampler")
    held = vars(sampler).get("weights") if type(sampler) is torch.utils.data.WeightedRandomSampler else None
    return len(held) if isinstance(held, torch.Tensor) and held.dim() == 1 else None


def _read_for_samples(cls: type) -> set[str]:
    """All names that the methods read which make a sample, and the methods of the class that these name."""
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
