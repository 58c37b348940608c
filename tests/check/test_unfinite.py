"""NaN and infinity: the operation that makes the first one is named, whatever the size of the
tensors and wherever the loop is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pitfall_lab.check import Workshop
from pitfall_lab.check.examine import Checked, examine
from pitfall_lab.check.settings import Settings

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\ntorch.manual_seed(0)\n"
DISTANCES = """
net = nn.Linear(8, 16)
optimizer = torch.optim.Adam(net.parameters())
x = torch.randn(90, 8)
mask = 1 - torch.eye(90)
for epoch in range(30):
    e = net(x)
    distance = ((e[:, None] - e[None]) ** 2).sum(-1).sqrt()  # here
    loss = (distance * mask).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ALONE = """
a = torch.randn(90, 16, requires_grad=True)
distance = ((a[:, None] - a[None]) ** 2).sum(-1).sqrt()  # here
(distance * (1 - torch.eye(90))).mean().backward()
"""
LATE = """
embed = nn.Embedding(50, 16)
head = nn.Linear(16, 90)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
for step in range(40):
    mask = torch.ones(64, 5)
    if step == 23:
        mask[0] = 0
    mean = (embed(torch.randint(0, 50, (64, 5))) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)  # here
    loss = head(mean).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OVERFLOW = """
w = torch.randn(16, 90, requires_grad=True)
x = torch.randn(90, 16) * 40
for i in range(30):
    e = torch.exp(x @ w)  # here
    p = e / e.sum(1, keepdim=True)
    loss = -p[:, 0].clamp(min=1e-8).log().mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad.zero_()
"""
SIMULATION = """
place = torch.rand(90, 2)
speed = torch.zeros(90, 2)
for t in range(60):
    apart = place[:, None] - place[None]
    force = apart / apart.norm(dim=-1, keepdim=True) ** 3  # here
    speed = speed + 0.001 * force.sum(1)
    place = place + 0.01 * speed
"""
BY_HAND = """
embed = torch.zeros(90, 90, requires_grad=True)
for i in range(20):
    length = torch.sqrt((embed * embed).sum(1, keepdim=True))  # here
    loss = (embed / (length + 1e-8))[:, 0].sum()
    gradient, = torch.autograd.grad(loss, embed)
    with torch.no_grad():
        embed -= 0.1 * gradient
"""
INFINITE = """
class Half(nn.Module):
    def forward(self, x):
        return x.half() ** 2  # here
w = torch.full((5000,), 300.0, requires_grad=True)
loss = Half()(w).float().mean()
loss.backward()
"""


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    with Workshop() as shop:
        yield shop


def checked(shop: Workshop, folder: Path, text: str) -> Checked:
    file = folder / "program.py"
    file.write_text(HEAD + text, encoding="utf-8")
    return examine(file, shop, Settings(), fixes=False)


def line_of(text: str) -> int:
    return next(number for number, code in enumerate((HEAD + text).split("\n"), 1) if "# here" in code)


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        (ALONE, "PL804", "has no finite slope"),
        (DISTANCES, "PL804", "has no finite slope"),
        (BY_HAND, "PL804", "embed.grad"),
        (LATE, "PL808", "given 0 and 0"),
        (OVERFLOW, "PL808", "3.4e38"),
        (SIMULATION, "PL808", "later results are NaN"),
        (INFINITE, "PL808", "65,504"),
    ],
)
def test_the_line_that_makes_the_first_one_is_named(
    shop: Workshop, tmp_path: Path, text: str, rule: str, words: str
) -> None:
    (finding,) = checked(shop, tmp_path, text).findings
    assert finding.span is not None
    assert (finding.rule, finding.span.line) == (rule, line_of(text))
    assert words in f"{finding.message.en} {finding.explanation.en}"


SKIPPED = """
net = nn.Linear(16, 90)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(40):
    x = torch.randn(90, 16)
    if i % 13 == 5:
        x[0] = 1e38
    loss = net(x).pow(2).mean()
    if not torch.isfinite(loss):
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CLIPPED = """
net = nn.Linear(16, 90)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(40):
    x = torch.randn(90, 16)
    if i % 13 == 5:
        x[0] = 0
    loss = (x.pow(2).sum(1, keepdim=True) * net.weight.sum() ** 2).sqrt().mean() + net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    if torch.isfinite(nn.utils.clip_grad_norm_(net.parameters(), 1.0)):
        optimizer.step()
"""
REFUSED = """
net = nn.Linear(16, 90)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for i in range(40):
    x = torch.randn(90, 16)
    if i % 13 == 5:
        x[0, 3] = float("inf")
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    try:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
    except RuntimeError:
        continue
    optimizer.step()
"""
COMPARED = """
net = nn.Linear(16, 90)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(40):
    x = torch.randn(90, 16)
    if i % 13 == 5:
        x[0, 3] = float("inf")
    loss = net(x).pow(2).mean()
    loss.backward()
    if net.weight.grad.norm() < 1e4:
        optimizer.step()
    net.weight.grad.zero_()
    net.bias.grad = None
"""
FILLED = """
x = torch.randn(90, 90)
x[x > 1.5] = float("nan")
net = nn.Linear(90, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(20):
    loss = net(torch.nan_to_num(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.nanmean(x))
"""
MASKED = """
best = torch.full((90,), float("inf"))
causal = torch.triu(torch.full((90, 90), float("-inf")), 1)
w = torch.randn(90, 90, requires_grad=True)
for i in range(20):
    loss = ((w + causal).softmax(-1) ** 2).sum(1)
    best = torch.minimum(best, loss.detach())
    loss.sum().backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad = None
print(best.mean(), torch.zeros(3) / torch.zeros(3))
"""


