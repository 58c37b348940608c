"""The one picture of a finding, its slice and its names: what is cut out of the trace of a
real program, and nothing else.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from pitfall_lab import rules, views
from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules.kit.expected_marks import plain
from pitfall_lab.trace import Part, Source, Trace
from pitfall_lab.verify import trace_program
from pitfall_lab.views.display_names import names
from pitfall_lab.views.finding_pictures import _seen
from pitfall_lab.views.label_history import gather
from pitfall_lab.views.makers import makers
from tests.views import build
from tests.views.twelve import FOLDER as TWELVE

SAVED = """import torch
x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
h = torch.sigmoid(x)
gate = h * 2
h.mul_(10)
(gate + h).sum().backward()
"""
TWICE = """import torch
w = torch.tensor([1.0, -1.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for x in (torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0]), torch.tensor([3.0, 1.0])):
    ((w * x).sum() - 3).square().backward()
    opt.step()
"""
TABLE = """import torch
import torch.nn.functional as F
x = torch.tensor([[0.0], [1.0], [2.0], [4.0]])
target = torch.tensor([1.0, 3.0, 5.0, 2.0])
w = torch.tensor([[2.0]], requires_grad=True)
prediction = x @ w + 1
loss = ((target - prediction) ** 2).mean()
loss.backward()
"""
CUT = """import torch
from torch import nn
torch.manual_seed(0)
encoder, decoder = nn.Linear(3, 2), nn.Linear(2, 3)
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
x = torch.randn(4, 3)
for _ in range(2):
    code = encoder(x).detach()
    loss = ((decoder(code) - x) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
KEPT = """import torch
from torch import nn
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
best = model.state_dict()
model(torch.ones(3, 2)).sum().backward()
opt.step()
model.load_state_dict(best)
"""


@cache
def story(program: str, rule: str) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()):
        trace = trace_program(program)
    found = rules.find(trace)
    return next(one for one in views.scene(trace, found)["stories"] if one["rule"] == rule)


def test_saved_changed_needed_stand_along_time_with_the_node_that_kept_it():
    picture = story(SAVED, "PL101")["picture"]
    moments = picture["moments"]
    assert [(one["role"], one["place"]["en"], one["code"]) for one in moments] == [
        ("saved", "line 3", "h = torch.sigmoid(x)"),
        ("changed", "line 5", "h.mul_(10)"),
        ("raised", "line 6", "(gate + h).sum().backward()"),
    ]
    memory = [one["memory"][0] for one in moments]
    assert [(one["names"], one["version"], one["changed"]) for one in memory] == [
        (["h"], 0, False),
        (["h"], 1, True),
        (["h"], 1, False),
    ]
    assert memory[1]["cells"] == pytest.approx([10 * cell for cell in memory[0]["cells"]])
    keeper = picture["keeper"]
    assert (keeper["name"], keeper["slot"], keeper["from"], keeper["to"]) == ("SigmoidBackward0", "result", 0, 2)
    assert (keeper["expected"], keeper["found"]) == (0, 1)


def test_the_writes_of_one_statement_are_one_moment_and_a_call_is_none():
    text = SAVED.replace("h.mul_(10)", "h.mul_(2).add_(1)")
    moments = story(text, "PL101")["picture"]["moments"]
    assert [(one["role"], one["line"]) for one in moments] == [("saved", 3), ("changed", 5), ("raised", 6)]
    inside = (
        "import torch\ndef squash(x):\n    h = torch.sigmoid(x)\n    h.mul_(10)\n    return h\n"
        "x = torch.ones(3, requires_grad=True)\ny = squash(x)\ny.sum().backward()\n"
    )
    told = story(inside, "PL101")
    assert [one["line"] for one in told["picture"]["moments"]] == [3, 4, 8]
    called = [beat for beat in told["beats"] if beat["title"]["en"] == "called here"]
    assert {beat["line"] for beat in called} <= {7}
    assert not [one for one in told["picture"]["moments"] if one["code"].startswith("…")]


