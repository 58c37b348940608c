"""Calls that torch refuses, of the kinds that its operator database has (``python -m tests.refusals`` runs them all):
explained by a family of errors, and by the right argument. All in this process, each recorded once.
"""

from __future__ import annotations

import re

import pytest

from pitfall_lab.rules import FAMILIES, Finding, find, rule
from pitfall_lab.trace import LANGUAGES, Trace
from pitfall_lab.verify import trace_program

# The call, the rule or family that explains it, and what the program writes for the argument that is wrong.
REFUSED = """
F.linear(a, torch.ones(2, 4))                              PLE01  a
a @ torch.ones(2, 4)                                       PLE01  torch.ones(2, 4)
torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 3, 4))        PLE01  torch.ones(2, 3, 4)
torch.einsum("ij,jk->ik", a, torch.ones(4, 5))             PLE01  torch.ones(4, 5)
torch.maximum(a, torch.ones(4))                            PLE02  torch.ones(4)
a.expand(5, 3)                                             PLE02  a
a.view(4, 2)                                               PLE03  a
a.reshape(-1, -1)                                          PLE03  (-1, -1)
torch.cat([a, torch.ones(2, 4)])                           PLE04  torch.ones(2, 4)
torch.stack([a, a.T])                                      PLE04  a.T
torch.cat([])                                              PLE04  []
F.conv2d(torch.ones(1, 2, 5, 5), torch.ones(4, 3, 3, 3))   PLE05  torch.ones(1, 2, 5, 5)
F.layer_norm(a, (4,))                                      PLE05  a
F.conv2d(a[0], torch.ones(4, 3, 3, 3))                     PLE06  a[0]
torch.tril(torch.ones(3))                                  PLE06  torch.ones(3)
a[0, 0, 0]                                                 PLE06  a
F.max_pool2d(torch.ones(1, 2, 2), 3)                       PLE07  torch.ones(1, 2, 2)
F.max_pool1d(torch.ones(1, 8), 2, padding=3)               PLE07  3
F.cross_entropy(a, torch.tensor([0, 1, 2]))                PLE08  torch.tensor([0, 1, 2])
F.binary_cross_entropy(a, torch.ones(2))                   PLE08  torch.ones(2)
a.sum(dim=2)                                               PLE11  2
a.permute(0, 1, 1)                                         PLE11  (0, 1, 1)
a.transpose(0, 3)                                          PLE11  3
F.embedding(torch.tensor([0, 5]), a)                       PLE12  torch.tensor([0, 5])
torch.gather(a, 1, torch.tensor([[7], [0]]))               PLE12  torch.tensor([[7], [0]])
F.cross_entropy(a, torch.tensor([0, 3]))                   PLE12  torch.tensor([0, 3])
a.topk(9)                                                  PLE12  9
a.narrow(1, 2, 5)                                          PLE12  5
a.split([1, 2])                                            PLE13  [1, 2]
bool(a)                                                    PLE14  a
a.item()                                                   PLE14  a
torch.histc(torch.tensor([1, 2]))                          PLE21  torch.tensor([1, 2])
torch.gather(a, 1, "1")                                    PLE22  '1'
F.relu([1.0])                                              PLE22  [1.0]
torch.add(a, "x")                                          PLE22  'x'
torch.tensor([[1, 2], [3]])                                PLE22  [[1, 2], [3]]
a.nothing                                                  PLE22  a
w.numpy()                                                  PLE31  w
a.sum().item().backward()                                  PLE32  a.sum().item()
a[0] = torch.ones(4)                                       PLE02  torch.ones(4)
w.grad = torch.ones(4)                                     PLE34  w.grad
(w * 2).backward(torch.ones(4))                            PLE32  torch.ones(4)
a.register_hook(print)                                     PLE34  a
w.grad.zero_()                                             PLE34  w.grad
torch.mul(w, 2, out=torch.ones(3))                         PLE35  w
torch.optim.SGD([], lr=0.1)                                PLE42  []
torch.nn.Linear(3, 2).load_state_dict({"weight": a})       PLE41  state_dict
F.binary_cross_entropy(a * 3, a)                           PLE44  a * 3
F.mse_loss(a, a, reduction="all")                          PLE44  'all'
torch.linspace(0, 1, -3)                                   PLE90  -3
F.cross_entropy(a, torch.tensor([0, 1]).int())             PLE21  torch.tensor([0, 1]).int()
F.gaussian_nll_loss(a, a, -a)                              PLE44  -a
F.interpolate(a[None], size=(4, 4))                        PLE06  a[None]
torch.optim.Adam(torch.nn.Linear(3, 2))                    PLE42  Linear
print("more") if a > 0 else None                           PLE14  a > 0
torch.eye(-1)                                              PLE90  -1
torch.vmap(lambda r: r.item())(a[0])                       PLE45  r
torch.vmap(lambda r: r[r > 0].sum())(a)                    PLE45  r
"""
START = "import torch\nimport torch.nn.functional as F\n\na = torch.ones(2, 3)\nw = torch.ones(3, requires_grad=True)\n"


