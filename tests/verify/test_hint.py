"""Under the traceback of a cell that torch refused stand two short lines: what the error means, and
how to see where it came from.
"""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook import fix_runs, magic
from pitfall_lab.notebook.hint import KNOWN, changed, hint
from pitfall_lab.rules import RULES
from pitfall_lab.rules.refusals import FAMILIES
from pitfall_lab.rules.refusals.short import SHORT

X = "x = torch.ones(3, requires_grad=True)\n"
ERRORS = {
    "has been modified by": X + "h = x.exp()\nh += 1\nh.sum().backward()",
    "leaf Variable": X + "x += 1",
    "second time": X + "y = x.exp().sum()\ny.backward()\ny.backward()",
    "does not require grad and": "torch.ones(1).backward()",
    "only for scalar": X + "(x * 2).backward()",
    "is a view and is being": X + "a, b = (x * 1).split(1)[:2]\na += 1",
    "A view was created in": X + "with torch.no_grad():\n    v = x[:1]\nv += x[:1]",
    "Inference tensors": X + "with torch.inference_mode():\n    i = torch.ones(3)\nx * i",
    "not have been used": X + "torch.autograd.grad((x * 2).sum(), torch.ones(1, requires_grad=True))",
    "must match the size": "torch.ones(3) + torch.ones(4)",
    "view size": "torch.ones(2, 3).t().view(6)",
    "broadcast shape": "torch.ones(3).add_(torch.ones(2, 3))",
    "single memory location": "torch.ones(1).expand(3).add_(1)",
    "can't be cast": "torch.ones(2, dtype=torch.int64).add_(0.5)",
    "requires_grad flags": X + "(x * 2).requires_grad_(False)",
    "floating point": "torch.tensor([1, 2], requires_grad=True)",
    "non-leaf Tensor": X + "torch.optim.SGD([x * 2], lr=0.1)",
}


def raised(text: str) -> BaseException:
    try:
        exec(text, {"torch": __import__("torch")})
    except Exception as error:
        return error
    raise AssertionError(text)


@pytest.mark.parametrize("known", KNOWN, ids=lambda k: k.words[:30])
def test_what_torch_says_is_recognised(known):
    (text,) = [text for key, text in ERRORS.items() if key in known.words]
    error = raised(text)
    assert next(each for each in KNOWN if each.words in str(error)) is known
    for language in ("en", "zh"):
        lines = hint(error, text).text.say(language).split("\n")
        assert len(lines) == 2
        assert known.means.say(language) in lines[0]
        assert "%%pitfall" in lines[1]


def test_a_hint_points_to_rules_that_there_are():
    assert {known.rule for known in KNOWN} <= {rule.code for rule in RULES} | {family.code for family in FAMILIES}


@pytest.mark.parametrize(
    "text",
    [
        "1 / 0",
        "{}['a']",
        "raise RuntimeError('my own')",
        "import nothing_there",
        "raise ValueError('shape')",
        "[1][3]",
        "().pop",
    ],
)
def test_an_error_that_is_not_torchs_gets_no_hint(text):
    assert hint(raised(text), text) is None


CATALOGUE = {
    "PLE01": "torch.ones(2, 3) @ torch.ones(2, 3)",
    "PLE31": X + "x.numpy()",
    "PLE23": (
        "raise RuntimeError('Expected all tensors to be on the same device, but found at least two "
        "devices, cuda:0 and cpu!')"
    ),
}


@pytest.mark.parametrize("code", CATALOGUE)
def test_what_no_rule_is_about_is_said_by_the_catalogue(code):
    found = hint(raised(CATALOGUE[code]), CATALOGUE[code])
    assert found.rule == code
    assert found.text.en.count("\n") == found.text.zh.count("\n") == 1
    assert f"explain {code}" in found.text.en.splitlines()[0]


def test_another_error_from_inside_torch_is_not_explained_but_can_be_looked_at():
    text = "torch.nn.Module().get_submodule('a.b')"
    assert hint(raised(text), text).text.en.startswith("pitfall_lab: this error comes from inside torch.\n")


def test_the_page_gets_both_languages_and_the_cell_and_other_front_ends_the_text(shell, monkeypatch):
    shell.run_line_magic("load_ext", "pitfall_lab")
    published = []
    monkeypatch.setattr(shell.display_pub, "publish", published.append)
    shell.run_cell("x.sum().item().backward()", cell_id="mine")
    shell.run_cell("g = torch.sigmoid(x)\ng.mul_(2)\ng.sum().backward()", cell_id="mine")
    data = published[-1]
    under = data[magic.HINT]
    assert "put %%pitfall on the first line" in data["text/plain"]
    assert under["text"]["en"] == (
        "pitfall_lab: a line overwrote numbers that backward still needed. To see where it came from, run the cell "
        "again; it can be run again as it is."
    )
    assert (under["version"], under["rule"], under["cell"]) == (1, "PL101", "mine")
    assert "反向传播" in under["text"]["zh"]


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("h = x.exp()\nh += 1\nh.sum().backward()", []),
        ("h += 1", ["h"]),
        ("w[0] = 1", ["w"]),
        ("model.weight.data.zero_()", ["model"]),
        ("opt.step()", ["opt"]),
        ("x = x * 2", ["x"]),
        ("for a in xs:\n    total += a", ["total"]),
        ("for _ in range(2):\n    h = x.exp()\n    h += 1\n    opt.step()", ["opt"]),
        ("with open('f') as f:\n    f.seek_(0)", []),
        ("def f():\n    h.mul_(2)", []),
        ("y = (", []),
    ],
)
def test_it_says_what_the_cell_would_find_changed(cell, names):
    assert changed(cell) == names


