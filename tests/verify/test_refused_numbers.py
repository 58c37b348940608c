"""What torch refuses because of numbers: without numbers the shadow does not say whether it will, and
an error is no disagreement.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import textwrap
import warnings
from typing import Any
from zlib import crc32

import pytest
import torch

from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.ops.operands import WAVES, definitions, named
from pitfall_lab.shadow.ops.value_refusals import REFUSALS
from pitfall_lab.shadow.registry import spell
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
ONE = "torch.ones(3, 2)"
PLACE = "torch.tensor([9])"
GRID = "torch.tensor([[9, 9]])"
SINGULAR = "torch.zeros(2, 2)"
WHOLE = "torch.tensor([1, 2]), torch.tensor([0, 1])"
#: For each operation that refuses numbers, a call that it refuses.
REFUSED = {
    ".__getitem__": f"{ONE}[{PLACE}]",
    ".__setitem__": f"{ONE}[{PLACE}] = 2.0",
    "index_select": f"{ONE}.index_select(0, {PLACE})",
    "gather": f"{ONE}.gather(0, {GRID})",
    "take": f"{ONE}.take({PLACE})",
    ".put_": f"{ONE}.put_({PLACE}, torch.ones(1))",
    ".index_put_": f"{ONE}.index_put_(({PLACE},), torch.ones(2))",
    "index_put": f"{ONE}.index_put(({PLACE},), torch.ones(2))",
    ".index_fill_": f"{ONE}.index_fill_(0, {PLACE}, 1.0)",
    "index_fill": f"{ONE}.index_fill(0, {PLACE}, 1.0)",
    ".index_copy_": f"{ONE}.index_copy_(0, {PLACE}, torch.ones(1, 2))",
    "index_copy": f"{ONE}.index_copy(0, {PLACE}, torch.ones(1, 2))",
    ".index_add_": f"{ONE}.index_add_(0, {PLACE}, torch.ones(1, 2))",
    "index_add": f"{ONE}.index_add(0, {PLACE}, torch.ones(1, 2))",
    ".index_reduce_": f"{ONE}.index_reduce_(0, {PLACE}, torch.ones(1, 2), 'prod')",
    "index_reduce": f"{ONE}.index_reduce(0, {PLACE}, torch.ones(1, 2), 'prod')",
    ".scatter_": f"{ONE}.scatter_(0, {GRID}, 1.0)",
    "scatter": f"{ONE}.scatter(0, {GRID}, 1.0)",
    ".scatter_add_": f"{ONE}.scatter_add_(0, {GRID}, torch.ones(1, 2))",
    "scatter_add": f"{ONE}.scatter_add(0, {GRID}, torch.ones(1, 2))",
    ".scatter_reduce_": f"{ONE}.scatter_reduce_(0, {GRID}, torch.ones(1, 2), 'sum')",
    "scatter_reduce": f"{ONE}.scatter_reduce(0, {GRID}, torch.ones(1, 2), 'sum')",
    "F.embedding": f"F.embedding({PLACE}, {ONE})",
    "torch.embedding": f"torch.embedding({ONE}, {PLACE})",
    "F.nll_loss": f"F.nll_loss(torch.ones(1, 3), {PLACE})",
    "F.cross_entropy": f"F.cross_entropy(torch.ones(1, 3, requires_grad=True), {PLACE})",
    "F.multi_margin_loss": f"F.multi_margin_loss(torch.ones(1, 3), {PLACE})",
    "F.multilabel_margin_loss": "F.multilabel_margin_loss(torch.ones(1, 3), torch.tensor([[0, 9, 0]]))",
    "F.max_unpool1d": "F.max_unpool1d(torch.ones(1, 1, 2), torch.tensor([[[0, 99]]]), 2)",
    "F.max_unpool2d": "F.max_unpool2d(torch.ones(1, 1, 1, 2), torch.tensor([[[[0, 99]]]]), 2)",
    ".masked_scatter_": f"{ONE}.masked_scatter_({ONE} > 0, torch.ones(1))",
    "masked_scatter": f"{ONE}.masked_scatter({ONE} > 0, torch.ones(1))",
    "torch.linalg.inv": f"torch.linalg.inv({SINGULAR})",
    "torch.linalg.solve": f"torch.linalg.solve({SINGULAR}, torch.ones(2))",
    "torch.linalg.cholesky": f"torch.linalg.cholesky({SINGULAR})",
    "F.binary_cross_entropy": "F.binary_cross_entropy(torch.tensor([2.0]), torch.tensor([1.0]))",
    "floor_divide": f"torch.floor_divide({WHOLE})",
    "fmod": f"torch.fmod({WHOLE})",
    "remainder": f"torch.remainder({WHOLE})",
    ".backward": "with torch.autograd.detect_anomaly(): (torch.zeros(2, requires_grad=True).sqrt() * 0).sum().backward()",  # noqa: E501
    "torch.autograd.backward": (
        "with torch.autograd.detect_anomaly(): torch.autograd.backward((torch.zeros(2, "
        "requires_grad=True).sqrt() * 0).sum())"
    ),
    "torch.autograd.grad": (
        "x = torch.zeros(2, requires_grad=True)\n"
        "with torch.autograd.detect_anomaly(): torch.autograd.grad((x.sqrt() * 0).sum(), x)"
    ),
}
#: Programs that go on after such an error: what the shadow had done, and torch had not, must leave nothing behind.
GOES_ON = {
    "the history of what was not written": ("h = torch.ones(3, requires_grad=True) * 1\n"
    "e = h.exp()\n"
    "B h[torch.tensor([5])] = 2.0\n"
    "h.sum().backward()"),
    "what would have been made stale": ("e = torch.ones(3, requires_grad=True).exp()\n"
    "B e[torch.tensor([5])] = 2.0\n"
    "e.add_(1)\n"
    "B e.sum().backward()"),
    "the history of the base": ("e = torch.ones(3, requires_grad=True).exp()\n"
    "v = e[1:]\n"
    "B v.index_fill_(0, torch.tensor([5]), 2.0)\n"
    "v.add_(1)\n"
    "print(v.grad_fn.name(), e.grad_fn.name())\n"
    "B e.sum().backward()"),
    "a version": ("h = torch.ones(3, requires_grad=True) * 1\n"
    "B h.put_(torch.tensor([5]), torch.ones(1))\n"
    "h.mul_(2)\n"
    "print(h._version)\n"
    "h.sum().backward()"),
    "gradients": ("x, z = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)\n"
    "y = (x.sqrt() * 0).sum() + (z * 2).sum()\n"
    "B \n"
    "    with torch.autograd.detect_anomaly(): y.backward()\n"
    "(x * z).sum().backward()\n"
    "print(x.grad, z.grad)"),
}  # fmt: skip
#: What the operands are filled with: floats, and whole numbers. A sample gets one of them in the default run, else all.
FILLS = ((float("nan"), -3), (0.0, 9), (-1.0, 0), (9.0, -1))
EVERY = bool(os.environ.get("PITFALL_EVERYTHING"))
SAMPLES = sorted({sample for entry in ENTRIES.values() for sample in entry.samples})


def traced(text: str, *, values: bool = False, names: dict[str, Any] | None = None) -> Trace:
    """Run a program under observation, without its warnings and prints."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace_program(HEAD + text + "\n", namespace=names, values=values)


