"""A fix is verified only when the finding is gone and every value that was right is the same: traps do not pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pitfall_lab.check import Subject, Trial, Workshop, check, keeps_what_was_right, prelude, recorded, tried
from pitfall_lab.rules import Edit, Finding, Fix, find
from pitfall_lab.trace import T

SIGMOID = """\
import torch
x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
h = torch.sigmoid(x)
y = h * 2
h.mul_(10)
loss = (y * h).sum()
loss.backward()
"""
NUMPY = """\
import torch
x = torch.tensor([1.0, 2.0], requires_grad=True)
h = x * 2
y = (h ** 2).sum()
a = h.detach().numpy()
a[0] = 50
y.backward()
"""
UPDATE = """\
import torch
w = torch.tensor([1.0, 2.0], requires_grad=True)
first, second = (w ** 2).sum(), (w ** 3).sum()
opt = torch.optim.SGD([w], lr=0.1)
first.backward()
opt.step()
second.backward()
"""
TRAPS = {
    "writing through .data": (SIGMOID, 5, "h.data.mul_(10)\n"),
    "detaching what was saved": (SIGMOID, 3, "h = torch.sigmoid(x).detach().requires_grad_()\n"),
    "not writing at all": (SIGMOID, 5, ""),
    "a new tensor outside the graph": (SIGMOID, 5, "with torch.no_grad(): h = h * 10\n"),
    "keeping the graph": (SIGMOID, 7, "loss.backward(retain_graph=True)\n"),
    "catching the error": (SIGMOID, 7, "try: loss.backward()\nexcept RuntimeError: pass\n"),
    "another loss": (SIGMOID, 6, "loss = y.sum()\n"),
    "an error of another kind": (SIGMOID, 5, "h = h * undefined\n"),
    "leaving the tensor out": (NUMPY, 4, "y = (h.detach() ** 2).sum() + x.sum()\n"),
    "another number": (NUMPY, 6, "a[0] = 3\n"),
    "a step that takes other gradients with it": (UPDATE, 6, "second.backward()\nopt.step()\nsecond = w.sum()\n"),
    "no step": (UPDATE, 6, ""),
}


def examined(source: str, shop: Workshop) -> tuple[Trial, Finding]:
    subject = Subject(source, "program.py")
    trace = shop.trace(subject)
    findings = find(trace)
    return Trial(shop, subject, trace, findings), findings[0]


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_not_verified(name: str, shop: Workshop) -> None:
    source, line, text = TRAPS[name]
    trial, finding = examined(source, shop)
    assert trial.ending(finding, Fix(T(en=name, zh=name), (Edit(line, line, text),))) == ""


@pytest.mark.parametrize("source", [SIGMOID, NUMPY, UPDATE], ids=["PL101", "PL301", "step"])
def test_a_repair_that_keeps_all_values_is_verified(source: str, shop: Workshop) -> None:
    trial, finding = examined(source, shop)
    assert any(trial.ending(finding, fix) == "finished" for fix in finding.fixes)


def test_a_fused_step_between_two_backwards_is_found_and_repaired(shop: Workshop) -> None:
    source = UPDATE.replace("lr=0.1", "lr=0.1, fused=True").replace(
        "(w ** 2).sum(), (w ** 3).sum()", "(w ** 2).sum(), (w ** 3).sum()"
    )
    subject = Subject(source, "program.py")
    (finding,) = tried(shop, subject, shop.trace(subject))
    assert (finding.rule, finding.span and finding.span.line) == ("PL304", 6)
    assert finding.fixes


def record(gradient: list[float], *, leaf: float = 1.0, root: float = 2.0, **more: Any) -> dict[str, Any]:
    """A witness of one backward of one leaf."""

    def digest(*numbers: float) -> dict[str, Any]:
        return {"shape": [len(numbers)], "numbers": [sum(numbers), max(map(abs, numbers)), *numbers]}

    entry = {
        "roots": [digest(root)],
        "leaves": [digest(leaf)],
        "gradients": [digest(*gradient)],
        "results": [],
        "raised": False,
    }
    return {"error": None, "backwards": [entry], "leaves": [digest(leaf)], "warnings": [], "names": {}, **more}


def test_rounding_is_no_difference_and_another_gradient_is_one() -> None:
    assert keeps_what_was_right(record([1.0, 2.0]), record([1.0 + 1e-6, 2.0]), "same")
    assert not keeps_what_was_right(record([1.0, 2.0]), record([1.0, 2.1]), "same")


def test_a_new_warning_or_another_end_of_a_parameter_is_a_difference() -> None:
    assert not keeps_what_was_right(
        record([1.0]), record([1.0], warnings=["The .grad attribute of a Tensor that is not a leaf …"]), "same"
    )
    assert not keeps_what_was_right(record([1.0]), record([1.0], leaf=3.0), "same")
    assert not keeps_what_was_right(record([1.0]), record([1.0], error="RuntimeError"), "shape")


def test_a_prelude_imports_what_another_process_can_import() -> None:
    names = {"dumps": json.dumps, "js": json, "unused": json, "local": lambda: 0, "x": 3}
    assert prelude("dumps(js, local, x)", names).splitlines() == [
        "from json import dumps as dumps",
        "import json as js",
    ]
    assert prelude("x = (", names) == ""


def test_a_cell_whose_imports_are_elsewhere_is_tried_with_its_prelude(shop: Workshop) -> None:
    import torch

    cell = SIGMOID.replace("import torch\n", "\n")
    subject = Subject(cell, "cell", prelude=prelude(cell, {"torch": torch}))
    (finding,) = tried(shop, subject, shop.trace(subject))
    assert finding.fixes[0].edits[0].text == "h = h * 10\n"


def test_a_wrong_gradient_of_a_large_tensor_is_found_too() -> None:
    """Its numbers are not modelled at first; torch itself says that something is wrong, and then they are."""
    large = NUMPY.replace("torch.tensor([1.0, 2.0], requires_grad=True)", "torch.ones(100, 100, requires_grad=True)")
    (finding,) = check(large)
    assert (finding.rule, finding.span and finding.span.line) == ("PL301", 6)
    assert check(large.replace("h.detach().numpy()", "h.detach().numpy().copy()")) == []


HELPER = """\
import torch
def mask(t):
    t[0] = 0.5