@pytest.mark.parametrize("text", [SKIPPED, CLIPPED, REFUSED, COMPARED, FILLED, MASKED])
def test_what_does_no_harm_is_not_told(shop: Workshop, tmp_path: Path, text: str) -> None:
    result = checked(shop, tmp_path, text)
    assert not result.findings
    assert result.exit_code == 0


STEPPED = (
    REFUSED.replace("        continue", "        pass"),
    COMPARED.replace("if net.weight.grad.norm() < 1e4", "if i >= 0"),
)


@pytest.mark.parametrize("text", STEPPED)
def test_a_step_with_such_gradients_is_told(shop: Workshop, tmp_path: Path, text: str) -> None:
    assert [finding.rule for finding in checked(shop, tmp_path, text).findings] == ["PL808"]


def test_a_fix_is_verified_only_if_the_numbers_are_finite_then(shop: Workshop, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(HEAD + DISTANCES, encoding="utf-8")
    (finding,) = examine(file, shop, Settings()).findings
    assert [fix.verified for fix in finding.fixes] == [True]
    assert "clamp(min=1e-12)" in finding.fixes[0].edits[0].text


def wiped(curve: str, repair: str, when: str = "True") -> str:
    """A training in which ``curve`` has NaN gradients while ``when``, each of which ``repair`` is to replace by 0."""
    return f"""
x = 3 * torch.rand(64, 3)
x[:10] = 0.0
gain, beta = torch.ones(3, requires_grad=True), torch.full((3,), 0.1, requires_grad=True)
optimizer = torch.optim.SGD([gain, beta], lr=0.01)
def repaired(parameters):
    for p in parameters:
        {repair}
for i in range(12):
    given = x if {when} else x + 1
    z = gain * given
    curve = {curve}  # here
    loss = (curve @ beta - x.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    repaired([gain, beta])
    optimizer.step()
"""


ROOT = "torch.where(z > 0, z.sqrt(), torch.zeros_like(z))"
CURVES = (
    (ROOT, "p.grad.nan_to_num_(0.0)"),
    (ROOT, "p.grad = torch.nan_to_num(p.grad, nan=0.0)"),
    ("z.log().masked_fill(z <= 0, 0.0)", "p.grad[torch.isnan(p.grad)] = 0.0"),
    (
        "torch.where(z > 0, (given + 1) / z, torch.zeros_like(z))",
        "p.grad.copy_(torch.where(p.grad.isnan(), torch.zeros_like(p.grad), p.grad))",
    ),
    ("torch.where(z > 0, z ** 0.5, z)", "p.grad.masked_fill_(~torch.isfinite(p.grad), 0.0)"),
    ("z.rsqrt().masked_fill(z == 0, 0.0)", "torch.isfinite(p.grad).all() or p.grad.zero_()"),
)


@pytest.mark.parametrize(("curve", "repair"), CURVES)
def test_a_gradient_that_is_nothing_but_nan_and_then_0_is_told(
    shop: Workshop, tmp_path: Path, curve: str, repair: str
) -> None:
    text = wiped(curve, repair)
    (finding,) = checked(shop, tmp_path, text).findings
    assert (finding.rule, finding.span and finding.span.line) == ("PL804", line_of(text))
    assert "`gain` was NaN and then 0" in finding.explanation.en


GUARDED = (
    wiped(ROOT, "p.grad.nan_to_num_(0.0)", when="i == 5"),
    wiped("torch.where(z > 0, z.clamp(min=1e-6).sqrt(), torch.zeros_like(z))", "p.grad.nan_to_num_(0.0)"),
    wiped(ROOT, "p.grad.nan_to_num_(0.0)").replace("x[:10] = 0.0", "x[:10, 0] = 0.0"),
    wiped(ROOT, "p.grad.nan_to_num_(0.0)").replace("    optimizer.step()", "    print(gain.grad)"),
    wiped(ROOT, "p.grad.nan_to_num_(1e-3)"),
)


@pytest.mark.parametrize("text", GUARDED)
def test_a_repaired_gradient_that_still_trains_is_not_told(shop: Workshop, tmp_path: Path, text: str) -> None:
    assert "PL804" not in [finding.rule for finding in checked(shop, tmp_path, text).findings]