def recorded(program: str) -> tuple[Trace, list[Finding]]:
    trace = trace_program(program)
    return trace, find(trace)


@pytest.mark.parametrize("line", REFUSED.strip().splitlines(), ids=lambda line: re.split(r"\s{2,}", line)[0])
def test_a_refused_call_is_explained_by_its_family_and_the_argument_that_is_wrong(line: str) -> None:
    call, code, wrong = re.split(r"\s{2,}", line)
    trace, found = recorded(f"{START}{call}\n")
    (finding,) = found
    assert (finding.rule, finding.severity) == (code, "error")
    assert finding.span is not None
    assert finding.span.line == 6
    assert wrong in finding.message.en + finding.explanation.en
    assert finding.fact("argument") is not None
    for language in LANGUAGES:
        assert "{" not in finding.message.say(language) or "{" in call
    assert trace.outcome.failure is not None
    assert trace.outcome.failure.message.splitlines()[0][:40] in f"{finding.message.en} {finding.explanation.en}"


def test_names_are_those_of_the_line_that_raises() -> None:
    program = (
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = torch.nn.Linear(4, 2)\n\n    def forward(self, x):\n        return self.fc(x[:, 1:])\n\n\n"
        "images = torch.ones(2, 4)\nNet()(images)\n"
    )
    _, (finding,) = recorded(program)
    assert "`x[:, 1:]`" in finding.message.en
    assert "`self.fc.weight`" in finding.message.en
    assert "images" not in finding.message.en


MASKS = """import torch
import torch.nn.functional as F
from torch import nn
x, pad = torch.ones(3, 6, 8), torch.zeros(3, 6).bool()
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2%s)
    def forward(self, h, hidden):
        return self.attend(h, h, h, key_padding_mask=hidden, attn_mask=%s)[0]
Block()(x, %s)
"""


@pytest.mark.parametrize(
    ("made", "other", "given", "wrong", "fixes"),
    [
        ("", "None", "pad", "hidden", ["Give `batch_first=True`"]),
        (", batch_first=True", "None", "pad.T", "hidden", ["Write `hidden.T`"]),
        (", batch_first=True", "torch.eye(6).bool()[None]", "pad", "torch.eye(6).bool()[None]", []),
    ],
)
def test_a_mask_that_does_not_fit_is_named_as_the_line_writes_it(
    made: str, other: str, given: str, wrong: str, fixes: list[str]
) -> None:
    (found,) = recorded(MASKS % (made, other, given))[1]
    assert (found.rule, f"mask `{wrong}`" in found.message.en) == ("PLE02", True), found.message.en
    assert [fix.title.en for fix in found.fixes] == fixes


def test_a_mask_of_the_scores_is_named_and_not_the_keys() -> None:
    line = (
        "k = torch.ones(2, 4, 7, 8)\nF.scaled_dot_product_attention(k[:, :, :5], k, k, attn_mask=torch.zeros(2, 5, 7))"
    )
    (found,) = recorded(f"import torch\nimport torch.nn.functional as F\n{line}\n")[1]
    assert "the mask `torch.zeros(2, 5, 7)` of shape 2×5×7" in found.message.en


def test_an_error_that_the_program_catches_is_a_note() -> None:
    start = "import torch\nw = torch.ones(2, requires_grad=True)\n"
    for body in ("w.numpy()", "w += 1", "w.view(3)"):
        _, found = recorded(f"{start}try:\n    {body}\nexcept RuntimeError as error:\n    print(error)\nprint(w)\n")
        assert [finding.severity for finding in found] == ["info"], body
    _, (finding,) = recorded(
        f"{start}try:\n    w.view(3)\nexcept RuntimeError as error:\n    raise ValueError('mine') from error\n"
    )
    assert (finding.rule, finding.severity) == ("PLE03", "error")


