"""Corners of torch's own tests that only a recording reaches: both engines agree there, or the
shadow declines with a reason.
"""

from __future__ import annotations

import pytest

from tests.fuzz import lockstep

# Each: what it shows, the program, and a part of the reason why a call is mirrored ("": none
# is, what happens is predicted).
CORNERS: dict[str, tuple[str, str]] = {
    "copies of arrays and tensors in other orders of memory": (
        """
import numpy as np
import torch
for array in (np.ones((10, 1)).T, np.ones((4, 3)).T, np.ones((6, 8))[::2, ::2], np.ones((2, 3, 4)).transpose(1, 2, 0),
              np.broadcast_to(np.ones(3), (2, 3)), np.ones(3)[::-1]):
    for make in (torch.tensor, lambda x: torch.as_tensor(x, dtype=torch.float32)):
        try:
            print(make(array).stride())
        except ValueError as error:
            print(error)
print(torch.ones(3, 4).new_tensor(np.ones((4, 3)).T).stride())
""",
        "",
    ),
    "anomaly mode finds NaN that a custom Function returns": (
        """
import torch
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return g * float("nan")
x = torch.ones(2, requires_grad=True)
torch.autograd.set_detect_anomaly(True)
y = Bad.apply(x)
try:
    y.sum().backward()
except RuntimeError as error:
    print(error)
torch.autograd.set_detect_anomaly(False)
""",
        "a call of torch.autograd.Function.apply cannot be observed",
    ),
    "a result that is written where forward-mode gradients are": (
        """
import warnings
import torch
import torch.autograd.forward_ad as fwd
warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, when it is first used
with fwd.dual_level():
    dual, plain = fwd.make_dual(torch.rand(2), torch.rand(2)), torch.rand(2)
    try:
        torch.add(plain, plain, out=dual)
    except RuntimeError as error:
        print(error)
""",
        "forward-mode gradients",
    ),
    "a write through a view of another dtype and back": (
        """
import torch
x = torch.ones(2, 2, dtype=torch.double, requires_grad=True)
back = torch.view_as_real(torch.view_as_complex(x.clone()))
back.mul_(2)
back.sum().backward()
print(back.grad_fn.name(), x.grad)
""",
        "on the way to it",
    ),
    "what a hook after accumulation returns": (
        """
import torch
x = torch.ones(2, requires_grad=True)
x.register_post_accumulate_grad_hook(lambda p: 1)
x.sum().backward()
""",
        "the error came from the program's own code",
    ),
    "a hook on a node of which the gradient is retained": (
        """
import torch
x = torch.ones(2, requires_grad=True)
y = x.clone()
y.grad_fn.register_prehook(lambda g: (g[0] * 2,))
(y * 2).sum().backward(inputs=(y,))
print(y.grad)
""",
        "node hooks",
    ),
    "a sparse gradient, and a dense one": (
        """
import torch
p = torch.ones(3, requires_grad=True)
p.grad = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,))
(p * 2).sum().backward()
print(p.grad, p.grad._version)
(p * 2).sum().backward()
print(p.grad, p.grad._version)
""",
        "sparse_coo",
    ),
    "a checkpoint that keeps what it is told to": (
        """
import functools
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
def keep(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE
x = torch.ones(2, 2, requires_grad=True)
keeping = functools.partial(create_selective_checkpoint_contexts, keep)
y = checkpoint(lambda x: (x.sin() @ x).exp(), x, use_reentrant=False, context_fn=keeping)
y.sum().backward()
""",
        "a dispatch mode of the program may",
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_a_corner_is_predicted_or_declined(name: str) -> None:
    text, why = CORNERS[name]
    result = lockstep.check(text.strip())
    assert result.problems == []
    assert result.trace is not None
    reasons = {event.reason for event in result.trace.events if event.reason}
    assert any(why in reason for reason in reasons) or not (why or reasons)


def test_views_that_torch_makes_anew_are_not_followed() -> None:
    text = """
import torch
x = torch.ones(3, requires_grad=True).clone()
with torch.autograd._force_original_view_tracking(True):
    y = x.view(3, 1)
    y.mul_(2)
"""
    result = lockstep.check(text.strip())
    assert len(result.problems) == 1
    assert "regenerate views" in result.problems[0]


def test_what_a_function_deletes_is_gone_while_its_lines_are_watched() -> None:
    text = """
import weakref
import torch
array = torch.from_numpy(torch.ones(2).numpy())
class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
def work():
    with Mode():
        x = torch.ones(2)
        y = x * 2
        kept = weakref.ref(y)
        del y
        print(kept() is None)
work()
"""
    assert lockstep.check(text.strip()).problems == []


@pytest.mark.parametrize("before", ["", "torch.ones(1).set_(torch.ones(2))\n"], ids=["", "lines watched"])
def test_a_function_traced_after_another_warns_of_nothing_of_ours(before: str) -> None:
    text = """
import warnings
import torch
warnings.simplefilter("ignore", DeprecationWarning)
x = torch.rand(3, 4)
BEFORE
def double(x):
    return x * 2
traced = torch.jit.trace(double, x)
def twice(x):
    y = torch.jit._wait(torch.jit._fork(traced, x))
    return y * 2
again = torch.jit.trace(twice, x)
print(torch.equal(again(x), x * 4))
y = x * 3
print(y.shape)
"""
    assert lockstep.check(text.replace("BEFORE\n", before).strip()).problems == []


def test_a_module_that_jit_traced_is_observed_on() -> None:
    text = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).eval()
served = torch.jit.trace(net, torch.randn(4, 3))
with torch.no_grad():
    y = served(torch.randn(5, 3))
print((y * 2).sum().item() < 1e9)
"""
    checked = lockstep.check(text.strip())
    assert checked.problems == []
    assert checked.trace.stopped is None
    assert checked.trace.beside.loadings == ()  # torch.jit looks its methods up, and calls none