def test_a_gradient_grows_by_what_flows_in():
    picture = story(TWICE, "PL601")["picture"]
    assert (picture["kind"], picture["name"], picture["cleared"]) == ("sum", "w", True)
    first, second = picture["rounds"][:2]
    assert first["before"] is None
    assert second["before"] == first["after"]
    assert second["after"] == pytest.approx([a + b for a, b in zip(second["before"], second["flowed"], strict=True)])


LATER = """import torch
class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(9, 40), torch.nn.Linear(40, 1)])
    def forward(self, x):
        return self.layers[1](torch.tanh(self.layers[0](x)))
encoder = Deep()
first, opt = torch.ones(4, 9), torch.optim.SGD(encoder.parameters(), lr=0.1)
for turn in range(2):
    for part in range(3):
        encoder(first * (part + 1)).pow(2).mean().backward()
    encoder(first * 5).mean().backward()
    opt.step()
"""


def test_of_many_backwards_the_picture_begins_with_the_one_before_the_finding():
    found = story(LATER, "PL601")
    picture = found["picture"]
    assert picture["rounds"][1]["step"] == found["step"]
    assert picture["first"] == 3
    assert picture["left"] + len(picture["rounds"]) == 8
    before, flowed, after = (dict(picture["rounds"][1][part]["shown"]) for part in ("before", "flowed", "after"))
    assert flowed
    assert all(after[at] == pytest.approx(before[at] + flowed[at], rel=1e-3, abs=1e-5) for at in flowed)


def test_two_shapes_make_a_table_and_the_meant_number_stands_beside_the_one_that_came():
    picture = story(TABLE, "PL401")["picture"]
    assert (picture["column"]["name"], picture["column"]["shape"]) == ("prediction", [4, 1])
    assert (picture["row"]["name"], picture["row"]["shape"]) == ("target", [4])
    predicted, target = [1.0, 3.0, 5.0, 9.0], [1.0, 3.0, 5.0, 2.0]
    assert picture["cells"] == [[t - p for t in target] for p in predicted], "as the program subtracts them"
    assert picture["came"] == pytest.approx(sum((t - p) ** 2 for t in target for p in predicted) / 16)
    assert picture["meant"] == pytest.approx(sum((t - p) ** 2 for t, p in zip(target, predicted, strict=True)) / 4)


@pytest.mark.parametrize("rows", [13, 32, 200])
def test_a_real_batch_has_both_numbers_too(rows):
    program = TABLE.replace("torch.tensor([[0.0], [1.0], [2.0], [4.0]])", f"torch.linspace(0, 1, {rows})[:, None]")
    program = program.replace("torch.tensor([1.0, 3.0, 5.0, 2.0])", f"3 * torch.linspace(0, 1, {rows})")
    found = story(program, "PL401")
    x = [at / (rows - 1) for at in range(rows)]
    every = sum((3 * t - 2 * p - 1) ** 2 for t in x for p in x) / rows**2
    own = sum((t - 1) ** 2 for t in x) / rows
    assert (found["picture"]["kind"], found["picture"]["count"]) == ("table", rows)
    assert found["picture"]["came"] == pytest.approx(every, rel=1e-4)
    assert found["picture"]["meant"] == pytest.approx(own, rel=1e-4)
    assert f"({every:.4g} comes out, {own:.4g} was meant)" in found["message"]["en"]


def test_the_way_from_the_loss_ends_at_the_cut_and_names_what_is_never_reached():
    picture = story(CUT, "PL504")["picture"]
    assert (picture["kind"], picture["root"]) == ("path", "loss")
    assert [chip["name"] for chip in picture["chips"]] == [
        "MeanBackward0",
        "PowBackward0",
        "SubBackward0",
        "AddmmBackward0",
    ]
    assert "detach()" in picture["cut"]["code"]
    assert picture["lost"] == ["encoder.weight", "encoder.bias"]


BESIDE = """import torch
from torch import nn
trunk, kind, size = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 1)
opt = torch.optim.SGD([*trunk.parameters(), *kind.parameters(), *size.parameters()], lr=0.1)
for turn in range(2):
    features = trunk(torch.ones(5, 3))
    total = kind(features).square().mean() + float(size(features).square().mean().detach())
    opt.zero_grad()
    total.backward()
    opt.step()
"""


