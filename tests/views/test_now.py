"""The one-line pictures: what they read of live tensors is true, nothing is changed by looking,
and nothing makes them fail.
"""

from __future__ import annotations

import html
import itertools
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

import pitfall_lab
from pitfall_lab import show_broadcast, show_graph, show_memory, show_storage, show_versions
from pitfall_lab.observe.snapshot import graph, snapshot
from pitfall_lab.trace.replay import replay
from pitfall_lab.views import memory, storage
from pitfall_lab.views.label_history import gather

BASE = torch.arange(24.0).reshape(2, 3, 4)
STRIDED = {
    "whole": BASE,
    "transposed": BASE.permute(2, 0, 1),
    "slice": BASE[1, ::2, 1::2],
    "diagonal": BASE[0].diagonal(),
    "expanded": BASE[0, 0].expand(3, 4),
    "windows": BASE.flatten().unfold(0, 5, 3),
    "reversed array": BASE.numpy()[::-1, :, ::-2],
    "array column": BASE.numpy()[:, 1],
    "0-dim": BASE[1, 2, 3],
    "empty": BASE[:, :0],
}


def stale() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = torch.sigmoid(x)
    y = h * x
    h.mul_(10)
    h.mul_(2)
    return y.sum(), h


def slots(trace):
    nodes = replay(trace)["nodes"]
    return {(n["name"], s["name"]): (s["state"], s["version"]) for n in nodes.values() for s in n["saved"]}


@pytest.mark.parametrize("name", STRIDED)
def test_every_cell_says_exactly_the_indices_that_read_it(name):
    value = STRIDED[name]
    (one,) = storage.project(snapshot([("base", BASE), (name, value)]))["storages"]
    cover, cells = one["brushes"][1]["history"][-1]["cover"], one["values"][-1]["cells"]
    told = {(index, cell) for names, cell in zip(cover, cells, strict=True) for index in names if index != "…"}
    true = {
        (",".join(map(str, index)) or "()", float(value[index]))
        for index in itertools.product(*map(range, value.shape))
    }
    shown = {cell for cell in cells if cell is not None}
    assert told <= true
    assert {index for index, cell in true if cell in shown} - {index for index, _ in told} == set() or any(
        "…" in names for names in cover
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 4), max_size=4).map(tuple), min_size=2, max_size=4))
def test_shapes_meet_as_torch_says(shapes):
    try:
        result = tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        result = None
    picture = show_broadcast(*shapes)
    assert ("✕" in picture.svg) == (result is None)
    assert f"→ {result}" in picture.text or (result is None and "raises" in picture.text)


def test_what_shares_memory_and_what_shares_a_counter_are_told_apart():
    t = torch.zeros(3)
    view, detached, data, copy, array = t[1:], t.detach(), t.data, t.clone(), t.numpy()
    tensors = replay(snapshot([("t", t), ("v", view), ("d", detached), ("data", data), ("copy", copy), ("a", array)]))[
        "tensors"
    ]
    home = {r["name"]: (r["storage"], r["counter"]) for r in tensors.values()}
    assert home == {
        "t": ("S1", "C1"),
        "v": ("S1", "C1"),
        "d": ("S1", "C1"),
        "data": ("S1", "C2"),
        "a": ("S1", None),
        "copy": ("S2", "C3"),
    }


def test_looking_changes_nothing():
    loss, h = stale()
    x = torch.zeros(3, requires_grad=True)
    data = x.data

    def state():
        count = torch._C._storage_Use_Count
        return x.grad, [
            (t._version, t.grad_fn, t.data_ptr(), count(t.untyped_storage()._cdata)) for t in (loss, h, x, data)
        ]

    before = state()
    seen: list[object] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, _types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        show_storage(loss, h, x, data)
        show_graph(loss, h)
        show_versions(loss, h, x, data)
        show_broadcast(h, x)
    assert before == state()
    assert seen == []


def test_a_saved_tensor_is_stale_with_its_version_exactly_where_torch_refuses_it():
    loss, h = stale()
    trace = graph([("loss", loss)])
    assert slots(trace) == {
        ("SigmoidBackward0", "result"): ("stale", 0),
        ("MulBackward0", "other"): ("kept", 0),
        ("MulBackward0", "self"): ("stale", 0),
    }
    assert h._version == 2
    with pytest.raises(RuntimeError, match="is at version 2; expected version 0"):
        loss.backward()
    picture = show_graph(loss)
    assert "h: saved at v0, now v2: torch refuses it" in picture.text
    assert "✕" in picture.svg


def test_freed_tensors_and_those_behind_hooks_are_told_and_no_hook_runs():
    ran: list[str] = []

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        ran.append("unpack")
        return tensor

    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        hooked = x.exp()
    freed = x.sin()
    freed.sum().backward()
    trace = graph([("a", hooked), ("b", freed)])
    assert slots(trace) == {("ExpBackward0", "result"): ("hooked", None), ("SinBackward0", "self"): ("freed", None)}
    assert ran == []


