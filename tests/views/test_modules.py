"""Modules as boxes: what a box holds is what torch's own module tree says, and every box can be opened."""

from __future__ import annotations

import json

import pytest
import torch
from torch.overrides import TorchFunctionMode

import pitfall_lab
from pitfall_lab import views
from pitfall_lab.trace import Trace
from pitfall_lab.views.graph.modules import modules
from pitfall_lab.views.label_history import gather

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
BLOCK = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(4)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    def forward(self, x):
        y = x * 1.5
        return x + self.mlp(self.ln(y))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(4, 1)
    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.head(x) * 2
net = Net()
"""
LAYERS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
net = Net()
"""
ATTENTION = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(4, 4) for _ in range(4))
        self.norm = nn.LayerNorm(4)
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        weights = F.softmax(q @ k.transpose(0, 1) / 2, dim=-1)
        return self.norm(x + self.out(weights @ v))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Layer()
        self.second = Layer()
    def forward(self, x):
        return self.second(F.gelu(self.first(x)))
net = Net()
"""
PLAIN = "net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1))\n"
NETS = {"blocks": BLOCK, "a loop over layers": LAYERS, "attention": ATTENTION, "Sequential": PLAIN}
RUN = "x = torch.randn(5, 4)\nloss = (net(x) ** 2).mean()\nloss.backward()\n"


class Watch(TorchFunctionMode):
    """Every differentiable result of the forward beside the module that was running: torch's own word."""

    def __init__(self, net):
        super().__init__()
        self.running, self.seen = [], []
        for name, module in net.named_modules():
            module.register_forward_pre_hook(lambda *_, name=name: self.running.append(name))
            module.register_forward_hook(lambda *_: void(self.running.pop()))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        if isinstance(result, torch.Tensor) and result.grad_fn is not None:
            self.seen.append(
                (type(result.grad_fn).__name__, tuple(filter(None, (self.running or [""])[-1].split("."))))
            )
        return result


def void(_):
    """A forward hook's result would replace the module's."""


def truth(net: str) -> list[tuple[str, tuple[str, ...]]]:
    space: dict = {}
    exec(HEAD + net + "x = torch.randn(5, 4)\n", space)
    with Watch(space["net"]) as watch:
        (space["net"](space["x"]) ** 2).mean()
    return watch.seen


def told(trace: Trace) -> list[tuple[str, tuple[str, ...]]]:
    """Every node that is the output of a call, with its module; levels that were merged are taken apart again."""
    facts = gather(trace)
    of = modules(facts)
    nodes = [
        (h[-1][1]["name"], n)
        for n, h in facts.nodes.items()
        if facts.output(n) and h[-1][1]["name"] != "AccumulateGrad"
    ]
    return [(name, tuple(part for one in of.get(n, ()) for part in one.split("."))) for name, n in nodes]


@pytest.mark.parametrize("name", NETS)
def test_no_operation_is_in_a_module_that_did_not_run_it(name):
    real = truth(NETS[name])
    found = told(pitfall_lab.record(HEAD + NETS[name] + RUN))
    assert [kind for kind, _ in found] == [kind for kind, _ in real]
    wrong = [
        (kind, path, module)
        for (kind, path), (_, module) in zip(found, real, strict=True)
        if module[: len(path)] != path
    ]
    assert wrong == []


def test_the_parts_of_a_block_are_in_the_block():
    real = truth(BLOCK)
    found = told(pitfall_lab.record(HEAD + BLOCK + RUN))
    assert [path[:2] for _, path in found if path[:1] == ("blocks",)] == [
        module[:2] for _, module in real if module[:1] == ("blocks",)
    ]


def test_a_module_that_runs_again_has_a_box_for_each_call_and_no_edge_is_lost():
    trace = pitfall_lab.record(
        HEAD + PLAIN + "x = torch.randn(5, 4)\nloss = net(x).sum() + net(2 * x).sum()\nloss.backward()\n"
    )
    graph = views.scene(trace)["graph"]
    titles = [box["title"] for box in graph["modules"]["boxes"]]
    assert {"0", "0 ·2", "3", "3 ·2"} <= set(titles)
    top = graph["modules"]["pictures"][""]
    drawn = {([*graph["nodes"], *graph["modules"]["boxes"]][i])["id"] for i, _, _ in top["places"]}
    assert {end for edge in top["edges"] for end in (edge["from"], edge["to"])} == drawn


