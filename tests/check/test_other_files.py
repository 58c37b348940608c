"""A finding stands in the checked file, also when the line that did it is in a file that the program imports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.examine import check_file, examine
from pitfall_lab.check.settings import Settings
from pitfall_lab.check.terminal import report
from pitfall_lab.rules import find

HELPERS = """\
from torch import nn


def clip_rewards(values, low=-1.0, high=1.0):
    return values.clamp_(low, high)


class Squash(nn.Module):
    def forward(self, x):
        return x.sigmoid()


def apply(function, x):
    return function(x)
"""
CLIPS = """\
import torch
from rewards import clip_rewards

critic = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Sigmoid())
values = critic(torch.ones(5, 3))
clipped = clip_rewards(values, 0.4, 0.6)
((1 - values) ** 2).mean().backward()
"""
SAVES = """\
import torch
from rewards import Squash

def train():
    x = torch.ones(3, requires_grad=True)
    h = squash(x * 2)
    h += 1
    h.sum().backward()

squash = Squash()
train()
"""
AT_IMPORT = """\
import torch
from weights import h

h.add_(1)
h.sum().backward()
"""
WEIGHTS = "import torch\n\nh = torch.ones(2, requires_grad=True).exp()\n"


@pytest.mark.parametrize(
    ("program", "lines", "said"),
    [
        (CLIPS, {"saved": 5, "changed": 6, "backward": 7}, "Line 5 of rewards.py overwrites `values`"),
        (SAVES, {"saved": 6, "changed": 7, "backward": 8}, "it had on line 10 of rewards.py"),
        (AT_IMPORT, {"saved": 2, "changed": 4, "backward": 5}, "it had on line 3 of weights.py"),
        (
            CLIPS.replace("clip_rewards(values, 0.4, 0.6)", "(lambda v: clip_rewards(v))(values)"),
            {"saved": 5, "changed": 6},
            "Line 5 of",
        ),
    ],
    ids=["a function that writes", "a module that saves", "what the import ran", "through a lambda"],
)
def test_the_lines_are_those_of_the_checked_file(
    program: str, lines: dict[str, int], said: str, tmp_path: Path
) -> None:
    (tmp_path / "rewards.py").write_text(HELPERS, encoding="utf-8")
    (tmp_path / "weights.py").write_text(WEIGHTS, encoding="utf-8")
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    (finding,) = check_file(path, fixes=False)["findings"]
    assert finding["line"] == lines["changed"]
    assert said in finding["message"]
    assert lines.items() <= {each["role"]: each["line"] for each in finding["related"]}.items()


def test_a_comment_on_the_calling_line_ignores_what_the_other_file_does(tmp_path: Path, shop: Workshop) -> None:
    (tmp_path / "rewards.py").write_text(HELPERS, encoding="utf-8")
    path = tmp_path / "program.py"
    path.write_text(CLIPS.replace("0.6)", "0.6)  # pitfall: ignore[PL101]"), encoding="utf-8")
    checked = examine(path, shop, Settings(), fixes=False)
    assert checked.trace is not None
    assert "5 of rewards.py" not in report("program.py", checked.trace, checked.findings)


def test_what_exec_runs_is_told_at_the_line_that_runs_it(shop: Workshop) -> None:
    text = (
        'import torch\nx = torch.ones(2, requires_grad=True)\nexec("h = x.exp()\\nh.mul_(2)\\n")\nh.sum().backward()\n'
    )
    (finding,) = find(shop.trace(Subject(text, "program.py")))
    assert json.loads(json.dumps(finding.to_dict()))["line"] == 3