def test_a_graph_of_any_depth_is_walked_and_what_is_left_out_is_counted():
    x = torch.ones((), requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1
    assert "2701 more nodes" in show_graph(y).text


def test_arguments_are_called_what_the_call_calls_them():
    données = torch.zeros(2)  # noqa: PLC2401  (names in the source are counted in bytes)
    table = {"w": torch.zeros(3)}
    text = show_versions(
        données, table["w"],
        données[:1], kept=torch.zeros(1),
    ).text  # fmt: skip
    assert re.findall(r"(?m)^v0: (.*)", text) == ["données, données[:1]", "table['w']", "kept"]
    several = [données, torch.zeros(1)]
    assert re.findall(r"(?m)^v0: (.*)", show_versions(*several).text) == ["données", "#2"]
    namespace = {"show_versions": show_versions, "q": données}
    exec("picture = show_versions(q)", namespace)  # no source to be found: the variable is
    assert "v0: q" in namespace["picture"].text.splitlines()


BAD = {
    "0-dim": torch.tensor(3.0),
    "empty": torch.empty(0, 3),
    "6-dim": torch.zeros(1, 2, 1, 2, 1, 2),
    "nan": torch.tensor([float("nan"), -np.inf]),
    "complex": torch.tensor([1 + 2j]),
    "bool": torch.tensor([True]),
    "bfloat16": torch.tensor([1.5], dtype=torch.bfloat16),
    "huge": torch.empty(1).expand(10**6, 10**6),
    "meta": torch.empty(2, device="meta"),
    "sparse": torch.eye(2).to_sparse(),
    "list": [1.5],
    "none": None,
    "conj": torch.tensor([1j]).conj(),
    "objects": np.array([None]),
    "text": np.array(["<b>"]),
    "other width": BASE.view(torch.int16),
    "inference": torch.inference_mode()(torch.ones)(2),
    "lazy": torch.nn.LazyLinear(2).weight,
    "<script>": torch.zeros(1),
    "resized": torch.zeros(3),
}
BAD["resized"].untyped_storage().resize_(0)
SAID = {
    "meta": "no numbers", "sparse": "no strides", "list": "not a tensor", "none": "not a tensor",
    "conj": "the values in its memory differ", "lazy": "without a shape",
    "other width": "reads the same bytes as int16",
}  # fmt: skip


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        outside = ("http:", "https:", "//")
        assert not any(
            name.startswith("on") or (value or "").startswith(outside) for name, value in attrs if name != "xmlns"
        )


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", BAD)
def test_whatever_is_given_gets_a_picture_or_one_sentence(name, language):
    for show in (show_storage, show_versions, show_graph, show_broadcast):
        picture = show(BASE, **{name: BAD[name]}, language=language)
        assert picture.svg or picture.notes
        if picture.svg:
            ET.fromstring(picture.svg)
        assert "script" not in Tags(picture.html).tags
        if language == "en" and name in SAID and show in (show_storage, show_versions):
            assert SAID[name] in " ".join(picture.notes)
    assert "1.5" in show_storage(**{name: BAD["bfloat16"]}).text


def test_memory_has_its_peak_where_the_sum_of_what_lives_is_largest():
    lines = [
        "import torch",
        "a = torch.zeros(1000)",
        "b = a + 1",
        "del b",
        "c = a[:9] * 2",
        "d = torch.ones(300)",
        "del a, c",
        "e = d * 2",
    ]
    trace = pitfall_lab.record("\n".join(lines))
    facts = gather(trace)
    scene = memory.project(trace, facts)
    live = [sum(r["nbytes"] for r in replay(trace, e.step)["storages"].values() if r["alive"]) for e in trace.events]
    assert scene["peak"] == {"step": live.index(max(live)), "bytes": max(live)}
    assert dict(scene["total"]) == {s: v for s, v in enumerate(live) if not s or v != live[s - 1]}
    for step in range(len(trace.events)):  # the bands lie on each other without gaps
        alive = [b for b in scene["bands"] if b["born"] <= step and (b["died"] is None or b["died"] > step)]
        tops = sorted((next(v for s, v in reversed(b["base"]) if s <= step), b["nbytes"]) for b in alive)
        assert [base for base, _ in tops] == [sum(n for _, n in tops[:i]) for i in range(len(tops))]
    assert "8000 bytes" in show_memory(trace).text
    together = show_memory(small="import torch\nt = torch.ones(250)\n", the_large_one=trace)
    assert [line for line in together.text.splitlines() if not line.startswith(" ")] == [
        "small", "Peak: 1000 bytes (1000 B), L2", "the large one", *show_memory(trace).text.splitlines()[:1],
        memory.counted(),
    ]  # fmt: skip
    tall = [float(h) for h in re.findall(r'class="box" d="M[\d.]+,[\d.]+h[\d.]+v-([\d.]+)h', together.svg)]
    for svg in (together.svg, show_memory(trace).svg):
        assert [html.unescape(svg).count(line.en) for line in memory.COUNTED] == [1, 1]
    assert max(tall) == pytest.approx(4 * tall[0]), (
        "a bar of four times the height is four times the bytes, in both programs"
    )
    assert [k.en for k in memory.keepers(facts, "S1", 1)] == ["a"]


def test_a_letter_in_a_picture_of_memory_is_in_the_list_below_it() -> None:
    start = "import torch\nx, w = torch.ones(50, 20), torch.full((20, 20), 0.1)\nfor _ in range(12):\n    x = "
    both = show_memory(apart=f"{start}torch.relu(x @ w)\n", in_place=f"{start}torch.relu_(x @ w)\n").html
    picture, letters = both[both.index("<svg") :], r'<text class="t s b" x="([\d.]+)" [^>]*>([A-Z]+)</text>'
    for panel in picture.split('class="t b">in place<'):
        found = [(float(x), one) for x, one in re.findall(letters, panel)]
        listed, drawn = ({one for x, one in found if (x == 25) == key} for key in (True, False))
        assert drawn
        assert drawn <= listed


def test_memory_of_a_program_that_raises_says_so():
    raising = "import torch\nt = torch.ones(250)\nt.view(3)\n"
    said = (
        "ended with RuntimeError in line 3: shape '[3]' is invalid for input of size 250. Nothing "
        "after it was measured."
    )
    assert show_memory(raising).text.splitlines()[-1] == f"The program {said}"
    assert (
        f"the wrong one {said}" in show_memory(right="import torch\nt = torch.ones(250)\n", the_wrong_one=raising).text
    )


def test_in_a_loop_a_name_moves_on_and_what_had_it_is_kept_by_its_view() -> None:
    source = (
        "import torch\n"
        "kept = []\n"
        "for n in range(3):\n"
        "    table = torch.ones(50)\n"
        "    kept.append(table[0])\n"
        "    del table\n"
    )
    oldest = show_memory(source).text.splitlines()[1]  # of storages of one size the oldest is first
    assert oldest.split("←")[1].strip() == "a view"


def test_a_name_that_the_program_uses_keeps_what_it_has() -> None:
    def keeps(body: str) -> str:
        source = (
            "import torch\n"
            "def start():\n"
            "    return 1, torch.ones(240, 4)\n"
            "def passes(part):\n"
            "    return part.view(-1), 0\n"
            f"def train():\n{body}"
            "kept = train()\n"
        )
        return show_memory(source).text.splitlines()[1].split("←")[-1].strip()

    chunks = "    for piece in rows.chunk(4):\n        y = torch.tanh(piece.sum())\n"
    assert keeps(f"    n, rows = start()\n{chunks}") == "rows, a view", "`piece` moves on in the loop"
    assert keeps(f"    n, rows = start()\n{chunks}    rows = n\n    z = torch.ones(100)\n") == "a view"
    assert keeps(f"    n, rows = start()\n{chunks}    del rows\n    z = torch.ones(100)\n") == "a view"
    assert keeps("    flat, n = passes(torch.ones(960))\n    return torch.ones(3), flat\n") == "a view", (
        "the variable of a function that has returned keeps nothing"
    )


def test_a_name_that_was_deleted_keeps_nothing() -> None:
    layers = (
        "x = torch.ones(500)\n"
        "with torch.enable_grad():\n"
        "    h = torch.tanh(x @ w)\n"
        "    {}\n"
        "    y = torch.tanh(h @ w[:9, :9])\n"
    )
    source = f"import torch\nw = torch.ones(500, 9, requires_grad=True)\n{layers}"

    def keeps(line: str) -> str:
        found = [row for row in show_memory(source.format(line)).text.splitlines() if row.split()[1:2] == ["x"]]
        return found[0].split("←")[1].strip()

    assert keeps("del x").startswith("the graph (")
    assert keeps("pass").startswith("x, the graph (")
    assert keeps("if len(x) < 5: del x").startswith("x, the graph ("), "a branch may not have been taken"


def test_pictures_are_saved_and_kinds_that_do_not_exist_are_refused(tmp_path, monkeypatch):
    picture = show_graph(stale()[0])
    for kind in (".svg", ".html", ".txt", ".dot"):
        assert picture.save(tmp_path / f"g{kind}").stat().st_size > 100
    assert "<s>result v0</s>" in (tmp_path / "g.dot").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"as \.jpg; it can as \.dot"):
        picture.save(tmp_path / "g.jpg")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="needs graphviz's program dot"):
        picture.save(tmp_path / "g.pdf")
    assert set(picture._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_a_gradient_comes_after_what_a_checkpoint_has_computed_again() -> None:
    source = """
import torch
from torch.utils.checkpoint import checkpoint
def block(t):
    for _ in range(6):
        t = torch.sigmoid(t)
    return t
x = torch.ones(256, requires_grad=True)
out = checkpoint(block, x, use_reentrant=False)
out.sum().backward()
"""
    picture = show_memory(source).text
    assert "x.grad" not in picture, "at the peak the block is computed again, and no gradient has reached x"
    assert picture.startswith("Peak: 7172 bytes"), "x, the block's result and five of its six once more, and one number"


def test_storages_that_are_not_listed_are_called_more_and_not_smaller() -> None:
    source = "import torch\nkept = [torch.ones(100) for _ in range({})]"
    pictures = show_memory(two=source.format(5), one=source.format(4))
    assert "2 more storages, 800 B together" in pictures.svg
    assert "1 more storage, 400 B" in pictures.svg