def test_what_another_term_of_the_loss_reaches_is_not_called_unreached():
    picture = story(BESIDE, "PL504")["picture"]
    assert picture["lost"] == ["size.weight", "size.bias"]
    assert picture["more"] == 0


SOFTMAX = """import torch
scores = torch.tensor([[0.0, 1.0, 2.0], [2.0, 0.0, 1.0]], requires_grad=True)
weights = torch.softmax(scores, dim=0)
(weights @ torch.ones(3, 2)).sum().backward()
"""


def test_a_softmax_along_the_wrong_axis_is_a_table_with_the_axis_that_adds_up_and_the_one_that_is_used():
    picture = story(SOFTMAX, "PL408")["picture"]
    assert (picture["kind"], picture["name"], picture["shape"]) == ("axes", "weights", [2, 3])
    assert (picture["along"], picture["used"]) == (0, 1)
    assert (picture["made"]["line"], picture["then"]["line"]) == (3, 4)
    cells = picture["cells"]
    assert [sum(row[c] for row in cells) for c in range(3)] == pytest.approx([1, 1, 1])
    assert all(sum(row) != pytest.approx(1) for row in cells)


def test_of_a_large_softmax_no_number_is_shown_that_was_not_seen():
    program = SOFTMAX.replace(
        "torch.tensor([[0.0, 1.0, 2.0], [2.0, 0.0, 1.0]], requires_grad=True)", "torch.randn(4, 9).requires_grad_()"
    )
    picture = story(program.replace("ones(3", "ones(9"), "PL408")["picture"]
    assert (picture["kind"], picture["shape"], picture["cells"]) == ("axes", [4, 9], None)


IN_A_METHOD = """import torch
def gate(x):
    x *= 2
    return x
h = torch.sigmoid(torch.ones(3, requires_grad=True))
gate(h).sum().backward()
"""


def test_a_card_has_the_name_that_its_own_line_writes():
    moments = story(IN_A_METHOD, "PL101")["picture"]["moments"]
    names = {one["line"]: one["memory"][0]["names"] for one in moments}
    assert names[3] == ["h", "x"]
    assert names[5] == ["h"]


SELECTED = """import torch
places = torch.stack([torch.tensor([0, 1]), torch.tensor([1, 1])])
counts = torch.zeros(2)
first, second = places
counts[second] += torch.ones(2)
print(counts)
"""


def test_positions_have_the_name_and_the_shape_of_the_line():
    moments = story(SELECTED, "PL720")["picture"]["moments"]
    shown = {name: one["shape"] for moment in moments for one in moment["memory"] for name in one["names"]}
    assert shown["counts"] == [2]
    assert shown["second"] == [2]
    assert "places" not in shown


VIEWED = """import torch
rows = torch.nn.Conv2d(1, 2, 2)(torch.ones(1, 1, 3, 3)).flatten(2)
keep = torch.tensor([[True, False]])
rows[keep].zero_()
print(rows)
"""


@pytest.mark.parametrize(
    ("text", "name", "shape"),
    [(VIEWED, "rows", [1, 2, 4]), ((TWELVE / "vit.py").read_text("utf-8"), "tokens", [8, 16, 16])],
)
def test_a_name_has_the_shape_of_its_tensor_and_not_that_of_what_it_is_a_view_of(text, name, shape):
    drawn = story(text, "PL707")["picture"]
    shapes = {m["names"][0]: m["shape"] for moment in drawn["moments"] for m in moment["memory"]}
    assert shapes[name] == shape


def test_names_on_one_memory_stand_before_and_after_the_write():
    moments = story(KEPT, "PL703")["picture"]["moments"]
    before, after = (
        next(one for one in moments if one["title"]["en"] == title)["memory"][0] for title in ("kept", "changed")
    )
    assert before["names"] == after["names"] == ["model.weight", 'best["weight"]']
    assert before["cells"] != after["cells"]


def test_the_slice_and_its_graph_hold_saver_and_writer_side_by_side_in_any_size():
    found = story(SAVED, "PL101")
    assert len(found["slice"]["storages"]) == 1
    titles = [card["title"] for card in found["graph"]["nodes"]]
    assert {"SigmoidBackward0", "MulBackward0", "SumBackward0", "⋯"} <= set(titles)
    places = [(card["x"], card["y"]) for card in found["graph"]["nodes"]]
    assert len(set(places)) == len(places)


