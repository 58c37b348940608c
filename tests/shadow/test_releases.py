"""What torch's releases do differently: each entry's sample, on the installed torch and on the engine,
and on the engine both ways.
"""

from __future__ import annotations

from typing import Any

import pytest

from pitfall_lab.observe import release
from pitfall_lab.shadow import facade as shadow_torch
from pitfall_lab.shadow import releases
from pitfall_lab.shadow.releases import Difference
from tests.shadow.side_by_side import attempt, compare_results, compare_worlds, describe, is_tensor, numbers, world

ENTRIES = {name: entry for name, entry in vars(releases).items() if isinstance(entry, Difference)}
HELD = "held.sum().backward() if held is not None and held.requires_grad else h.sum().backward()"


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_the_engine_does_what_the_installed_release_does(entry: Difference) -> None:
    real, shadow = world("torch", entry.sample), world("shadow", entry.sample)
    x, y = attempt(real, entry.sample), attempt(shadow, entry.sample)
    compare_results(x, y, entry.sample)
    if isinstance(x, Exception):
        return
    real["held"], shadow["held"] = x, y
    compare_results(attempt(real, HELD), attempt(shadow, HELD), f"backward of {entry.sample}")
    compare_worlds(
        {k: v for k, v in real.items() if k not in {"h", "held"}}, shadow, f"after backward of {entry.sample}"
    )


def seen(release: tuple[int, ...], sample: str) -> str:
    """All that can be seen of a sample on the engine, as text."""
    names = world("shadow", sample)
    shadow_torch.engine().graph.release = release
    result = attempt(names, sample)
    parts: list[Any] = [repr(result) if isinstance(result, Exception) else "", describe(names["h"])]
    if not isinstance(result, Exception):
        names["held"] = result
        parts += [describe(result) if is_tensor(result) else "", attempt(names, HELD)]
        parts += [
            (name, numbers(t.grad), t.grad._version)
            for name, t in names.items()
            if name in {"a", "b"} and t.grad is not None
        ]
    return str(parts)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_the_sample_shows_the_difference(entry: Difference) -> None:
    before = (entry.since[0], entry.since[1] - 1)
    assert seen(entry.since, entry.sample) != seen(before, entry.sample)


def test_the_newest_release_that_is_modelled_is_the_newest_that_is_known() -> None:
    assert release.NEWEST == releases.NEWEST == max(entry.since for entry in ENTRIES.values())
