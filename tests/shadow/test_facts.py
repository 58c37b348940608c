"""Every fact in :mod:`tests.shadow.facts` holds on the running torch, and the shadow agrees."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pitfall_lab.shadow import torch as shadow_torch
from tests.shadow.facts import FACTS


def helpers(t: Any) -> dict[str, Any]:
    """The names that a fact's program may use, for torch or for the shadow."""

    def raises(run: Callable[[], Any], text: str = "") -> str:
        try:
            run()
        except NotImplementedError:
            raise
        except (RuntimeError, IndexError, ValueError) as error:
            found = str(error)
        else:
            found = "nothing was raised"
        assert text in found
        assert found != "nothing was raised"
        return found

    def warned(run: Callable[[], Any]) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            run()
        return [str(w.message) for w in found]

    def short(node: Any) -> str | None:
        return None if node is None else node.name().split("::")[-1]

    def bumps(change: Callable[[Any], Any], tensor: Any = None) -> int:
        tensor = t.ones(4) if tensor is None else tensor
        before = tensor._version
        change(tensor)
        return tensor._version - before

    return {
        "torch": t, "F": t.nn.functional, "nn": t.nn, "np": np, "raises": raises, "warned": warned, "bumps": bumps,
        "leaf": lambda *shape: t.ones(*shape, requires_grad=True), "name": lambda x: short(x.grad_fn),
        "nexts": lambda x: [short(n) for n, _ in x.grad_fn.next_functions],
        "close": lambda x, values: np.testing.assert_allclose(np.array(x.tolist()), np.array(values, dtype=float), rtol=1e-4),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["torch", "shadow"])
@pytest.mark.parametrize("fact", FACTS)
def test_fact(fact: str, engine: str) -> None:
    if engine == "shadow":
        shadow_torch.reset().strict = True
    exec(compile(FACTS[fact], fact, "exec"), helpers(torch if engine == "torch" else shadow_torch))