def test_everything_has_a_name_of_the_programs():
    with contextlib.redirect_stdout(io.StringIO()):
        called = names(gather(trace_program(CUT)))
    assert not {label for label, name in called.items() if label == name}, "no label is a name"
    for name in (
        "encoder.weight",
        "decoder.weight.grad",
        "decoder.bias.grad",
        "momentum of decoder.weight",
        "loss",
        "decoder(code) - x",
    ):
        assert name in called.values(), name


def test_a_number_that_a_node_saved_is_not_the_tensor_that_is_drawn():
    """``y * 2`` keeps the 2, and what is drawn above its bar is ``y``."""
    program = "import torch\nx = torch.ones(1, requires_grad=True)\ny = x * 2\ny.sum().backward()\ny.sum().backward()\n"
    picture = story(program, "PL501")["picture"]
    assert picture["keeper"]["slot"] is None
    assert [one["names"] for one in picture["moments"][0]["memory"]] == [["y"]]
    kept = story(program.replace("x * 2", "x.exp()"), "PL501")["picture"]
    assert kept["keeper"]["slot"] == "result"


MOMENTUM = """import torch
from torch import nn

layer = nn.Linear(3, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    optimizer.zero_grad()
    layer(torch.ones(2, 3)).sum().backward()
    optimizer.step()
"""


def test_the_momentum_is_called_so_and_the_memory_of_the_gradient_is_not():
    """Torch clones a detached gradient: the clone is the buffer, and what is detached is the gradient."""
    facts = gather(trace_program(MOMENTUM))
    called = names(facts)
    for parameter in ("layer.weight", "layer.bias"):
        for name in (f"momentum of {parameter}", f"{parameter}.grad"):
            storages = {facts.tensor(label)["storage"] for label in facts.tensors if called[label] == name}
            assert [called[storage] for storage in storages] == [name] * len(storages)
            assert storages, name


NORM = """import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.ones(4, 3)).sum().backward()
    optimizer.step()
"""


def test_what_a_norm_and_an_optimizer_keep_is_named_by_what_it_is_of():
    called = set(names(gather(trace_program(NORM))).values())
    assert {"running_mean of net[1]", "running_var of net[1]", "mean square of net[0].weight"} <= called
    assert not [name for name in called if name.count(" of ") > 1]


def test_a_small_memory_of_a_finding_has_a_band_among_many_large_ones():
    many = "kept = [torch.ones(100) for _ in range(80)]\n"
    trace = trace_program(
        f"import torch\n{many}x = torch.ones(2, requires_grad=True)\nh = x.exp()\nh.mul_(2)\nh.sum().backward()\n"
    )
    scene = views.scene(trace, rules.find(trace))
    [story] = scene["stories"]
    assert set(story["slice"]["storages"]) <= {band["id"] for band in scene["memory"]["bands"]}
    assert scene["memory"]["others"] > 0


CACHED = """import torch
import torch.nn.functional as F
k = torch.randn(1, 2, 12, 4)
q = torch.randn(1, 2, 2, 4)
print(F.scaled_dot_product_attention(q, k, k, is_causal=True))
"""
LOOKS = {
    "PL409": ["++xx", "+++x"],
    "PL420": ["oxx", "oox", "ooo"],
    "PL424": ["ooox", "ooxx"],
    "PL428": ["+xx", "++x", "+++"],
    "PL430": ["+xxxx", "++xxx", "+++xx", "++++x", "+++++"],
    "PL450": ["++++", "++xx"],
    "PL466": ["+ooooo"],
}
PAIRS = {
    "PL416": ["[0, 1]", "[0, 1]", "[1, 0]"],
    "PL418": ["1", "3", "1"],
    "PL436": ["0", "1", "0"],
    "PL438": ["0, 1", "1", "0"],
    "PL440": ["0", "4", "0"],
    "PL447": ["0", "4", "1"],
    "PL456": ["0", "4", "1"],
    "PL976": ["0 … 4", "4", "5"],
}


