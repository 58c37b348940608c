"""Determines the seed of a random generator, and which objects draw from the global generator when they are used
(:func:`is_seeded` and :func:`draws`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe.live.object_kinds import Kinds, class_name, class_origin, inside, tables

TWISTS = 64
"""How many blocks of 624 numbers may about have been drawn since the seed was set for it to be recognised."""
_LOADER = "torch.utils.data.dataloader"


def is_seeded(namespace: Mapping[str, Any], library: str, seed: int | None) -> bool:
    """Whether a random generator has been seeded with ``seed`` and not been drawn from too often since; True if
    ``seed`` is None.

    ``library`` is ``torch``, ``numpy``, ``random`` (their global generators), or the name of a ``torch.Generator`` in
    the namespace. Of torch's generators only the seed is compared, however often they were drawn from.
    """
    if seed is None:
        return True
    if library == "torch":
        return torch.initial_seed() == seed
    if library == "numpy":
        return _is_near(np.random.get_state(), np.random.RandomState(seed))  # noqa: NPY002 - the global generator
    if library == "random":
        state = random.getstate()[1]
        return _is_first(state, seed)
    generator = namespace.get(library)
    return type(generator) is torch.Generator and generator.initial_seed() == seed


def _is_near(state: Any, fresh: np.random.RandomState) -> bool:
    """Whether NumPy's state is that of the fresh generator after at most ``TWISTS`` blocks of draws."""
    key = state[1]
    for _ in range(TWISTS):
        if np.array_equal(fresh.get_state()[1], key):  # type: ignore[index]
            return True
        fresh.random_sample(312)  # 624 numbers of 32 bits
    return np.array_equal(fresh.get_state()[1], key)  # type: ignore[index]


def _is_first(state: tuple[int, ...], seed: int) -> bool:
    fresh = random.Random(seed)  # noqa: S311 - compared, not used
    for _ in range(TWISTS):
        if fresh.getstate()[1][:624] == state[:624]:
            return True
        for _ in range(312):
            fresh.random()
    return False


def draws(namespace: Mapping[str, Any], name: str) -> str:
    """Return how the object with this ``name`` uses the global random generator: ``dropout`` for a module that contains
    a dropout whose ``p`` is not 0, ``loader`` for a ``DataLoader`` that shuffles without a generator of its own, else
    an empty string.

    ``namespace`` has the notebook's names and their objects.
    """
    value = namespace.get(name)
    kind = Kinds().of(value)
    if kind == "module":
        return "dropout" if _has_dropout(value) else ""
    if class_origin(value) == _LOADER and class_name(value) == "DataLoader":
        sampler = inside(value, "object").get("sampler")
        own = inside(sampler, "object").get("generator") if sampler is not None else None
        return "loader" if class_name(sampler) == "RandomSampler" and own is None else ""
    return ""


def _has_dropout(module: Any) -> bool:
    work, seen = [module], {id(module)}
    for each in work:  # the list grows during the iteration
        if class_origin(each) == "torch.nn.modules.dropout" and inside(each, "module").get("p"):
            return True
        for child in tables(each)[2].values():
            if Kinds().of(child) == "module" and id(child) not in seen:
                seen.add(id(child))
                work.append(child)
    return False