def test_an_error_of_the_programs_own_is_not_torchs_and_shows_the_tensors_there() -> None:
    program = (
        "import torch\n"
        "\n"
        "\n"
        "def check(x):\n"
        "    if x.ndim != 3:\n"
        "        raise ValueError('three')\n"
        "\n"
        "\n"
        "check(torch.ones(2, 3))\n"
    )
    _, (finding,) = recorded(program)
    assert (finding.rule, finding.severity, finding.span and finding.span.line) == ("PLE00", "info", 6)
    assert "`x`: float32, 2×3" in finding.explanation.en


@pytest.mark.parametrize("end", ["raise SystemExit(2)", "import nowhere_at_all", "int('x')", "{}['key']"])
def test_other_endings_are_no_errors_of_torchs(end: str) -> None:
    _, found = recorded(f"import torch\nx = torch.ones(2)\n{end}\n")
    assert {finding.rule for finding in found} <= {"PLE00"}


def test_a_tensor_that_cannot_say_whether_it_is_true_is_torchs_refusal() -> None:
    source = (
        "import torch\n"
        "def f(e):\n"
        "    if e.abs() < 1:\n"
        "        return e\n"
        "    return -e\n"
        "torch.func.vmap(f)(torch.ones(3))\n"
    )
    (finding,) = find(trace_program(source))
    assert (finding.rule, finding.severity, finding.span and finding.span.line) == ("PLE45", "error", 3)
    assert "`e.abs() < 1`" in finding.message.en


def test_a_family_is_found_by_its_code_and_by_its_name() -> None:
    assert all(rule(family.code) is family is rule(family.name) for family in FAMILIES)
    assert len({family.code for family in FAMILIES}) == len(FAMILIES)
    assert all(
        any("\u4e00" <= c <= "\u9fff" for c in case.refused.zh + case.accepts.zh)
        for family in FAMILIES
        for case in family.cases
    )


def test_an_error_of_a_hook_is_told_at_the_line_that_raised_it() -> None:
    program = (
        "import torch\n"
        "\n"
        "\n"
        "def clip(grad):\n"
        "    raise ValueError('too large')\n"
        "\n"
        "\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "w.register_hook(clip)\n"
        "(w * 2).sum().backward()\n"
    )
    _, (finding,) = recorded(program)
    assert (finding.rule, finding.span and finding.span.line) == ("PLE00", 5)
    assert "`grad`: float32" in finding.explanation.en


def test_the_same_round_and_an_earlier_one_are_told_apart_by_what_ran() -> None:
    """Both losses of a round share `fake`; the round before shares nothing."""
    program = (
        "import torch\n"
        "\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "v = torch.ones(2, requires_grad=True)\n"
        "for step in range(2):\n"
        "    fake = (w * 2).exp()\n"
        "    first = (fake * v).sum()\n"
        "    first.backward()\n"
        "    second = (fake * 3).sum()\n"
        "    second.backward()\n"
    )
    _, (finding,) = recorded(program)
    assert (finding.rule, finding.span and finding.span.line) == ("PL501", 10)
    assert "`fake` (line 6)" in finding.message.en


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("F.embedding(n, a)", "n"),
        ("F.cross_entropy(a, n)", "n"),
        ("F.nll_loss(a, n)", "n"),
        ("F.linear(a, torch.ones(2, 3 + k))", "a"),
        ("F.layer_norm(a, (3 + k,))", "a"),
        ("F.conv1d(a[None], torch.ones(4, 2 + k, 1))", "a[None]"),
    ],
)
def test_a_call_that_went_well_before_is_explained_as_one_that_did_not(call: str, wrong: str) -> None:
    """A repeated call is known by its name, and has the arguments of the function of this name."""
    start = f"{START}for k in [0, 0, 0, 1]:\n    n = torch.tensor([0, 1 + 5 * k])\n"
    _, found = recorded(f"{start}    {call}\n")
    (again,) = [finding for finding in found if finding.severity == "error"]
    _, found = recorded(f"{start.replace('0, 0, 0, 1', '1')}    {call}\n")
    (first,) = [finding for finding in found if finding.severity == "error"]
    assert again.message == first.message
    assert f"`{wrong}`" in again.message.en