@pytest.mark.parametrize("code", LOOKS)
def test_of_an_attention_it_is_drawn_who_looks_at_what_and_should(code):
    picture = story(plain(next(rule.bad for rule in rules.RULES if rule.code == code)), code)["picture"]
    assert picture["kind"] == "looks"
    assert picture["cells"] == LOOKS[code]
    assert picture["of"] == (len(picture["rows"]), len(picture["columns"]))
    assert picture["places"][-1]["code"]


def test_of_many_positions_the_first_and_the_last_are_drawn():
    picture = story(CACHED, "PL466")["picture"]
    assert picture["of"] == (2, 12)
    assert picture["columns"] == [0, 1, 2, 3, 4, 5, 6, 11]
    assert picture["cells"] == ["+oooooo.", "++oooooo"], "the first query is the last but one of 12"


@pytest.mark.parametrize("code", PAIRS)
def test_of_rows_that_meet_wrongly_those_that_belong_together_are_said(code):
    picture = story(plain(next(rule.bad for rule in rules.RULES if rule.code == code)), code)["picture"]
    assert picture["kind"] == "pairs"
    assert next(row for row in picture["rows"] if row[1] != row[2]) == PAIRS[code]
    assert len(picture["rows"]) <= 6


@pytest.mark.parametrize("size", [6, 64])
def test_rows_that_were_shuffled_apart_are_named_as_far_as_their_numbers_are_known(size):
    text = plain(next(rule.bad for rule in rules.RULES if rule.code == "PL414")).replace("6", str(size))
    picture = story(text, "PL414")["picture"]
    assert [head["en"] for head in picture["heads"]] == ["row of `x`", "row of `y`"]
    torch.manual_seed(0)
    torch.randn(size, 2)
    torch.nn.Linear(2, 1)
    orders = torch.randperm(size).tolist(), torch.randperm(size).tolist()
    met = [[str(one), str(other), str(one)] for one, other in zip(*orders, strict=True)]
    assert picture["rows"] == met[:6]
    assert picture["more"] == size - 6


def test_a_row_of_padding_is_drawn_beside_the_zeros_that_it_should_hold():
    picture = story(plain(next(rule.bad for rule in rules.RULES if rule.code == "PL907")), "PL907")["picture"]
    [(row, holds, meant)] = picture["rows"]
    assert (row, meant) == ("0", "[0, 0]")
    assert holds.startswith("[")
    assert "0, 0" not in holds


def test_a_damaged_finding_costs_only_its_picture():
    trace = build.overwritten()
    facts = [{"name": "node", "value": "n1"}, {"name": "storage", "value": "S99"}]
    finding = {"rule": "PL101", "related": [{"role": "saved", "step": 1}], "facts": facts}
    told = views.scene(trace, [finding])["stories"][0]
    assert [one["memory"] for one in told["picture"]["moments"]] == [[]]
    assert told["beats"]


def test_where_an_argument_was_changed_its_numbers_are_shown_before_and_after():
    with Workshop() as shop:
        trace = shop.trace(Subject(rules.rule("PL711").bad, "program.py"))
    (drawn,) = views.scene(trace, rules.find(trace))["stories"]
    moments = drawn["picture"]["moments"]
    shown = [(one["line"], one["memory"][0]["cells"], one["memory"][0]["changed"]) for one in moments]
    assert shown == [(11, [1, 2], False), (5, [1.5, 1.5], True), (11, [1.5, 1.5], False)]
    assert "clean" in moments[2]["memory"][0]["names"], "the last card says the name that its line says"


ROUNDED = """import torch
w = torch.tensor([0.3, 1.7], requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    loss = (torch.round(w * 2) - 1).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_gradient_that_becomes_zero_is_no_graph_that_ends():
    assert story(ROUNDED, "PL513")["picture"]["ends"] is False


ROUNDED = """import torch
torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = torch.round(net(torch.randn(4, 3))).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_behind_a_slope_of_zero_are_the_parameters_whose_gradient_is_zero():
    picture = story(ROUNDED, "PL513")["picture"]
    assert not picture["ends"]
    assert picture["lost"] == ["net.weight", "net.bias"]


BY_DATA = """import torch
x = torch.randn(4, requires_grad=True)
h = torch.tanh(x)
h.data.mul_(2)
h.sum().backward()
"""


