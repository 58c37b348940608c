"""Reads what a ``DataLoader`` is made of, as far as it decides which random numbers its dataset draws."""

from __future__ import annotations

import hashlib
import random
from types import FunctionType
from typing import Any

import numpy as np
import torch

DEPTH = 4
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def source_of(loader: Any) -> Any:
    """The dataset of a loader; of a part of a dataset (``Subset``), the whole."""
    dataset = vars(loader).get("dataset")
    for _ in range(DEPTH):
        if not isinstance(dataset, torch.utils.data.Subset):
            break
        dataset = dataset.dataset
    return dataset


def generators(dataset: Any) -> dict[str, str]:
    """The dataset's own random number generators that its methods read, by attribute, each with a digest of its state."""
    try:
        attributes = object.__getattribute__(dataset, "__dict__")
    except AttributeError:
        return {}
    held = {name: value for name, value in attributes.items() if isinstance(value, GENERATORS)}
    if not held:
        return {}
    methods = [f for cls in type(dataset).__mro__ for name, f in vars(cls).items() if isinstance(f, FunctionType) and name != "__init__"]
    read = {name for method in methods for name in method.__code__.co_names}
    return {name: _digest(value) for name, value in held.items() if name in read}


def _digest(generator: Any) -> str:
    state: Any
    if isinstance(generator, np.random.Generator):
        state = generator.bit_generator.state
    elif isinstance(generator, torch.Generator):
        state = generator.get_state().tolist()
    else:
        state = generator.getstate() if isinstance(generator, random.Random) else generator.get_state(legacy=False)
    return hashlib.sha256(repr(state).encode()).hexdigest()
