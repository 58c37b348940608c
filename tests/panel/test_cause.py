"""What had been warned of has happened: the line under the failed cell, and Explain, name the tensor and
the cells as the warning did.
"""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook.magic import HINT
from tests.panel.notebook import Notebook

FORWARD = "net = nn.Linear(3, 2)\nh = net(torch.ones(4, 3)).sigmoid()\nloss = h.sum()"
SENTENCE = "`h` changed in In [3]; SigmoidBackward0 still holds v0 from In [2]: this is why `loss.backward()` failed."


@pytest.fixture
def failing(monkeypatch):
    """A notebook with the whole extension in it; what it shows is in ``shown``, and no traceback is drawn."""
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook = Notebook(whole=True)
    notebook.shown = []
    monkeypatch.setattr(
        notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: notebook.shown.append(data)
    )
    notebook.run("import torch\nfrom torch import nn")
    yield notebook
    notebook.close()


def hints(notebook):
    return [data[HINT] for data in notebook.shown if HINT in data]


def fail(notebook, text):
    assert not notebook.shell.run_cell(text, store_history=True, cell_id="d").success


def test_the_hint_names_the_tensor_and_the_cells_and_the_warning_changes_its_tense(failing):
    failing.run(FORWARD, "b")
    [warning] = failing.run("h.mul_(2)", "c")
    assert not warning["failed"]
    fail(failing, "loss.backward()")
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith(f"pitfall_lab: {SENTENCE} Make a new tensor")
    assert hint["rule"] == "PL101"
    [warning] = failing.page.last("warnings")["warnings"]
    assert (warning["failed"], warning["sentence"]["en"]) == (True, SENTENCE)
    # Explain: the failed cell again, recorded.
    fail(failing, "%%pitfall\nloss.backward()")
    [page] = [data["text/html"] for data in failing.shown if "text/html" in data]
    assert "SigmoidBackward0 still holds v0 from In [2]" in page.replace("<code>", "").replace("</code>", "")


def test_the_same_refusal_of_a_graph_that_the_cell_made_itself_is_not_taken_for_it(failing):
    failing.run(FORWARD, "b")
    assert failing.run("h.mul_(2)", "c")
    fail(failing, FORWARD + "\nh.mul_(2)\nloss.backward()")
    assert "still holds" not in hints(failing)[0]["text"]["en"]


def test_a_used_graph_that_was_warned_of(failing):
    failing.run("net = nn.Linear(3, 1)\nh = torch.zeros(1)", "a")
    failing.run("h = net(torch.ones(3)).tanh() + h\nloss = (h * h).sum()", "b")
    failing.run("loss.backward()", "c")
    [warning] = failing.run("h = net(torch.ones(3)).tanh() * h\nloss = (h * h).sum()", "b")
    assert warning["kind"] == "used-graph"
    fail(failing, "loss.backward()")
    assert "whose graph a backward has used: this is why `loss.backward()` failed" in hints(failing)[0]["text"]["en"]


UPDATE = (
    "def update(params):\n"
    "    with torch.no_grad():\n"
    "        for p in params:\n"
    "            p -= 0.1 * p.grad\n"
    "            p.grad.zero_()"
)


