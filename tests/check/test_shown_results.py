"""A verified fix of a silent mistake says which number of the program it changes."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop, shown_results
from pitfall_lab.check.terminal import Style, fix_text
from pitfall_lab.check.trials import recorded, tried
from pitfall_lab.rules import Printed

BROADCAST = """import torch
x = torch.linspace(0, 1, 8)[:, None]
y = (2 * x).flatten()
layer = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
for step in range(12):
    loss = ((layer(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def first_fix(shop: Workshop, source: str) -> Printed | None:
    """What the first verified fix of the first finding changes."""
    subject = Subject(source, "program.py")
    finding = tried(shop, subject, recorded(shop, subject))[0]
    assert finding.fixes[0].verified
    return finding.fixes[0].printed


def test_the_last_printed_line_that_differs_is_shown(shop: Workshop) -> None:
    long = BROADCAST.replace("range(12)", "range(60)")
    shown = first_fix(shop, long + "print('start'); print(f'slope {layer.weight.item():.2f}'); print('end')\n")
    assert shown is not None
    assert not shown.name
    assert abs(float(shown.after.removeprefix("slope ")) - 2) < 0.1
    assert abs(float(shown.before.removeprefix("slope "))) < 0.5


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("rows: largest move 0.5186\nnorm 3.328", "rows: largest move 0\nnorm 4.158", "rows: largest move 0"),
        ("loss nan\nseconds 3", "loss 0.2\nseconds 4", "loss 0.2"),
        ("epoch 1 loss 0.9\nepoch 2 loss 0.8\nacc 0.81", "epoch 1 loss 0.1\nepoch 2 loss 0.0\nacc 0.99", "acc 0.99"),
        ("epoch 1 loss 0.9\nepoch 2 loss 0.8", "epoch 1 loss 0.5\nepoch 2 loss 0.4", "epoch 2 loss 0.4"),
        ("a -0.0\nb 1e999", "a 0.0\nb inf", "a 0.0"),
        ("same", "same", None),
    ],
)
def test_of_several_lines_the_one_whose_number_changes_most_is_shown(
    before: str, after: str, shown: str | None
) -> None:
    line = shown_results.line(before, after, after)
    assert (line and line.after) == shown


def test_programs_that_draw_without_a_seed_are_run_with_the_same_numbers(shop: Workshop) -> None:
    noisy = (
        BROADCAST.replace("torch.linspace(0, 1, 8)[:, None]", "torch.rand(8, 1)")
        + "print(f'{x.sum():.6f} {loss:.3f}')\n"
    )
    shown = first_fix(shop, noisy)
    assert shown is not None
    assert shown.before.split()[0] == shown.after.split()[0]


def test_a_tensor_printed_in_several_lines_is_not_shown_in_part(shop: Workshop) -> None:
    shown = first_fix(shop, BROADCAST + "print(f'slope {layer.weight.item():.2f}')\nprint(layer(x[:3]))\n")
    assert shown is not None
    assert shown.after.startswith("slope ")


def test_without_output_the_last_number_that_differs_is_shown(shop: Workshop) -> None:
    shown = first_fix(shop, BROADCAST + "final = loss.item()\n")
    assert shown is not None
    assert shown.name == "final"
    assert float(shown.before) > float(shown.after)


@pytest.mark.parametrize(
    "more",
    [
        "import time; print(f'took {time.perf_counter():.9f}')\n",  # differs from run to run
        "print('slope', 'falls')\n",  # the same
        "import time\nbegun = time.perf_counter()\n",
    ],
)
def test_what_differs_without_the_fix_as_well_is_not_its_work(shop: Workshop, more: str) -> None:
    shown = first_fix(shop, BROADCAST + more)
    assert shown is not None
    assert shown.name == "loss"


def test_nothing_is_shown_where_the_program_computes_the_same(shop: Workshop) -> None:
    source = (
        "import torch\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "with torch.no_grad():\n"
        "    w = w * 2\n"
        "y = w.sum()\n"
        "y.backward()\n"
    )
    subject = Subject(source, "program.py")
    assert all(
        fix.printed is None for finding in tried(shop, subject, recorded(shop, subject)) for fix in finding.fixes
    )


@pytest.mark.parametrize(
    ("name", "before", "after", "worse"),
    [
        ("", "epoch 3: loss=0.10, acc=0.99", "epoch 3: loss=0.12, acc=0.99", True),
        ("", "accuracy 0.5", "accuracy 1.0", False),
        ("", "accuracy 1.0", "accuracy 0.5", True),
        ("", "slope 1.0", "slope 0.5", False),
        ("", "loss 0.1", "loss 0.2 after 3", False),
        ("val_loss", "0.1", "nan", False),
        ("val_loss", "1e-05", "0.1", True),
    ],
)
def test_a_number_that_looks_worse_gets_a_sentence(name: str, before: str, after: str, worse: bool) -> None:
    assert ("does not speak against the fix" in Printed(name, before, after).said.en) == worse


def test_a_line_of_the_program_is_printed_without_control_characters(shop: Workshop) -> None:
    subject = Subject(BROADCAST + "print(f'\\x1b[31m<b>{loss:.3f}')\n", "program.py")
    finding = tried(shop, subject, recorded(shop, subject))[0]
    text = "\n".join(fix_text(subject.source, finding.fixes[0], 1, Style()))
    assert "With the same random numbers it prints" in text
    assert "\x1b" not in text
