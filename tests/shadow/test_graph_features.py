"""What the graph can do besides plain backward, on the shadow alone and on torch: gradients with a
history, hooks, modes of backward.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from pitfall_lab.shadow.facade.tensors import GradFn
from pitfall_lab.shadow.ops.double import AS_WRITTEN, FORMULAS
from tests.shadow.side_by_side import describe, same_numbers, short, world

DIFFERENTIATED_TWICE = (
    "a * b", "a + b", "a - b", "a / b", "1 - a", "-a", "a ** 2", "a ** 3", "b ** -1", "b ** 0.5", "a.exp()", "b.log()",
    "a.sin()", "a.cos()", "a.tanh()", "torch.sigmoid(a)", "torch.relu(a)", "b.sqrt()", "b.rsqrt()", "b.reciprocal()",
    "1 / b", "a.sum()", "a.sum(0)", "a.sum(1, keepdim=True)", "a.sum((0, 1))", "a.mean()", "a.mean(0)",
    "a.mean(1, keepdim=True)", "c.expand(2, 3)", "a * c", "c * a", "a.view(6)", "a.reshape(3, 2)", "a.t()",
    "a.transpose(0, 1)", "a.permute(1, 0)", "a.T", "a.unsqueeze(0)", "a[:1].squeeze()", "a[:1].squeeze(0)", "a @ w",
    "a.mm(w)", "a @ c", "c @ c", "a @ a.t()", "F.linear(a, b)", "F.linear(a, b, c[:2])", "a.clone()", "a.double()",
    "a[0]", "a[:, 1:]", "a[..., 0]", "torch.cat([a, b])", "torch.cat([a, b], 1)", "a.softmax(1)", "a.log_softmax(1)",
    "a.expm1()", "a.atan()", "a.sinh()", "a.cosh()", "a.square()", "a * 2.5", "a / 3", "a.flatten()", "a.diagonal()",
    "(a * 1).exp_()", "(a * 1).sin_()", "(a * 1).mul_(b)", "(a * 1).tanh_()", "(a * b).sum().exp()",
    "torch.sigmoid(a @ w).log().sum()",
)  # fmt: skip


def twice(kind: str, source: str) -> tuple[list[Any], list[Any]]:
    """The gradients of ``source`` with their history, and the gradients of the sum of their squares."""
    names = world(kind)
    y = eval(source, names)
    start = names["torch"].ones(*y.shape) if y.shape else names["torch"].tensor(1.0)
    start = (start.double() if str(y.dtype) == "torch.float64" else start) * 2
    start.requires_grad_()
    leaves = [names[k] for k in "abcw"]
    first = names["torch"].autograd.grad(y, leaves, start, create_graph=True, allow_unused=True)
    total = sum((g * g).sum() for g in first if g is not None and g.requires_grad)
    return list(first), list(names["torch"].autograd.grad(total, [*leaves, start], allow_unused=True))


def same(u: Any, v: Any, what: str) -> None:
    if u is None or v is None:
        assert u is None and v is None, what  # noqa: PT018 - one claim
        return
    left, right = describe(u), describe(v)
    # a plain gradient that is a view (a transposed one, say) has torch's strides here, but is
    # no view: nobody has its base
    del left["is_view"], right["is_view"]
    assert left == right, f"{what}:\n torch  {left}\n shadow {right}"
    same_numbers(u, v, what)


@pytest.mark.parametrize("source", DIFFERENTIATED_TWICE)
def test_gradients_have_torchs_history_and_can_be_differentiated_again(source: str) -> None:
    for order, (theirs, mine) in enumerate(zip(twice("torch", source), twice("shadow", source), strict=True)):
        assert len(theirs) == len(mine)
        for k, (u, v) in enumerate(zip(theirs, mine, strict=True)):
            same(u, v, f"derivative {order + 1} of {source}, for {'abcwV'[k]}")


def test_every_formula_is_compared_with_torch() -> None:
    tried: set[str] = set()
    for source in DIFFERENTIATED_TWICE:
        names = world("torch")
        stack = [eval(source, names).grad_fn]
        stack += [g.grad_fn for g in twice("torch", source)[0] if g is not None and g.grad_fn]
        while stack:
            node = stack.pop()
            tried.add(short(node.name()))
            stack += [child for child, _ in node.next_functions if child]
    # what only appears after writes, or whose gradient is zero and has no history
    rest = {"CopyBackwards", "AliasBackward0", "FloorBackward0", "CeilBackward0", "RoundBackward0", "SignBackward0",
            "TruncBackward0", "ZeroBackward0", "AddBackward1", "AbsBackward0", "ReshapeAliasBackward0",
            "UnsafeViewBackward0", "SqueezeBackward2", "RsubBackward1"}  # fmt: skip
    assert set(FORMULAS) | AS_WRITTEN <= tried | rest


def test_without_a_formula_the_call_is_declined_and_nothing_has_happened() -> None:
    names = world("shadow")
    a, b = names["a"], names["b"]
    loss = (a.pow(b).sum() + (b * 2).sum()) * 1.0
    with pytest.raises(NotImplementedError, match="the second derivative of PowBackward1"):
        loss.backward(create_graph=True)
    assert (a.grad, b.grad) == (None, None)
    loss.backward()
    assert a.grad is not None


PROGRAMS = {
    "backward with create_graph copies, then adds into new tensors": """