x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
h = torch.sigmoid(x)
mask(h)
h[1:].sum().backward()
"""


RIGHT = """
import torch
w = torch.nn.Parameter(torch.ones(3))
opt = torch.optim.Adam([w], lr=0.1)
for step in range(3):
    opt.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    opt.step()
    print(loss.item())
"""
NUMBERS = {
    "nothing": (RIGHT, False),
    "a finding": (RIGHT.replace("    opt.zero_grad()\n", ""), True),
    "an error": (RIGHT + "\nw += 1\n", True),
    "a gradient that is NaN": (RIGHT.replace("(w * w).sum()", "((w - w) ** 0.5).sum()"), True),
    "a way around the counter": (RIGHT.replace("    loss.backward", "    w.data.mul_(2)\n    loss.backward"), True),
    "a way that no trace tells of": (RIGHT.replace("    loss.backward", "    w.data_ptr()\n    loss.backward"), True),
    "memory of NumPy's without a name": (
        RIGHT + "\nimport numpy\nw.detach() * [torch.from_numpy(numpy.ones(3, 'f4'))][0]\n",
        True,
    ),
    "a counter kept from counting": (
        RIGHT.replace("    loss.backward", "    torch.autograd._unsafe_preserve_version_counter(w)\n    loss.backward"),
        True,
    ),
    "saved tensors packed": (
        RIGHT.replace("    loss =", "    torch.autograd.graph.saved_tensors_hooks\n    loss ="),
        True,
    ),
    "a rule that asks": (RIGHT + "\ncounts = torch.zeros(3, dtype=torch.int64)\ncounts.copy_(w.detach())\n", True),
}


@pytest.mark.parametrize("reason", NUMBERS)
def test_numbers_are_recorded_where_something_asks_for_them(
    reason: str, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, wanted = NUMBERS[reason]
    limits = []
    trace = shop.trace
    monkeypatch.setattr(
        shop, "trace", lambda *given, **named: limits.append(named.get("value_limit")) or trace(*given, **named)
    )
    recorded(shop, Subject(source, "program.py"))
    assert limits[0] == -1
    assert (len(limits) > 1) == wanted


def test_a_loop_whose_rounds_are_sampled_is_recorded_once_with_numbers(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, trace = [], shop.trace
    monkeypatch.setattr(
        shop, "trace", lambda *given, **named: limits.append(named.get("value_limit", 0)) or trace(*given, **named)
    )
    shop.every_round = False
    recorded(shop, Subject(RIGHT, "program.py"))
    assert limits == [0]


def test_after_a_long_loop_the_backward_that_ended_the_program_is_the_last_one(shop: Workshop) -> None:
    source = (
        "import torch\n"
        "\n"
        "def evaluate(net):\n"
        "    torch.set_grad_enabled(False)\n"
        "    return net(torch.ones(1, 2)).item()\n"
        "\n"
        "torch.manual_seed(0)\n"
        "net = torch.nn.Linear(2, 1)\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)\n"
        "for epoch in range(2):\n"
        "    for x in torch.randn(20, 4, 2):\n"
        "        loss = net(x).pow(2).mean()\n"
        "        opt.zero_grad()\n"
        "        loss.backward()\n"
        "        opt.step()\n"
        "    evaluate(net)\n"
    )
    subject = Subject(source, "program.py")
    shop.every_round = False
    trace = recorded(shop, subject)
    assert sum(event.name == "backward" for event in trace.events if event.kind == "call") < 20
    (finding,) = tried(shop, subject, trace)
    assert [fix.title.en for fix in finding.fixes] == ["Record no graph in `evaluate` alone: `@torch.no_grad()`"]


def test_a_module_beside_the_program_may_go_around_the_counter_too(shop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "clipping_of_mine.py").write_text("def clip(p):\n    p.data.clamp_(-0.5, 0.5)\n", encoding="utf-8")
    source = "from clipping_of_mine import clip\n" + RIGHT.replace(
        "    loss.backward", "    clip(w)\n    loss.backward"
    )
    path = tmp_path / "program.py"
    path.write_text(source, encoding="utf-8")
    assert [f.rule for f in find(recorded(shop, Subject(source, "program.py", str(path))))] == ["PL301"]


def test_a_write_that_a_later_line_relies_on_must_still_reach_it(shop: Workshop) -> None:
    """A copy inside ``mask`` would leave ``h`` as it was.

    The loss does not show it, but what ``h`` is afterwards does.
    """
    fix = Fix(T(en="copy", zh="副本"), (Edit(3, 3, "    t = t.clone()\n    t[0] = 0.5\n"),))
    trial, finding = examined(HELPER, shop)
    assert trial.ending(finding, fix) == ""
    assert trial.kept(finding)[0].edits[0].line == 5
    assert all(edit.line != 3 for f in trial.kept(finding) for edit in f.edits)


def test_a_write_that_no_later_line_relies_on_may_go(shop: Workshop) -> None:
    source = (
        "import torch\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "h = torch.tanh(x)\n"
        "y = torch.nn.ReLU(inplace=True)(h)\n"
        "y.sum().backward()\n"
    )
    trial, finding = examined(source, shop)
    assert trial.kept(finding)[0].edits[0].text == "y = torch.nn.ReLU()(h)\n"


def test_derivatives_inside_a_transform_are_no_obstacle_to_a_witness(shop: Workshop) -> None:
    text = "import torch\nfrom torch.func import grad, vmap\nx = torch.arange(3.0)\ny = vmap(grad(torch.sin))(x)\n"
    record = shop.witness(Subject(text, "program.py"))
    assert (record["error"], record["backwards"]) == (None, [])
    assert record["names"]["y"]["shape"] == [3]


def test_a_gradient_asked_for_with_keywords_is_witnessed(shop: Workshop) -> None:
    text = "import torch\nx = torch.ones((), requires_grad=True)\ntorch.autograd.grad(outputs=x * 3, inputs=x)\n"
    record = shop.witness(Subject(text, "program.py"))
    assert record["error"] is None
    assert [entry["results"][0]["numbers"][0] for entry in record["backwards"]] == [3.0]


def test_the_fix_of_a_warning_does_not_wait_for_another_mistakes_error(shop: Workshop) -> None:
    shapes = (
        "import torch\n"
        "w = torch.ones(3, 1, requires_grad=True)\n"
        "y = torch.ones(3)\n"
        "loss = torch.nn.functional.mse_loss(w * 2, y)\n"
    )
    source = f"{shapes}loss.backward()\nh = torch.sigmoid(w)\nh.mul_(2)\nh.sum().backward()\n"
    subject = Subject(source, "program.py")
    findings = {finding.name: finding for finding in tried(shop, subject, shop.trace(subject))}
    assert {name: bool(finding.fixes) for name, finding in findings.items()} == {
        "loss-broadcast": True,
        "saved-tensor-overwritten": True,
    }


CARRIED = """import torch
class Reader:
    def __init__(self):
        self.w = torch.tensor(0.5, requires_grad=True)
        self.h, self.c = torch.ones(()), torch.ones(())
    def window(self, x, h, c):
        c = torch.sigmoid(self.w * c) * x
        return h * self.w, torch.tanh(c) * self.w, c
    def learn(self, x):
        self.h, out, self.c = self.window(x, self.h, self.c)
        self.h = self.h.detach()
        out.backward()
reader = Reader()
for x in (1.0, 2.0):
    reader.learn(x)
"""


def test_a_state_that_an_object_keeps_under_another_name_is_cut_off(shop: Workshop) -> None:
    trial, finding = examined(CARRIED, shop)
    assert finding.rule == "PL502"
    assert any("self.c.detach()" in edit.text for fix in trial.kept(finding) for edit in fix.edits)