@pytest.fixture
def shell(monkeypatch):
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    monkeypatch.setattr(fix_runs.Bench, "warm", lambda self: None)
    shell.run_cell("import torch\nx = torch.ones(3, requires_grad=True)\nh = torch.sigmoid(x)")
    yield shell
    if getattr(shell, "_pitfall_lab", None) is not None:
        magic.unload_ipython_extension(shell)
    InteractiveShell.clear_instance()


def test_the_hint_stands_below_the_traceback_and_leaves_it_alone(shell, capsys):
    cell = "g = torch.sigmoid(x)\ng.mul_(2)\ng.sum().backward()"
    shell.run_cell(cell)
    without = capsys.readouterr().out
    shell.run_line_magic("load_ext", "pitfall_lab")
    shell.run_cell(cell)
    with_hint = capsys.readouterr().out
    traceback, _, below = with_hint.partition("pitfall_lab: ")
    assert traceback.count("\n") == without.count("\n")
    assert traceback.splitlines()[-1] == without.splitlines()[-1]
    assert below.count("\n") == 2
    assert "explain PL101" in below
    assert "run again as it is" in below


def test_a_cell_that_changed_what_it_starts_from_is_told_to_make_that_again(shell, capsys):
    shell.run_line_magic("load_ext", "pitfall_lab")
    shell.run_cell("h.mul_(2)\nh.sum().backward()")
    assert "what makes `h`" in capsys.readouterr().out


@pytest.mark.parametrize(
    "cell",
    ["gate.mul_(2)", "%%pitfall\ngate.mul_(2)", "def f():\n    return gate\nf()", "def f():\n    gate = 1\ngate"],
)
def test_a_name_that_no_cell_has_made_yet_sends_to_the_cells_above(cell, shell, capsys, monkeypatch):
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    shell.run_line_magic("load_ext", "pitfall_lab")
    shell.run_cell(cell)
    said = capsys.readouterr().out
    assert "nothing is called `gate` in this kernel yet" in said
    assert said.index("NameError") < said.index("run the cells above first")


@pytest.mark.parametrize("cell", ["late\nlate = 1", "def f():\n    n += 1\nf()", "raise NameError('mine')"])
def test_a_name_that_the_cell_itself_makes_too_late_gets_no_hint(cell):
    assert hint(raised(cell), cell) is None


@pytest.mark.parametrize("cell", ["1 / 0", "y = x + 1", "y = = 1", "%%pitfall\nh.mul_(2)\nh.sum().backward()"])
def test_other_cells_get_no_hint(cell, shell, capsys, monkeypatch):
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    shell.run_line_magic("load_ext", "pitfall_lab")
    shell.run_cell(cell)
    assert "pitfall_lab: " not in capsys.readouterr().out


@pytest.mark.parametrize("family", [each for each in FAMILIES if each.cases], ids=lambda family: family.code)
def test_each_family_has_a_short_sentence_of_its_own(family):
    said = SHORT[family.code]
    assert said.en not in family.what.en
    for language, stops in (("en", "."), ("zh", "。")):
        text = said.say(language)
        assert text.endswith(stops)
        assert len(text) <= 160
        assert not text.startswith(family.what.say(language)[:20])


#: Errors for which the sentence of the whole family would be too general: what is said, and
#: a call that torch refuses so.
EXACTLY = {
    "a class number is -1,": "torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, -1]))",
    "a class number is 7,": "torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 7]))",
    "a class number is negative": "torch.nn.functional.one_hot(torch.tensor([4]), 3)",
    "an embedding was given the number": "torch.nn.functional.embedding(torch.tensor([9]), torch.ones(3, 2))",
    "the position is 3, and dimension 0 has 3": "torch.ones(3)[3]",
    "the mask, or the number": "torch.ones(3)[torch.ones(2).bool()]",
    "numbers of two types meet here, float and double": "torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3).double())",  # noqa: E501
    "numbers of two types meet here, Double and Float": "torch.nn.Linear(3, 4)(torch.ones(2, 3).double())",
    "numbers of two types meet here, double and float": "torch.nn.Conv1d(1, 1, 1)(torch.ones(1, 1, 3).double())",
    "numbers of type Float are needed here, and these are Double": "torch.bmm(torch.ones(1, 2, 2), torch.ones(1, 2, 2).double())",  # noqa: E501
    "this call does not work with numbers of type Long": "torch.histc(torch.tensor([1, 2]))",
    "`-` does not work with truth values": "torch.ones(2).bool() - torch.ones(2).bool()",
    "a normalization in training mode": "torch.nn.BatchNorm1d(3)(torch.ones(1, 3))",
    "the input of `binary_cross_entropy`": "torch.nn.functional.binary_cross_entropy(torch.ones(2) * 3, torch.ones(2))",
    "this matrix cannot be inverted": "torch.linalg.inv(torch.zeros(2, 2))",
    "the optimizer got no parameters": "torch.optim.SGD([], 0.1)",
    "there is not enough memory": "torch.empty(1 << 46)",
    "a `Linear` has no attribute `nothing`": "torch.nn.Linear(2, 2).nothing",
    "the layer was built for another number": "torch.nn.functional.conv2d(torch.ones(1, 2, 5, 5), torch.ones(4, 3, 3, 3))",  # noqa: E501
    "the loss was given predictions and targets": "torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1, 2]))",  # noqa: E501
    "the new shape has another number": "torch.ones(2, 3).view(4, 2)",
    "one number is needed here": "bool(torch.ones(2))",
}


@pytest.mark.parametrize("words", EXACTLY)
def test_the_line_below_a_traceback_is_about_this_error(words):
    found = hint(raised(EXACTLY[words]), EXACTLY[words])
    assert found.text.en.startswith(f"pitfall_lab: {words}")
    assert "{" not in found.text.en + found.text.zh