x = torch.tensor([1.0, -2.0], requires_grad=True)
(x ** 3).sum().backward(create_graph=True); first = x.grad
(x * x).sum().backward(create_graph=True); second = x.grad
assert first is not second
(second ** 2).sum().backward()
""",
    "create_graph keeps the graph unless it is told not to": """
x = torch.tensor([1.0, -2.0], requires_grad=True)
y = x.exp().sum()
g = torch.autograd.grad(y, x, create_graph=True)[0]; h = torch.autograd.grad(y, x)[0]
errors = [raised(lambda: y.backward())]
z = x.exp().sum(); g = torch.autograd.grad(z, x, create_graph=True, retain_graph=False)[0]; errors.append(raised(lambda: g.sum().backward()))
""",  # noqa: E501
    "the saved result of tanh changed between the two derivatives": """
x = torch.tensor([1.0, -2.0], requires_grad=True)
y = torch.tanh(x); g = torch.autograd.grad(y.sum(), x, create_graph=True)[0]; node = g.grad_fn.name()
with torch.no_grad(): y.mul_(2)
errors = [raised(lambda: g.sum().backward())]
""",
    "a result that was given comes back as it is": """
x = torch.tensor([1.0, -2.0], requires_grad=True); w = torch.tensor([3.0, 4.0], requires_grad=True); v = torch.tensor([3.0, 4.0])
same = [torch.autograd.grad(x, x, v)[0] is v, torch.autograd.grad(x + w, w, v)[0] is v, torch.autograd.grad(x * 1, x, v)[0] is v]
r = torch.autograd.grad(x + w, [x, w], v); same.append(r[0] is r[1]); r = torch.autograd.grad((x + w).exp().sum(), [x, w]); same.append(r[0] is r[1])
""",  # noqa: E501
    "unused inputs": """
x = torch.tensor([1.0, -2.0], requires_grad=True); w = torch.tensor([3.0, 4.0], requires_grad=True)
first = torch.autograd.grad((x * 2).sum(), [x, w], allow_unused=True); second = torch.autograd.grad((x * 2).sum(), [x, w], materialize_grads=True)
errors = [raised(lambda: torch.autograd.grad((x * 2).sum(), [x, w])), raised(lambda: torch.autograd.grad((x * 2).sum(), [x, w], allow_unused=False, materialize_grads=True)),
          raised(lambda: torch.autograd.grad(x * 2, x)), raised(lambda: torch.autograd.grad(x * 2, x, torch.ones(3))), raised(lambda: torch.autograd.grad((x * 2).sum(), torch.ones(2)))]
""",  # noqa: E501
    "backward with inputs": """
x = torch.tensor([1.0, -2.0], requires_grad=True); w = torch.tensor([3.0, 4.0], requires_grad=True); h = x * w; y = (h ** 2).sum()
y.backward(inputs=[x], retain_graph=True); y.backward(inputs=x, retain_graph=True); y.backward(inputs=[h, w]); hg = h.grad
errors = [raised(lambda: (x * 2).sum().backward(inputs=[])), raised(lambda: (x * 2).sum().backward(inputs=[torch.ones(2)]))]
""",  # noqa: E501
    "backward under no_grad, with given gradients, of several roots": """
x = torch.tensor([1.0, -2.0], requires_grad=True); y = x.exp()
with torch.no_grad(): y.backward(torch.ones(2), retain_graph=True)
torch.autograd.backward([y, y.sum()], [torch.ones(2), None])
errors = [raised(lambda: (x * 2).backward()), raised(lambda: (x * 2).backward(torch.ones(3))), raised(lambda: torch.ones(2).backward()), raised(lambda: (x * 2).sum().backward(torch.ones(1)))]
""",  # noqa: E501
    "a penalty on the gradient": """
x = torch.tensor([[1.0, -2.0], [0.5, 0.25]], requires_grad=True); w = torch.tensor([[0.3, -0.4], [0.1, 0.2]], requires_grad=True); u = torch.tensor([[0.7, -0.1]], requires_grad=True)
out = F.linear(torch.tanh(F.linear(x, w)), u); g = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
(out.pow(2).mean() + ((g.norm(2, dim=1) - 1) ** 2).mean()).backward()
""",  # noqa: E501
}


def play(kind: str, program: str) -> dict[str, Any]:
    names = world(kind)

    def raised(call: Any) -> str:
        try:
            call()
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return "nothing"

    names["raised"] = raised
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(program, names)
    return names


@pytest.mark.parametrize("title", PROGRAMS)
def test_both_worlds_end_alike(title: str) -> None:
    theirs, mine = play("torch", PROGRAMS[title]), play("shadow", PROGRAMS[title])
    for name in [
        name
        for name, value in theirs.items()
        if not name.startswith("_") and name not in ("torch", "F", "np") and not callable(value)
    ]:
        u, v = theirs[name], mine[name]
        for one, two in zip(u, v, strict=True) if isinstance(u, tuple | list) else [(u, v)]:
            if isinstance(one, torch.Tensor):
                same(one, two, f"{title}: {name}")
                if one.is_leaf:
                    same(one.grad, two.grad, f"{title}: {name}.grad")
            elif not isinstance(two, GradFn):
                assert one == two, f"{title}: {name}"