def told(trace: Trace) -> list[tuple[str, str, Any, Any]]:
    """The disagreements, with their operations."""
    return [(trace.events[d.step].op, d.path, d.observed, d.modelled) for d in trace.disagreements]


def test_every_operation_that_refuses_numbers_has_a_call_that_it_refuses() -> None:
    assert set(REFUSED) == {name for names in REFUSALS.values() for name in names.split()}


@pytest.mark.parametrize("name", REFUSED)
def test_without_numbers_the_shadow_does_not_say_whether_torch_refuses_them(name: str) -> None:
    trace = traced(REFUSED[name])
    assert told(trace) == []
    failure = trace.outcome.failure
    assert failure is not None
    words = ENTRIES[spell(name)[-1]].numbers
    assert re.search(words, failure.message)
    [event] = [event for event in trace.events if event.error is not None and event.kind == "call"]
    assert event.op in ENTRIES[spell(name)[-1]].names
    assert (event.by, event.reason) == (
        "observed",
        "whether torch raises this error depends on values that this recording does not have",
    )


@pytest.mark.parametrize("name", REFUSED)
def test_with_numbers_there_is_no_excuse(name: str) -> None:
    trace = traced(REFUSED[name], values=True)
    assert told(trace) == []
    assert not any("depends on values" in event.reason for event in trace.events)


