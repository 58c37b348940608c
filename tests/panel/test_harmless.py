"""The panel changes nothing, keeps nothing alive, runs nothing of the program's, and ends in time
whatever the notebook holds.
"""

from __future__ import annotations

import gc
import random
import sys
import time
import weakref

import numpy as np
import torch

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.session import Live
from pitfall_lab.observe.live.sums import Sums
from tests.bench.live import cost, plain
from tests.panel.notebook import FrontEnd, Notebook

HOSTILE = """
class Raises(torch.Tensor):
    def __getattribute__(self, name): raise RuntimeError("touched")
    def __repr__(self): raise RuntimeError("touched")
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None): raise RuntimeError("touched")
class Meta(type):
    def __eq__(cls, other): raise RuntimeError("touched")
    def __hash__(cls): raise RuntimeError("touched")
    def __getattribute__(cls, name): raise RuntimeError("touched")
class Endless(metaclass=Meta):
    def __getattribute__(self, name):
        while True: pass
    def __bool__(self): raise RuntimeError("touched")
    def __len__(self): raise RuntimeError("touched")
class Dispatches(torch.Tensor):
    @staticmethod
    def __new__(cls): return torch.Tensor._make_wrapper_subclass(cls, (3,), dispatch_sizes_strides_policy="sizes")
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None): raise RuntimeError("touched")
class Key:
    def __hash__(self): return 1
    def __repr__(self): raise RuntimeError("touched")
    def __eq__(self, other): raise RuntimeError("touched")
class Module(nn.Module):
    def __getattr__(self, name): raise RuntimeError("touched")
    def named_parameters(self, *a, **k): raise RuntimeError("touched")
    parameters = children = named_parameters
class Array(np.ndarray):
    def __getattribute__(self, name): raise RuntimeError("touched")
r, e, d, m = torch.ones(3).as_subclass(Raises), Endless(), Dispatches(), Module()
keyed, a, loop = {Key(): torch.ones(2)}, np.ones(3).view(Array), []
loop.append(loop)
globals()["<script>alert(1)</script>"] = torch.ones(2)
bare = nn.Linear.__new__(nn.Linear)
fine = torch.ones(2)
"""


def test_objects_that_must_not_be_touched_are_not(notebook):
    notebook.run(HOSTILE)
    rows = notebook.rows()
    assert rows["fine"]["shape"] == [2]
    assert (rows["r"]["type"], rows["r"]["shape"]) == ("Raises", [3])
    assert (rows["d"]["type"], rows["d"]["shape"]) == ("Dispatches", None)
    assert rows["a"]["shape"] == [3]
    assert (
        rows["<script>alert(1)</script>"]["name"] == "<script>alert(1)</script>"
    )  # text, which the page shows as text
    assert {"e", "loop"}.isdisjoint(rows)
    for name in ("m", "keyed", "bare"):
        assert notebook.page.ask("unfold", id=name)[0]["kind"] == "children"
    for name in ("r", "d", "a", "m"):
        notebook.page.ask("picture", id=name, view="storage")
        notebook.page.ask("picture", id=name, view="graph")


def test_a_million_names_and_ten_thousand_tensors_end_in_time():
    many = dict.fromkeys(map(str, range(1_000_000)), 0)
    x = torch.ones(2, requires_grad=True)
    tensors = {f"t{i}": x * 2 for i in range(10_000)}
    for namespace, seconds in ((many, 0.02), (many | tensors, 0.02), (tensors, 0.1)):
        live = Live()
        live.begin()
        live.ended(1, ["t1"], torch_is_new=False)
        began = time.thread_time()
        look = live.look(namespace, seconds, (0, 500))
        took = time.thread_time() - began
        assert took < 10 * seconds + 0.3  # a copy of a million names, and a loaded machine
        assert look.more > 0
        assert len(look.rows) <= 500


def test_two_hundred_tensors_take_less_than_twenty_milliseconds():
    hidden, _, _ = cost(plain(200), shown=False)
    shown, _, _ = cost(plain(200), shown=True)
    assert hidden < shown < 20


