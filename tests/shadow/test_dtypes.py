"""Element types: promotion, the default type, what in-place operations and bool arithmetic
refuse: shadow against torch.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch

from pitfall_lab.shadow import run
from pitfall_lab.shadow.dtypes import DType, can_cast, result_type
from pitfall_lab.verify import trace_program
from tests.shadow.side_by_side import attempt, compare_results, world

NAMES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128", "uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "ComplexHalf support is experimental"
        yield


def operand(name: str, ndim: int) -> torch.Tensor:
    return torch.empty((1,) * ndim, dtype=getattr(torch, name))


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_two_tensors_promote_as_in_torch(first: int, second: int):
    wrong = []
    for one, two in itertools.product(NAMES, repeat=2):
        try:
            theirs = str(torch.result_type(operand(one, first), operand(two, second)))[6:]
        except RuntimeError:
            theirs = None
        try:
            ours = result_type([(DType(one), first, False), (DType(two), second, False)])[:]
        except (LookupError, ValueError):
            ours = None
        if ours is not None and ours != theirs:
            wrong.append((one, two, theirs, ours))
    assert wrong == []


NUMBERS = """\
import torch
torch.set_default_dtype(torch.{default})
try:
    kinds = [str((torch.ones(1, dtype=getattr(torch, n)) * {number}).dtype) for n in {names}]
finally:
    torch.set_default_dtype(torch.float32)
"""


@pytest.mark.parametrize("number", [True, 2, 1.5, 1j], ids=str)
@pytest.mark.parametrize("default", ["float32", "float64"])
def test_a_tensor_and_a_number_promote_as_in_torch(number: complex, default: str):
    # Complex numbers of half precision are declined: torch has compiled few kernels for them.
    names = [n for n in NAMES[:12] if n != "bfloat16" and not (n == "float16" and isinstance(number, complex))]
    text = NUMBERS.format(default=default, number=number, names=names)
    real: dict[str, Any] = {}
    exec(text, real)
    ours, error, _ = run(text.replace("getattr(torch, n)", "torch.dtypes.DType(n)"))
    assert error is None
    assert ours["kinds"] == real["kinds"]


def test_what_may_be_stored_in_place_is_what_torch_can_cast():
    wrong = [
        (one, two)
        for one, two in itertools.product(NAMES[:12], repeat=2)
        if torch.can_cast(getattr(torch, one), getattr(torch, two)) != can_cast(DType(one), DType(two))
    ]
    assert wrong == []


REFUSED = (
    "n.add_(1.5)", "n.mul_(p)", "n.div_(2)", "m.add_(1)", "n.sqrt_()", "n.copy_(p)", "m - m", "-m", "m - 1", "1 - m",
    "m.sub_(m)", "n.sub_(m)", "a.mm(n.t())", "torch.dot(c, i.float()[:1])", "n.mean()", "m.mean()", "n ** -1",
    "torch.tensor([1, 2], requires_grad=True)", "n.requires_grad_()", "n.exp_()", "torch.where(n, a, b)", "a[p]",
    "a.gather(0, p)", "F.cross_entropy(a, p[:, 0])", "n.clamp_(0.5)", "n.fill_(1.7)", "n.float() // m", "m.sum()",
    "m + m", "n / m", "m * 2.5", "~n", "~p", "n & p", "p << 1", "m | n", "torch.ones(2, dtype=torch.int64).normal_()",
    "torch.rand_like(n)", "torch.randn_like(n)", "n.uniform_()", "torch.arange(3) + 0.5", "torch.tensor([1.5]).long()",
    "torch.tensor([300]).to(torch.int8)", "torch.tensor([-1]).to(torch.uint8)", "n.half() + p", "n.half() + 1.5",
    "n.to(torch.uint8) + n.to(torch.int8)", "n.double() * p", "p.add_(p.double())", "(n * 0).log()", "p.to(torch.bool)",
    "n.bool() ^ m", "torch.tensor(2.0, dtype=torch.float64) + p", "torch.tensor(2.0, dtype=torch.float64) + n",
    "torch.cat([n, p])", "torch.stack([i, i.float()])",
)  # fmt: skip


@pytest.mark.parametrize("sample", REFUSED)
def test_mixed_types_give_torchs_result_or_torchs_words(sample: str):
    ours = attempt(world("shadow", sample), sample)
    if isinstance(ours, NotImplementedError) and not hasattr(ours, "shadow"):
        assert sample in UNMODELLED, ours
        return
    assert sample not in UNMODELLED
    compare_results(attempt(world("torch", sample), sample), ours, sample)


UNMODELLED = {"a.gather(0, p)"}
"""Refused by torch in words that the shadow does not have."""


DEFAULTS = """\
import torch
torch.set_default_dtype(torch.{default})
try:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    n = torch.tensor([1, 2])
    y = n / 2 + x * 1.5 + torch.sqrt(n) + n.mul(0.5)
    z = torch.ones(2) + torch.zeros(2) + torch.arange(2.0) + torch.full((2,), 1.5) + torch.linspace(0, 1, 2) + torch.eye(2)[0]
    (y * z).sum().backward()
    kinds = [str(t.dtype) for t in (x, y, z, x.grad, torch.tensor(1 + 2j), torch.tensor([]), n.float())]
finally:
    torch.set_default_dtype(torch.float32)
"""  # noqa: E501


@pytest.mark.parametrize("default", ["float64", "float16", "float32"])
def test_another_default_type_is_modelled(default: str):
    source = DEFAULTS.format(default=default)
    real: dict[str, Any] = {}
    exec(source, real)
    trace = trace_program(source)
    assert trace.disagreements == ()
    assert [event.reason for event in trace.events if event.reason] == []
    ours, error, _ = run(source)
    assert error is None
    assert ours["kinds"] == real["kinds"]


FILLS = """\
for number in (300, 2**40, -1, -300, 1e300, -1e39, 70000.0, float("inf"), 3 + 4j, 1 + 1e300j, 1 - 1e39j):
    for name in ("uint8", "int8", "int16", "int32", "int64", "bool", "float16", "float32", "complex64"):
        for shape in ((), (1,), (2,)):
            for way in ("fill", "full", "full_like", *["set"] * (shape != (2,))):  # releases fill two elements in two ways
                t = torch.tensor([1]).to(getattr(torch, name)).expand(2)[: shape[0] if shape else 1].clone()
                t = t if shape else t[0]
                try:
                    if way == "fill":
                        t.fill_(number)
                    elif way == "set":
                        t[...] = number
                    elif way == "full":
                        t = torch.full(shape, number, dtype=t.dtype)
                    else:
                        t = torch.full_like(t, number)
                    said = t.tolist()
                except RuntimeError as error:
                    said = str(error)
                print(number, name, shape, way, said)
"""  # noqa: E501


@pytest.mark.parametrize("release", [(2, 10), (2, 15)])
def test_a_number_that_fits_into_no_element_is_refused_with_torchs_words(release: tuple[int, int]):
    said: list[str] = []
    exec(FILLS, {"torch": torch, "print": lambda *words: said.append(" ".join(map(str, words)))})
    ours = run("import torch\n" + FILLS, release=release)
    assert ours[1] is None
    assert ours[2].splitlines() == said