def test_an_error_in_other_words_is_a_disagreement_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ENTRIES["torch.Tensor.sum"]
    assert not entry.numbers
    from pitfall_lab.shadow.ops import linalg

    monkeypatch.setattr(linalg, "_square", lambda *_: None)
    trace = traced("torch.linalg.inv(torch.ones(2, 3))")
    assert [path for _, path, _, _ in told(trace)] == ["outcome"]


@pytest.mark.parametrize("what", GOES_ON)
def test_what_the_shadow_did_and_torch_did_not_leaves_nothing_behind(what: str) -> None:
    text = re.sub(
        r"^B (.*(?:\n    .*)*)$",
        lambda m: (
            "try:\n"
            + textwrap.indent(textwrap.dedent(m[1]).strip(), "    ")
            + "\nexcept Exception as error: print(error)"
        ),
        GOES_ON[what],
        flags=re.MULTILINE,
    )
    trace = traced(text)
    assert told(trace) == []
    assert trace.outcome.failure is None


@pytest.mark.parametrize("fill", range(len(FILLS)))
def test_no_sample_disagrees_whatever_its_numbers_are(fill: int) -> None:
    """Every sample of every operation on operands that hold one and the same number, in a recording without numbers."""
    floats, whole = FILLS[fill]

    def filled(*tensors: torch.Tensor) -> None:
        with torch._C.DisableTorchFunction():
            for tensor in tensors:
                tensor.data.fill_(floats if tensor.is_floating_point() or tensor.is_complex() else whole)

    chosen = [sample for sample in SAMPLES if EVERY or crc32(sample.encode()) % len(FILLS) == fill]
    for start in range(0, len(chosen), 100):
        lines = [WAVES.strip()]
        for k, sample in enumerate(chosen[start : start + 100]):
            body = [
                *definitions(sample).removeprefix(WAVES.strip()).strip().splitlines(),
                f"filled({', '.join(named(sample))})",
                "try:",
                f"    {sample}",
                "except Exception: pass",
            ]
            lines += [f"def sample{k}():", *("    " + line for line in body), f"sample{k}()"]
        trace = traced("\n".join(lines), names={"__name__": "__main__", "filled": filled})
        assert not any(note.kind == "stopped" for note in trace.notes)
        assert told(trace) == []


def test_where_rounding_decides_whether_a_matrix_is_refused_the_shadow_says_nothing() -> None:
    program = (
        "x = torch.linspace(0, 1, 60, dtype=torch.float64)\n"
        "kernel = torch.exp(-(x[:, None] - x) ** 2)\n"
        "for jitter in (0.0, 1e-12, 1.0):\n"
        "    try:\n"
        "        torch.linalg.cholesky(kernel + jitter * torch.eye(60, dtype=torch.float64))\n"
        "    except RuntimeError:\n"
        "        pass\n"
    )
    trace = trace_program(HEAD + program)
    assert not trace.disagreements
    assert [event.by for event in trace.events if event.op == "torch.linalg.cholesky"] == [
        "observed",
        "observed",
        "agreed",
    ]