def test_looking_changes_nothing_that_a_program_could_notice():
    torch.manual_seed(0)
    x = torch.randn(4, 4, requires_grad=True)
    y = x.clone()
    view = y[0]
    y.mul_(2)  # the view's history is out of date, and made anew when it is asked for
    net = torch.nn.Linear(4, 4)
    net(y).sum().backward(retain_graph=True)
    array = np.ones(3)
    shared = torch.from_numpy(array)
    loss = net(y).sum()
    namespace = {
        "x": x,
        "y": y,
        "view": view,
        "net": net,
        "array": array,
        "shared": shared,
        "loss": loss,
        "many": [x, y],
    }
    live, ask = Live(), Budget(10)

    def state():
        kept = [x, y, view, net.weight, shared, loss, array]
        return (
            torch.random.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002 - the global one
            random.getstate(),
            [sys.getrefcount(each) for each in kept],
            [each._version for each in kept[:-1]],
            torch._C._autograd._get_sequence_nr(),
            torch.is_grad_enabled(),
            gc.isenabled(),
            [id(each.grad) for each in (x, net.weight)],
            sorted(vars(net)),
            [weakref.getweakrefcount(each) for each in kept],
        )

    before = state()
    for cell in range(1, 4):
        live.begin()
        live.ended(cell, namespace, torch_is_new=False)
        live.look(namespace, 10, (0, 500))
        live.unfold(namespace, ("net",), ask)
        live.unfold(namespace, ("many",), ask)
        assert state() == before
    loss.backward()
    assert view.grad_fn is not None


def test_nothing_is_kept_alive():
    tensor = torch.randn(5, requires_grad=True)
    namespace = {"x": tensor, "y": tensor.exp(), "net": torch.nn.Linear(3, 3)}
    namespace["loss"] = namespace["y"].sum()
    live = Live()
    live.begin()
    live.ended(1, namespace, torch_is_new=False)
    live.look(namespace, 10, (0, 500))
    live.unfold(namespace, ("net",), Budget(10))
    gone = [weakref.ref(tensor), weakref.ref(namespace["y"]), weakref.ref(namespace["net"].weight)]
    namespace.clear()
    del tensor
    gc.collect()
    assert [ref() for ref in gone] == [None, None, None]


def test_checksums_read_the_tensor_and_nothing_beside_it():
    x = torch.zeros(4, 4)
    assert Sums().of(x[:, 0]) is None  # it has gaps
    row = Sums().of(x[0])
    x[1] = 5
    assert Sums().of(x[0]) == row
    x[0, 3] = 5
    assert Sums().of(x[0]) != row
    large = torch.zeros(1 << 20)
    before = Sums().of(large)
    large.add_(1)
    assert Sums().of(large) != before


def test_hidden_and_switched_off_it_looks_at_nothing(notebook, monkeypatch):
    notebook.page.ask("watch", visible=False, stale=False)
    monkeypatch.setattr(Live, "look", None)
    assert notebook.run("x = torch.ones(3)") == []
    notebook.page.ended(None)
    notebook.run("x = torch.ones(3)")


def test_an_error_of_ours_reaches_neither_the_notebook_nor_the_next_look(monkeypatch, capsys):
    notebook = Notebook()
    with monkeypatch.context() as patched:
        patched.setattr(Live, "look", lambda *args: 1 / 0)
        patched.setattr(Live, "begin", lambda *args: 1 / 0)
        notebook.run("import torch\nx = torch.ones(3)\nprint(x.sum().item())")
        [refused] = notebook.page.ask("rows")
        assert "ZeroDivisionError" in refused["text"]["en"]
    assert capsys.readouterr() == ("3.0\n", "")
    notebook.run("x.add_(1)")
    assert notebook.rows()["x"]["version"] == [1, 1]  # the version before was not seen
    notebook.close()


def test_while_a_cell_runs_the_last_rows_are_shown(notebook):
    notebook.run("x = torch.ones(3)")
    notebook.shell.user_ns["page"] = notebook.page
    notebook.run("x.add_(1)\nheard = page.ask('rows') + page.ask('unfold', id='x') + page.ask('past', cell=2)")
    rows, refused, past = notebook.shell.user_ns["heard"]
    assert rows["rows"][0]["version"] == [0, 0]
    assert "running" in refused["text"]["en"]
    assert past["past"] is True


def test_the_past_is_bounded(notebook):
    for _ in range(55):
        notebook.run("x = torch.ones(3)")
    assert len(notebook.page.last("rows")["cells"]) == 50
    assert notebook.page.ask("past", cell=2)[0]["kind"] == "refused"
    assert notebook.page.ask("past", cell=50)[0]["cell"]["count"] == 50


def test_it_can_be_removed_and_installed_again():
    notebook = Notebook()
    notebook.run("x = 1")
    notebook.panel.remove()
    assert notebook.page.closed
    assert notebook.comms.targets == {}
    notebook.panel.install()
    FrontEnd(notebook.comms, {"version": 1})
    notebook.close()
