"""What a hook has stored of a model that was made anew since, without the hook."""

from __future__ import annotations

import pytest

START = """X = torch.randn(10, 4)
def build(width):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))"""
MAKE = "net = build(3)"
STORE = """seen = {}
def remember(layer, given, out):
    seen['relu'] = out.detach()
handle = net[1].register_forward_hook(remember)"""
MANY = """seen = {}
def store_in(where, name):
    def hook(layer, given, out):
        where[name] = out.detach()
    return hook
handles = [layer.register_forward_hook(store_in(seen, str(at))) for at, layer in enumerate(net)]"""
LIST = STORE.replace("seen = {}", "seen = []").replace("seen['relu'] = out.detach()", "seen.append(out.detach())")
LOOK = "net(X)\nsize = {}.norm().item()"
PLANTED = {
    "a dict": ([MAKE, STORE, LOOK.format("seen['relu']"), "net = build(5)"], LOOK.format("seen['relu']")),
    "called in another cell": (
        [MAKE, STORE, "net(X)", "net = build(5)", "with torch.no_grad():\n    out = net(X)"],
        "size = seen['relu'].norm()",
    ),
    "a hook for each layer": (
        [MAKE, MANY, "net(X)", "net = build(5)"], "net(X)\nmeans = [v.mean() for v in seen.values()]",
    ),
    "a list, read in a function": (
        [MAKE, LIST, "net(X)", "def last():\n    net(X)\n    return seen[-1].mean()", "net = build(5)"],
        "mean = last()",
    ),
}  # fmt: skip
RIGHT = {
    "registered again": [
        MAKE, STORE, LOOK.format("seen['relu']"), "net = build(5)", STORE, LOOK.format("seen['relu']"),
    ],
    "emptied": [MAKE, STORE, "net(X)", "net = build(5)\nseen.clear()", "net(X)\nlen(seen)"],
    "read before the new one is called": [MAKE, STORE, "net(X)", "net = build(5)", "size = seen['relu'].norm()"],
    "of a model with a name of its own": [
        MAKE, STORE, "net(X)", "first = net\nnet = build(5)", "net(X)\nsize = seen['relu'].norm()",
    ],
    "removed, and stored on purpose": [
        MAKE, STORE, "net(X)\nhandle.remove()", "before = dict(seen)", "net = build(5)",
        "net(X)\nsize = before['relu'].norm()",
    ],
    "not read again": [MAKE, STORE, "net(X)", "net = build(5)", "out = net(X).sum()"],
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_stored_of_the_earlier_model_is_said(notebook, name):
    cells, last = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == [], text
    [warning] = notebook.run(last)
    assert (warning["kind"], warning["level"], warning["row"]) == ("hook-left", "silent", "seen")
    assert "has stored of the earlier `net`" in warning["sentence"]["en"]
    assert "Run In [4] again after" in warning["fix"]["en"]
    assert all(warning[part]["zh"] for part in ("sentence", "explanation", "fix"))
    assert notebook.run("seen.clear()") == []


@pytest.mark.parametrize("name", RIGHT)
def test_a_hook_that_is_there_or_not_read_is_right(notebook, name):
    for text in (START, *RIGHT[name]):
        assert notebook.run(text) == [], text