@pytest.mark.parametrize(
    ("made", "text", "words", "rule"),
    [
        (
            "w = torch.randn(3, requires_grad=True) * 0.01", "update([w])",
            "`w` is the result of MulBackward0 in In [4], not a leaf", "PL506",
        ),
        ("w = torch.randn(3)", "update([w])", "`w` does not require gradients, so no backward gives it one", "PL205"),
        ("w = torch.randn(3, requires_grad=True)\nu = torch.ones(3, requires_grad=True)\nnet = nn.Linear(3, 1)",
        "update([net.weight])", "`net.weight` requires gradients, but no backward has reached it", ""),
        ("w = torch.randn(3, requires_grad=True)\nu = w", "with torch.no_grad():\n    w = w - w.grad\nw.grad.norm()",
         "`w` does not require gradients", "PL205"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_gradient_that_is_none(failing, made, text, words, rule):
    failing.run("x = torch.ones(3)\n" + UPDATE, "a")
    failing.run("1 + 1", "b")
    failing.run(made, "c")
    if made != "w = torch.randn(3)":
        failing.run("loss = (w * x).sum()\nloss.backward()", "d")
    fail(failing, text)
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith(f"pitfall_lab: {words}")
    assert hint["rule"] == rule


def test_none_that_is_no_gradient_gets_no_hint(failing):
    failing.run("w = torch.ones(3, requires_grad=True)\nw.sum().backward()\nnone = None", "a")
    fail(failing, "none * w.grad")
    fail(failing, "0.1 * none")
    assert hints(failing) == []


def test_a_state_inside_a_module_is_named(failing):
    failing.run(
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.state = nn.LSTM(3, 4), None
    def forward(self, x):
        out, self.state = self.lstm(x, self.state)
        return out
net, x = Net(), torch.ones(5, 1, 3)""",
        "a",
    )
    fail(failing, "for _ in range(2):\n    loss = net(x).sum()\n    loss.backward()")
    [hint] = hints(failing)
    assert "`net.state[0]`" in hint["text"]["en"]
    assert "whose graph a backward has used" in hint["text"]["en"]


def test_a_tensor_that_inference_mode_has_made_is_named_with_its_cell(failing):
    failing.run("body, head = nn.Linear(3, 4), nn.Linear(4, 2)\nx = torch.ones(5, 3)", "a")
    failing.run("with torch.inference_mode():\n    features = body(x)", "b")
    failing.run("some = features[:3]", "c")
    fail(failing, "loss = head(some).sum()")
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith(
        "pitfall_lab: `some` comes from `with inference_mode` in In [3], and what inference mode has made"
    )
    assert "`torch.no_grad()` in place of `torch.inference_mode()` in In [3]" in hint["text"]["en"]
    assert hint["rule"] == "PL204"


def test_what_was_computed_once_from_a_trained_leaf_is_to_be_computed_anew(failing):
    failing.run(
        "temp = nn.Parameter(torch.tensor(1.0))\nnet, x = nn.Linear(4, 1), torch.randn(8, 4)\n"
        "opt = torch.optim.SGD([{'params': net.parameters()}, {'params': [temp]}], lr=0.1)"
    )
    failing.run("def mix(t):\n    return torch.softmax(-x @ x.T * t.exp(), 1)\nadj = mix(temp)\nadj.shape")
    failing.run("opt.zero_grad()\nloss = net(adj @ x).square().mean()\nloss.backward()\nopt.step()", "step")
    loop = "for _ in range(3):\n    opt.zero_grad()\n    loss = net(adj @ x).square().mean()\n    loss.backward()\n"
    fail(failing, loop + "    opt.step()")
    [hint] = hints(failing)
    assert "Compute `adj` anew in each step" in hint["text"]["en"]
    assert "would stop `temp` from learning" in hint["text"]["en"]
    assert "adj = adj.detach()" not in hint["text"]["en"]
    warning = next(each for each in failing.page.last("warnings")["warnings"] if each["kind"] == "used-graph")
    assert warning["explanation"]["en"].startswith(
        "`adj` was computed once, in In [3], from `temp`, which `opt` trains."
    )


def test_a_state_that_is_carried_from_step_to_step_is_still_to_be_detached(failing):
    failing.run("rnn = nn.GRUCell(2, 3)\nopt = torch.optim.SGD(rnn.parameters(), 0.1)\nh = torch.zeros(1, 3)")
    step = "h = rnn(torch.ones(1, 2), h)\nloss = h.sum()\nopt.zero_grad()\nloss.backward()\nopt.step()"
    failing.run(step, "step")
    fail(failing, step)
    assert "`h = h.detach()`" in hints(failing)[0]["text"]["en"]


@pytest.mark.parametrize(
    ("made", "asked", "words"),
    [
        (
            "net = nn.Sequential(nn.Embedding(len(vocab), 2), nn.Flatten())",
            "net(ids)",
            (
                "`ids` of In [5] go from 0 to 6, and `net.0.weight` of In [4] has 4 rows (0 to 3): this is why the "
                "lookup failed. In [4] made it for `len(vocab)`, and `vocab` has 7 entries now."
            ),
        ),
        (
            "table = torch.randn(5, 3)",
            "nn.functional.embedding(ids[:2] + 6, table)",
            "the numbers of the lookup go from 6 to 10, and `table` of In [4] has 5 rows (0 to 4)",
        ),
        (
            "bag = nn.EmbeddingBag(3, 2)",
            "bag(ids.reshape(1, -1))",
            "and `bag.weight` of In [4] has 3 rows (0 to 2): this is why the lookup failed. Make the",
        ),
    ],
)
def test_rows_that_a_table_does_not_have(failing, made, asked, words):
    failing.run(
        "vocab = {}\ndef encode(text):\n    return [vocab.setdefault(word, len(vocab)) for word in text.split()]"
    )
    failing.run("first = torch.tensor(encode('a b c d'))")
    failing.run(made)
    failing.run("ids = torch.tensor(encode('a e f g'))")
    fail(failing, asked)
    [hint] = hints(failing)
    assert words in hint["text"]["en"]
    assert hint["rule"] == "PLE12"
    assert "。" in hint["text"]["zh"]


HOOKED = """class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
    def forward(self, x):
        return self.inner(x).relu()
net = nn.Sequential(nn.Linear(3, 4), Block(), nn.Linear(4, 1))
x = torch.ones(5, 3)"""
NOTE = """def note(module, inputs, output):
    module.seen = output
hooks = [m.register_forward_hook(note) for m in net.modules() if isinstance(m, nn.Linear)]
net(x)
for hook in hooks:
    hook.remove()"""


@pytest.mark.parametrize(
    "copied",
    [
        "import copy\nbest = copy.deepcopy(net)",
        "from torch.optim.swa_utils import AveragedModel\naverage = AveragedModel(net)",
    ],
)
def test_a_tensor_with_a_graph_that_a_deepcopy_meets_in_a_module(failing, copied):
    failing.run(HOOKED, "a")
    failing.run(NOTE, "b")
    fail(failing, copied)
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith(
        "pitfall_lab: `net.0.seen`, and 2 more like it, is the result of AddmmBackward0 in In [3] with its graph"
    )
    assert "m.__dict__.pop('seen', None)" in hint["text"]["en"]
    assert hint["rule"] == "PLE31"
    failing.run("for m in net.modules(): m.__dict__.pop('seen', None)")  # what is proposed helps
    failing.run(copied)


def test_a_tensor_with_a_graph_that_a_deepcopy_meets_elsewhere(failing):
    failing.run("import copy\n" + HOOKED, "a")
    failing.run("record = {'n': 3, 'out': net(x)}")
    fail(failing, "kept = copy.deepcopy(record)")
    assert hints(failing)[0]["text"]["en"].startswith("pitfall_lab: `record['out']` is the result of AddmmBackward0 in")
    fail(failing, "kept = copy.deepcopy(net(x))")  # no name leads to it
    assert "graph leaves" not in hints(failing)[1]["text"]["en"]
    assert "with its graph" not in hints(failing)[1]["text"]["en"]


ROTARY = """class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None
    def forward(self, x):
        if self.table is None:
            angles = torch.arange(x.shape[-1]).float()
            self.table = {}
        cos, sin = [each[:x.shape[-1]] for each in self.table]
        return x * cos + x * sin
net, x = nn.Sequential(nn.Linear(3, 4), Rotary()), torch.ones(5, 3)"""


@pytest.mark.parametrize("kept", ["angles.cos(), angles.sin()", "[angles.cos(), angles.sin()]"])
@pytest.mark.parametrize(
    "first",
    [
        "with torch.inference_mode():\n    net(x)",
        "@torch.inference_mode()\ndef look():\n    return net(x)\nlook().mean().item()",
    ],
)
def test_what_a_module_has_kept_from_inference_mode_is_named_with_the_cell(failing, first, kept):
    failing.run(ROTARY.format(kept), "a")
    failing.run(first, "b")
    failing.run("1 + 1", "c")
    fail(failing, "net(x).sum().backward()")
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith("pitfall_lab: `net[1].table[0]` was made in inference mode, in In [3]")
    assert "`net[1].table = None`" in hint["text"]["en"]
    assert "In [3]" in hint["text"]["zh"]
    failing.run("net[1].table = None\nnet(x).sum().backward()", "d")  # what the fix says


def test_what_inference_mode_has_made_is_named_where_a_function_reads_it_that_is_handed_on(failing):
    failing.run("body, head, x = nn.Linear(3, 4), nn.Linear(4, 2), torch.ones(5, 3)", "a")
    failing.run("@torch.inference_mode()\ndef embed(x):\n    return body(x)\nZ = embed(x)", "b")
    failing.run(
        "opt = torch.optim.LBFGS(head.parameters())\n"
        "def closure():\n    opt.zero_grad()\n    loss = head(Z).sum()\n    loss.backward()\n    return loss",
        "c",
    )
    fail(failing, "opt.step(closure)")
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith("pitfall_lab: `Z` comes from `@inference_mode` in In [3]")


def test_a_dict_that_keeps_what_inference_mode_has_made(failing):
    failing.run("net, x, kept = nn.Linear(3, 4), torch.ones(5, 3), {}", "a")
    failing.run("with torch.inference_mode():\n    kept['mean'] = x.mean(0)", "b")
    fail(failing, "def centred(x):\n    mean = kept['mean']\n    return net.weight * mean\ncentred(x)")
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith("pitfall_lab: `kept['mean']` was made in inference mode, in In [3]")


SCHEDULE = (
    "net = nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
    "sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=12)"
)
STEPS = "for _ in range({}):\n    opt.step(); sched.step()"


@pytest.mark.parametrize(
    ("before", "last", "said"),
    [
        ([12], 12, "In [3] had already taken 12 of the 12 steps of `sched` (OneCycleLR), and none was left for this"),
        ([4, 5], 12, "In [3], In [4] had already taken 9 of the 12 steps of `sched` (OneCycleLR), and 3 were left"),
        ([0], 13, None),
    ],
)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_the_cells_that_have_used_up_the_steps_of_a_schedule_are_named(failing, before, last, said):
    failing.run(SCHEDULE, "a")
    for count in before:
        failing.run(STEPS.format(count))
    fail(failing, STEPS.format(last))
    [hint] = hints(failing)
    assert (said is None) is ("had already taken" not in hint["text"]["en"])
    assert said is None or hint["text"]["en"].startswith(f"pitfall_lab: {said}")
    assert said is None or "Run In [2] again, which makes `sched` anew" in hint["text"]["en"]
    failing.run(SCHEDULE, "a")  # the same name, from its first step on
    failing.run(STEPS.format(12))


@pytest.mark.parametrize(
    ("convert", "also"),
    [
        ("slim = net.to(torch.bfloat16)", " (`slim` is the same module)"),
        ("net.double()", ""),
        ("def small(m):\n    return m.half()\nfirst = second = small(net)", " (`first`, `second` are the same module)"),
    ],
)
def test_the_cell_that_has_converted_a_module_is_named(failing, convert, also):
    failing.run("net, x = nn.Sequential(nn.Linear(3, 1)), torch.ones(2, 3)\ndef loss():\n    return net(x).sum()", "a")
    failing.run("loss().item()", "b")
    failing.run(convert, "c")
    failing.run("1 + 1", "d")
    fail(failing, "loss().backward()")
    [hint] = hints(failing)
    assert hint["text"]["en"].startswith("pitfall_lab: In [4] converted `net` from float32 to ")
    assert f"{also}, and this cell gives it another number type" in hint["text"]["en"]
    failing.run("net.to(torch.float32)\nloss().backward()", "e")


def test_a_module_that_has_always_had_its_type_is_not_said_to_be_converted(failing):
    failing.run("net, x = nn.Linear(3, 1).double(), torch.ones(2, 3)", "a")
    fail(failing, "net(x).sum().backward()")
    assert "converted" not in hints(failing)[0]["text"]["en"]