def test_a_version_is_that_of_the_tensor_that_was_saved():
    moments = story(BY_DATA, "PL301")["picture"]["moments"]
    assert [one["memory"][0]["version"] for one in moments] == [0, 0, 0]
    changed = next(one for one in moments if one["role"] == "changed")["memory"][0]
    assert (changed["names"], changed["changed"]) == (["h", "h.data"], True)


HALVES = """import torch
x = torch.arange(8.0).reshape(2, 4).requires_grad_() * 1
first, second = x.chunk(2, dim=1)
second *= 10
"""


def test_a_card_of_a_part_shows_the_numbers_of_this_part():
    made, raised = story(HALVES, "PL202")["picture"]["moments"]
    assert made["memory"][0]["cells"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    part = raised["memory"][0]
    assert (part["names"], part["shape"], part["size"], part["changed"]) == (["second"], [2, 2], 4, False)
    assert part["cells"] == {"count": 8, "shown": [(2, 2.0), (3, 3.0), (6, 6.0), (7, 7.0)]}


@pytest.mark.parametrize("cell", ["x.add_(1)\nloss.backward()", "x.add_(1); loss.backward()"])
def test_a_forward_before_the_recording_has_a_card_with_what_it_saved_and_both_versions(cell):
    names = {"__name__": "__main__"}
    exec(
        "import torch\nx = torch.ones(3)\nw = torch.ones(3, 3, requires_grad=True)\nloss = ((x @ w) ** 2).mean()", names
    )
    trace = trace_program(cell, "In [5]", names)
    before = trace.to_json()
    (found,) = views.scene(trace, rules.find(trace))["stories"]
    assert trace.to_json() == before, "a view only reads"
    saved, changed, raised = found["picture"]["moments"]
    assert (saved["role"], saved["place"]["en"], saved["place"]["zh"]) == (
        "saved",
        "before this cell",
        "在这个单元格之前",
    )
    assert (saved["step"], saved["line"]) == (None, None)
    (memory,) = saved["memory"]
    assert (memory["names"], memory["version"], memory["cells"]) == (["x"], 0, [1.0, 1.0, 1.0])
    assert (changed["code"], raised["code"]) == ("x.add_(1)", "loss.backward()")
    assert changed["memory"][0]["changed"]
    keeper = found["picture"]["keeper"]
    assert (keeper["name"], keeper["from"], keeper["to"]) == ("MmBackward0", 0, 2)
    assert (keeper["expected"], keeper["found"]) == (0, 1)


def test_a_forward_and_a_write_before_the_recording_have_the_versions_that_torch_names():
    names = {"__name__": "__main__"}
    before = (
        "import torch\nx = torch.ones(3)\nw = torch.ones(3, 3, requires_grad=True)\nloss = (x @ w).mean()\nx.add_(1)"
    )
    exec(before, names)
    trace = trace_program("loss.backward()", "In [5]", names)
    (found,) = views.scene(trace, rules.find(trace))["stories"]
    assert [one["role"] for one in found["picture"]["moments"]] == ["saved", "raised"]
    assert found["picture"]["moments"][0]["memory"] == [], "nothing is known of it"
    assert (found["picture"]["keeper"]["expected"], found["picture"]["keeper"]["found"]) == (0, 1)


CELL = """import torch
from torch import nn
torch.manual_seed(0)
start, cell = nn.Linear(2, 3), nn.LSTMCell(2, 3)
h = start(torch.ones(4, 2))
new, _ = cell(torch.ones(4, 2), (h, torch.zeros(4, 3)))
h.mul_(0.5)
(new + h).sum().backward()
"""
STEPPED = """import torch
w = torch.ones(2, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for turn in range(2):
    first = (w * w).sum()
    second = (w * w).sum()
    first.backward()
    opt.step()
    second.backward()
"""


def test_the_part_of_the_graph_holds_the_writer_also_where_the_saving_call_made_many_nodes():
    found = story(CELL, "PL101")
    changed = next(beat for beat in found["beats"] if beat["was"] == "changed")
    cards = {card["id"]: card for card in found["graph"]["nodes"]}
    assert changed["step"] in {card["born"] for card in cards.values()}
    assert found["picture"]["keeper"]["node"] in cards
    assert len([card for card in cards.values() if card["kind"] == "node"]) <= 6, "not all nodes of the cell"


def test_a_write_of_an_optimizer_is_shown_by_the_leaf_that_it_wrote():
    found = story(STEPPED, "PL104")
    assert "w" in [card["title"] for card in found["graph"]["nodes"]]


UNKNOWN = """import torch
h = torch.rand(80, 90, requires_grad=True).exp()
h.mul_(2)
h.sum().backward()
"""


def test_of_a_tensor_without_known_numbers_the_shape_is_shown_and_no_count():
    memory = [one for moment in story(UNKNOWN, "PL101")["picture"]["moments"] for one in moment["memory"]]
    assert memory
    assert {(tuple(one["shape"]), one["cells"] is None, one["size"]) for one in memory} == {((80, 90), True, None)}
    known = story(SAVED, "PL101")["picture"]["moments"][0]["memory"][0]
    assert (known["shape"], known["size"]) == ([3], 3)


COLUMN = """import torch
torch.manual_seed(0)
x = torch.randn(9, 4) @ torch.tensor([[3.0, 1.0, 0, 0], [0, 1.0, 0.5, 0], [0, 0, 0.2, 1.0], [0, 0, 0, 0.5]])
x = x - x.mean(dim=0)
u, s, vh = torch.linalg.svd(x, full_matrices=False)
first = vh[:, 0]
print((x @ first).var(), s[0])
"""


def test_a_part_has_a_card_of_its_own_and_what_it_was_taken_from_keeps_its_name():
    made, taken, used = story(COLUMN, "PL842")["picture"]["moments"]
    assert [memory["names"] for memory in made["memory"]] == [["u"], ["s"], ["vh"]]
    assert [(one["names"], one["shape"], one["size"]) for one in taken["memory"]] == [(["first"], [4], 4)]
    assert len(taken["memory"][0]["cells"]["shown"]) == 4
    assert [memory["names"] for memory in used["memory"]][:2] == [["x"], ["first"]]


COLLECTED = """import torch
w = torch.zeros(3)
path = []
for step in range(4):
    w += step
    path.append((step, w.numpy()))
w.mul_(2)
print(path[0])
print(w.sum())
"""


@pytest.mark.parametrize(("keep", "rule"), [("w.numpy()", "PL701"), ("w.detach()", "PL702")])
def test_what_a_loop_collected_is_used_where_it_is_read_and_not_where_it_is_kept(keep, rule):
    found = story(COLLECTED.replace("w.numpy()", keep), rule)
    assert [(beat["title"]["en"], beat["line"]) for beat in found["beats"]] == [
        ("same memory", 6),
        ("changed", 5),
        ("used", 8),
    ]
    kept, changed, used = found["picture"]["moments"]
    assert (kept["memory"][0]["cells"], changed["memory"][0]["cells"]) == ([0.0] * 3, [1.0] * 3)
    assert used["memory"][0]["cells"] == [12.0] * 3, "as the line found it, after the last write"
    unread = COLLECTED.replace(keep if keep in COLLECTED else "w.numpy()", keep).replace("print(path[0])", "pass")
    assert [beat["title"]["en"] for beat in story(unread, rule)["beats"]] == ["same memory", "changed"]


def test_what_numpy_shares_is_said_of_both_by_name():
    assert "line 5 changes `w` and the array made of it" in story(COLLECTED, "PL701")["message"]["en"]


FACTOR = """import torch
w = torch.ones(2, 2, requires_grad=True)
buffer = torch.zeros(3, 2)
loss = torch.zeros(())
def fill(row):
    buffer[row] = row + 1.0
for row in range(2):
    fill(row)
    loss = loss + (buffer @ w).sum()
loss.backward()
"""


def test_a_product_is_called_one_and_each_call_that_leads_to_a_line_of_the_story_is_a_maker():
    trace = trace_program(FACTOR)
    around = trace.events[0].scope  # this test is a function, too
    events = tuple(replace(event, scope=event.scope[len(around) :]) for event in trace.events)
    trace = replace(trace, events=events)
    [found] = views.scene(trace, rules.find(trace))["stories"]
    assert found["rule"] == "PL106"
    assert found["message"]["en"].endswith("still needs the values that line 9 used for the product `buffer @ w`.")
    leads = {beat["line"]: beat["text"]["en"] for beat in found["beats"] if beat["was"] == "forward"}
    assert leads == {8: "leads to line 6"}
    assert [line for _, line in found["makers"]] == [6, 10, 9, 8, 3]


def test_a_line_that_the_sentence_names_is_a_maker_in_the_cell_that_it_names():
    names = makers_of("In [2], line 3 changes `h`, and line 1 of other.py does not matter.")
    assert names == [(0, 5)]
    assert makers_of("Line 3 changes `h`, which line 2 made.", parts=False) == [(0, 3), (0, 2)]


def makers_of(message: str, *, parts: bool = True) -> list[tuple[int, int]]:
    """The lines that a finding's sentence names, in a program of two cells of two and four lines."""
    cells = (Part("In [1]", 1), Part("In [2]", 3)) if parts else ()
    facts = gather(Trace(sources=(Source("program", "a\nb\nc\nd\ne\nf\n", cells),)))
    return makers(facts, {"message": {"en": message, "zh": ""}}, None, [])


TRANSPOSED = """import torch
torch.manual_seed(0)
cov = torch.tensor([[1.0, 0.6], [0.6, 4.0]])
root = torch.linalg.cholesky(cov)
draws = torch.randn(2000, 2) @ root
print(draws.T.cov())
"""


def test_a_card_has_the_layout_of_the_tensor_that_is_shown():
    """Torch returns the factor column by column: its cells alone would be its transpose."""
    made, used = story(TRANSPOSED, "PL839")["picture"]["moments"]
    for moment in (made, used):
        root = next(one for one in moment["memory"] if one["names"] == ["root"])
        assert (root["shape"], root["stride"], root["offset"]) == ([2, 2], [1, 2], 0)
        assert root["cells"][2] == 0.0


TURNED = """import torch
x = torch.arange(6.0).reshape(2, 3)
turned = x.t()
flat = turned.view(-1)
"""


def test_of_several_names_the_one_of_the_tensor_that_is_shown_is_first():
    made, raised = (moment["memory"][0] for moment in story(TURNED, "PL406")["picture"]["moments"])
    assert (made["names"], made["shape"], made["stride"]) == (["x", "turned"], [2, 3], [3, 1])
    assert (raised["names"], raised["shape"], raised["stride"]) == (["turned", "x"], [3, 2], [1, 3])


def test_the_cells_of_an_array_that_is_read_backwards_are_seen():
    tensor = {"shape": [3], "stride": [-1], "offset": 3}
    assert _seen(tensor, {"size": 6, "cells": [0, 1, 2, 3, 4, 5]}) == {"count": 6, "shown": [(1, 1), (2, 2), (3, 3)]}
    assert _seen({"shape": [2, 3], "stride": []}, {"size": 6, "cells": [1]}) is None


THROUGH = """import torch
h = torch.sigmoid(torch.zeros(2, 4, requires_grad=True))
turned = h.t()
first = turned[:, 0]
more = first * 2
total = more.sum()
h.mul_(10)
total.backward()
"""


def test_a_card_names_the_lines_that_lead_to_it_from_a_card_before():
    saved, changed, raised = story(THROUGH, "PL101")["picture"]["moments"]
    assert (saved["between"], changed["between"]) == ([], [])
    assert [(one["line"], one["op"]) for one in raised["between"]] == [(3, "t"), (6, "sum")]
    assert raised["skipped"] == 2


CALLED_LATER = """import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self):
        self.rows = [self.make(at) for at in range(4)]
    def make(self, at):
        return torch.full((3,), float(at)).add(1)
    def __len__(self):
        return 4
    def __getitem__(self, at):
        return self.rows[at]

def middle(errors):
    return errors.median()

def report(values):
    summary = middle(values)
    print(summary)
    return summary * 2

print(report(torch.tensor([1.0, 2.0, 4.0, 9.0])))
"""


def test_what_a_line_makes_has_no_name_that_only_another_line_has():
    found = story(CALLED_LATER, "PL833")
    names = {name for one in found["picture"]["moments"][0]["memory"] for name in one["names"]}
    assert "summary" not in names, names