def test_every_box_that_opens_has_a_picture_in_which_it_is_gone_and_its_content_is_there():
    facts = gather(pitfall_lab.record(HEAD + BLOCK + RUN))
    graph = views.scene(facts.trace)["graph"]
    inside = graph["modules"]
    cards = [*graph["nodes"], *inside["boxes"]]
    for box in inside["boxes"]:
        ids = {cards[i]["id"] for i, _, _ in inside["pictures"][box["opens"]]["places"]}
        assert box["id"] not in ids
        nested = [other for other in inside["boxes"] if other["id"].startswith(f"{box['id']}/")]
        assert ids & {*box["inside"], *(other["id"] for other in nested)}
    assert inside["pictures"]["blocks/0"]["edges"]
    titles = {box["title"] for box in inside["boxes"]}
    assert "blocks" not in titles, "what runs between the blocks is not in the list of blocks, but between them"
    for picture in inside["pictures"].values():
        ends = {end for edge in picture["edges"] for end in (edge["from"], edge["to"])}
        assert ends == {cards[i]["id"] for i, _, _ in picture["places"]}, "no edge is lost"


HELPED = """
def attention(q, k, v):
    scores = q @ k.transpose(0, 1) / 2
    return F.softmax(scores, dim=-1) @ v
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        return torch.tanh(x + attention(self.q(x), self.k(x), self.v(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Layer()
        self.second = Layer()
    def encode(self, x):
        return self.second(F.gelu(self.first(x)))
    def forward(self, x):
        return self.encode(x) * 2
net = Net()
def criterion(y):
    return (y ** 2).mean()
def step(x):
    loss = criterion(net(x))
    loss.backward()
step(torch.randn(5, 4))
"""


def test_a_function_is_a_box_in_its_module_unless_modules_are_called_in_it():
    facts = gather(pitfall_lab.record(HEAD + HELPED))
    boxes = views.scene(facts.trace)["graph"]["modules"]["boxes"]
    held = {box["title"]: box["inside"] for box in boxes if box["title"].endswith("()")}
    born = {label: facts.trace.events[history[0][0]].scope for label, history in facts.nodes.items()}
    for title, function in (
        ("first.attention()", "attention"),
        ("second.attention()", "attention"),
        ("criterion()", "criterion"),
    ):
        assert held[title]
        assert {born[label][-1] for label in held[title]} == {function}, "what this function made, and nothing else"
    for function in ("attention", "criterion"):
        made = [label for label in born if born[label][-1:] == (function,)]
        assert sorted(made) == sorted(one for title in held if function in title for one in held[title]), "all of it"
    assert len(held) == 3, "encode() and step() call modules: they are around them"


def test_without_modules_functions_are_boxes_in_a_large_graph_only():
    text = "import torch\ndef bend(x):\n    y = x.exp()\n    return y.sin()\nw = torch.ones(3, requires_grad=True)\n"
    for times, there in ((3, False), (40, True)):
        called = "".join(f"x{n} = bend(w) * {n}\n" for n in range(times))
        graph = views.scene(pitfall_lab.record(text + called))["graph"]
        assert ("modules" in graph) == there
    assert {box["title"] for box in graph["modules"]["boxes"]} >= {"bend()", "bend() ·2", "bend() ·40"}


def test_a_program_without_modules_has_no_boxes_and_what_is_left_out_stays_closed(monkeypatch):
    plain = pitfall_lab.record("import torch\nx = torch.ones(3, requires_grad=True)\nx.exp().sum().backward()\n")
    assert "modules" not in views.scene(plain)["graph"]
    monkeypatch.setattr("pitfall_lab.views.graph.nested.PICTURES", 3)
    graph = views.scene(pitfall_lab.record(HEAD + BLOCK + RUN))["graph"]["modules"]
    assert len(graph["pictures"]) == 4, "the model and three boxes"
    assert sum(bool(box["opens"]) for box in graph["boxes"]) == 3
    assert json.dumps(graph, allow_nan=False)
