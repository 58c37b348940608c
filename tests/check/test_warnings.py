"""A checked program warns as it does alone: ``--show-output`` prints every warning, under the
filters that its own imports set.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pitfall_lab.cli import main

# As in two public scripts (graykode/nlp-tutorial), whose warnings were lost: memory is shared, so
# that a check takes several runs.
PROGRAM = """\
import sys
import warnings
import numpy as np
import torch
from torch import nn, optim

model = nn.RNN(input_size=2, hidden_size=70, dropout=0.5)
optimizer = optim.Adam(model.parameters())
batch = torch.FloatTensor([[np.eye(2)]]).squeeze(0)
for _ in range(2):
    optimizer.zero_grad()
    hidden, _last = model(batch)
    loss = torch.nn.functional.softmax(hidden).square().sum()
    loss.backward()
    optimizer.step()
shown = hidden.data.max(1, keepdim=True)[1].numpy()
warnings.warn("the program's own")
for action, message, category, module, line in warnings.filters:
    if category.__module__.startswith(("builtins", "torch", "numpy")):
        print("filter", action, message, category.__name__, module, line, file=sys.stderr)
"""


def test_a_checked_program_warns_as_it_does_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    plain = subprocess.run(
        [sys.executable, program], capture_output=True, encoding="utf-8", timeout=120, check=True
    ).stderr
    assert main(["check", str(program), "--show-output"]) == 0
    checked = capfd.readouterr().err.partition("program.py\n")[2]
    assert plain.count("UserWarning: ") == 4
    assert checked.splitlines() == plain.splitlines()
