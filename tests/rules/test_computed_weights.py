"""PL742 where a weight that is computed anew is written in place, whatever computes it; and writes that are kept."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import warnings
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
warnings.simplefilter("ignore")
torch.manual_seed(0)
src = nn.Linear(3, 4)
x = torch.ones(2, 3)
"""
END = "print(dst(x))\n"
WRONG = {
    "copied, then frozen": """
def carry(old, new):
    with torch.no_grad():
        for a, b in zip(old, new):
            if isinstance(a, nn.Linear):
                b.weight.copy_(a.weight)  # PL742
                b.bias.copy_(a.bias)
dst = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.ReLU())
carry(nn.Sequential(src, nn.ReLU()), dst)
dst.requires_grad_(False)
""",
    "frozen, then copied": """
dst = parametrizations.weight_norm(nn.Linear(3, 4)).requires_grad_(False)
dst.weight.copy_(src.weight)  # PL742
""",
    "initialised by a function": """
def start(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight.data, 0, 0.02)  # PL742
        nn.init.zeros_(module.bias)
dst = nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 4)), nn.ReLU())
dst.apply(start)
""",
    "hooks that were in torch before": """
dst = nn.utils.weight_norm(nn.Linear(3, 4))
with torch.no_grad():
    dst.weight.copy_(src.weight)  # PL742
""",
    "a spectral norm by hooks, after a first use": """
dst = nn.utils.spectral_norm(nn.Linear(3, 4))
dst(x)
with torch.no_grad():
    dst.weight.mul_(0.5)  # PL742
""",
    "pruned": """
dst = prune.random_unstructured(nn.Linear(3, 4), "weight", 0.5)
dst.weight.data.copy_(src.weight)  # PL742
""",
    "rows of it": """
dst = parametrizations.weight_norm(nn.Linear(3, 4))
with torch.no_grad():
    dst.weight[0] = 0.5  # PL742
""",
    "by a name": """
dst = parametrizations.weight_norm(nn.Linear(3, 4))
with torch.no_grad():
    weight = dst.weight
    weight.copy_(src.weight)  # PL742
""",
    "a symmetric one": """
class Symmetric(nn.Module):
    def forward(self, given):
        return given.triu() + given.triu(1).T
    def right_inverse(self, given):
        return given.triu()
dst = nn.Linear(3, 3)
parametrize.register_parametrization(dst, "weight", Symmetric())
with torch.no_grad():
    dst.weight.copy_(torch.eye(3))  # PL742
""",
}
RIGHT = {
    "assigned": """
dst = parametrizations.weight_norm(nn.Linear(3, 4))
dst.weight = src.weight.detach()
with torch.no_grad():
    dst.weight += 1.0
    dst.weight = dst.weight.mul_(2.0)
    dst.bias.copy_(src.bias)
dst.requires_grad_(False)
""",
    "assigned where the inverse gives the same tensor": """
dst = parametrizations.spectral_norm(nn.Linear(3, 4))
with torch.no_grad():
    dst.weight = nn.init.xavier_uniform_(dst.weight)
    dst.weight += 1.0
""",
    "the parameters are written": """
dst = parametrizations.spectral_norm(nn.Linear(3, 4))
old = nn.utils.weight_norm(nn.Linear(3, 4))
with torch.no_grad():
    dst.parametrizations.weight.original.copy_(src.weight)
    old.weight_v.copy_(src.weight)
    old.weight_g.copy_(src.weight.norm(dim=1, keepdim=True))
print(old(x))
""",
    "written before and after": """
dst = nn.Linear(3, 4)
with torch.no_grad():
    dst.weight.copy_(src.weight)
dst = parametrizations.weight_norm(dst)
print(dst(x))
parametrize.remove_parametrizations(dst, "weight")
with torch.no_grad():
    dst.weight.copy_(src.weight)
""",
    "a spectral norm by hooks, which computes at the first use": """
dst = nn.utils.spectral_norm(nn.Linear(3, 4))
nn.init.normal_(dst.weight.data, 0, 0.02)
""",
    "read after the write": """
dst = parametrizations.weight_norm(nn.Linear(3, 4))
with torch.no_grad(), parametrize.cached():
    dst.weight.mul_(2)
    print(dst(x))
with torch.no_grad():
    limited = dst.weight
    limited.clamp_(-1, 1)
    print(limited.norm(), dst.weight.abs_())
""",
    "written where it is computed": """
class Limited(nn.Module):
    def forward(self, given):
        return (given * 2).clamp_(-1, 1)
dst = nn.Linear(3, 4)
parametrize.register_parametrization(dst, "weight", Limited())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_lost_write_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name] + END, only=("PL742",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_kept_writes_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, HEAD + RIGHT[name] + END)
