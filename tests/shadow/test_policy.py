"""Every switch of the Policy changes the outcome of a program; the default is what the running torch prints."""

# ruff: noqa: E501 - programs and tables in one row each

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings

import pytest

from pitfall_lab.shadow import TORCH, Policy, run

BELIEFS = {
    "detach_copies": ("x = torch.ones(2)\nd = x.detach()\nd += 1\nprint(x.tolist())", "[1.0, 1.0]\n"),
    "data_copies": ("x = torch.ones(2)\nx.data.add_(1)\nprint(x.tolist())", "[1.0, 1.0]\n"),
    "data_shares_version": ("x = torch.ones(2)\nx.data.add_(1)\nprint(x._version)", "1\n"),
    "from_numpy_copies": ("a = np.ones(2)\nt = torch.from_numpy(a)\na += 1\nprint(t.tolist())", "[1.0, 1.0]\n"),
    "clone_cuts_graph": ("x = torch.ones(2, requires_grad=True)\nprint(x.clone().requires_grad)", "False\n"),
    "clone_shares_memory": ("x = torch.ones(2)\ny = x.clone()\ny += 1\nprint(x.tolist())", "[2.0, 2.0]\n"),
    "views_copy": ("x = torch.ones(4)\nx.view(2, 2)[0] = 5\nprint(x.tolist())", "[1.0, 1.0, 1.0, 1.0]\n"),
    "views_have_own_version": ("x = torch.ones(2)\nx[:1].add_(1)\nprint(x._version)", "0\n"),
    "reshape_always_copies": ("x = torch.ones(4)\nr = x.reshape(2, 2)\nr += 1\nprint(x.tolist())", "[1.0, 1.0, 1.0, 1.0]\n"),
    "reshape_never_copies": ("x = torch.ones(2, 2)\nr = x.t().reshape(4)\nr[1] = 7\nprint(x.tolist())", "[[1.0, 1.0], [7.0, 1.0]]\n"),
    "index_shares_memory": ("x = torch.ones(3)\ny = x[[0, 2]]\ny += 1\nprint(x.tolist())", "[2.0, 1.0, 2.0]\n"),
    "augmented_assignment_rebinds": ("x = torch.ones(2)\ny = x\ny += 1\nprint(x.tolist())", "[1.0, 1.0]\n"),
    "inplace_on_leaf_allowed": ("x = torch.ones(2, requires_grad=True)\ntry:\n    x += 1\n    print('done')\nexcept RuntimeError:\n    print('refused')", "done\n"),
    "inplace_never_breaks_backward": (
        "x = torch.ones(2, requires_grad=True)\ny = x.exp()\ny += 1\ntry:\n    y.sum().backward()\n    print('done')\nexcept RuntimeError:\n    print('refused')",
        "done\n",
    ),
    "backward_overwrites_grad": ("x = torch.ones(2, requires_grad=True)\nx.sum().backward()\nx.sum().backward()\nprint(x.grad.tolist())", "[1.0, 1.0]\n"),
    "graph_survives_backward": (
        "x = torch.ones(2, requires_grad=True)\ns = x.exp().sum()\ns.backward()\ntry:\n    s.backward()\n    print('done')\nexcept RuntimeError:\n    print('refused')",
        "done\n",
    ),
    "grad_of_non_leaf_kept": ("x = torch.ones(2, requires_grad=True)\nh = x * 2\nh.sum().backward()\nprint(h.grad is None)", "False\n"),
    "no_grad_zeroes_grads": ("x = torch.ones(2, requires_grad=True)\nx.sum().backward()\nwith torch.no_grad():\n    pass\nprint(x.grad.tolist())", "[0.0, 0.0]\n"),
    "no_grad_hides_versions": ("x = torch.ones(2)\nwith torch.no_grad():\n    x += 1\nprint(x._version)", "0\n"),
}  # fmt: skip


def test_every_switch_has_a_program() -> None:
    assert {f.name for f in dataclasses.fields(Policy)} == set(BELIEFS)
    assert Policy() == TORCH


@pytest.mark.parametrize("switch", BELIEFS)
def test_the_belief_predicts_something_else_than_torch_does(switch: str) -> None:
    program, believed = BELIEFS[switch]
    source = f"import numpy as np\nimport torch\n{program}\n"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(source, {})
        _, default_error, default = run(source)
        _, error, belief = run(source, Policy(**{switch: True}))
    assert default_error is None
    assert default == printed.getvalue(), "the default policy is not torch's"
    assert error is None
    assert belief == believed
    assert belief != default
