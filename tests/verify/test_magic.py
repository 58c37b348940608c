"""``%%pitfall`` in a real IPython shell: the cell behaves as it would without it."""

from __future__ import annotations

import gc
import json
import subprocess
import threading
import time
import zlib

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab import views
from pitfall_lab.notebook import fix_runs, magic
from pitfall_lab.widgets.explorer import Explorer

FAILS = "h = x.sigmoid()\nh.mul_(2)\nh.sum().backward()"


@pytest.fixture
def shell(monkeypatch):
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shown: list[object] = []
    monkeypatch.setattr("IPython.display.display", lambda *objects, **_: shown.extend(objects))
    monkeypatch.setattr(fix_runs.Bench, "warm", lambda self: None)
    monkeypatch.setattr(fix_runs.Bench, "close", lambda self: None)  # one process is enough for all tests
    shell.shown = shown
    shell.run_line_magic("load_ext", "pitfall_lab")
    shell.run_cell("import torch\nx = torch.ones(3, requires_grad=True)")
    yield shell
    magic.unload_ipython_extension(shell)
    InteractiveShell.clear_instance()


def explorers(shell):
    return [o for o in shell.shown if isinstance(o, Explorer)]


def test_the_cell_runs_in_the_users_namespace_and_an_explorer_appears(shell):
    result = shell.run_cell("%%pitfall\ny = x * 2\ny")
    assert result.success
    assert result.result is shell.user_ns["y"]
    [explorer] = explorers(shell)
    assert explorer.trace.outcome.kind == "finished"


def test_an_error_is_shown_by_ipython_as_usual_and_without_our_frames(shell, capsys):
    result = shell.run_cell(f"%%pitfall\n{FAILS}")
    assert isinstance(result.error_in_exec, RuntimeError)
    printed = capsys.readouterr().out
    assert "modified by an inplace operation" in printed
    assert "recorder.py" not in printed
    assert "_pitfall_lab_run" not in printed
    [explorer] = explorers(shell)
    assert explorer.trace.outcome.failure.kind == "saved-tensor-modified"
    assert [f.rule for f in explorer.findings] == ["PL101"]


def test_a_syntax_error_is_ipythons_and_the_explorer_says_the_cell_was_not_run(shell):
    result = shell.run_cell("%%pitfall\ny = = 2")
    assert isinstance(result.error_before_exec, SyntaxError)
    [explorer] = explorers(shell)
    assert "not run" in explorer.trace.notes[0].en


def test_options_that_are_not_understood_get_one_sentence_and_the_cell_runs(shell, capsys):
    result = shell.run_cell("%%pitfall --colour red\nz = 5")
    assert result.success
    assert shell.user_ns["z"] == 5
    assert capsys.readouterr().out.startswith("pitfall_lab did not watch this cell: ")
    assert explorers(shell) == []


def test_cells_without_the_magic_are_left_alone(shell):
    shell.run_cell("y = x * 2")
    assert explorers(shell) == []


def test_a_training_cell_that_was_run_before_is_judged_as_the_first_time(shell):
    shell.run_cell("w = torch.ones(3, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)")
    loop = "for _ in range(3):\n    loss = (w * w).sum()\n    loss.backward()\n    opt.step()"
    for cell in (loop, f"%%pitfall\n{loop}"):
        assert shell.run_cell(cell).success
    assert [f.rule for f in explorers(shell)[0].findings] == ["PL601"]


def test_magics_inside_the_cell_work(shell):
    assert shell.run_cell("%%pitfall\n%time y = x + 1").success
    assert explorers(shell)


def test_loading_twice_changes_nothing(shell):
    before = len(shell.input_transformers_cleanup)
    shell.run_line_magic("load_ext", "pitfall_lab")
    magic.load_ipython_extension(shell)
    assert len(shell.input_transformers_cleanup) == before


def test_unloading_takes_the_magic_away(shell):
    before = len(shell.input_transformers_cleanup)
    magic.unload_ipython_extension(shell)
    assert len(shell.input_transformers_cleanup) == before - 1
    magic.load_ipython_extension(shell)


def test_a_failure_while_showing_is_one_sentence(shell, monkeypatch, capsys):
    monkeypatch.setattr(magic.Watcher, "_show", lambda *_: 1 / 0)
    assert shell.run_cell("%%pitfall\ny = x * 2").success
    assert capsys.readouterr().out.startswith("pitfall_lab could not show this cell: ZeroDivisionError")


def test_the_language_is_passed_on(shell):
    shell.run_cell("%%pitfall --language zh\ny = x * 2")
    assert explorers(shell)[0].language == "zh"


def test_a_fix_is_tried_with_what_the_cell_used_of_earlier_cells(shell):
    shell.run_cell("def act(v):\n    return torch.sigmoid(v)\nscale = 2.5")
    shell.run_cell("%%pitfall\nh = act(x) * scale\nh = h.exp()\nh.mul_(2)\nh.sum().backward()")
    [finding] = explorers(shell)[0].findings
    assert finding.fixes
    assert all(fix.verified for fix in finding.fixes)


def test_a_cell_that_cannot_be_repeated_gets_its_findings_without_fixes(shell):
    shell.run_cell("y = x * 2")  # not a leaf: it cannot be written down as source
    shell.run_cell("%%pitfall\nh = y.exp()\nh.mul_(2)\nh.sum().backward()")
    [finding] = explorers(shell)[0].findings
    assert (finding.rule, finding.fixes) == ("PL101", ())


MEMORY = """from torch import nn
class GatedMemory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.register_buffer("memory", torch.zeros(width))
    def forward(self, series):
        out, memory = [], self.memory.clone()
        for x in series:
            out.append(torch.sigmoid(self.gate(x)) * memory)
            memory += x
        return torch.stack(out)"""
LOOP = """for epoch in range(2):
    optimizer.zero_grad()
    loss = (model(series) ** 2).mean()
    loss.backward()
    optimizer.step()"""


def test_a_class_of_one_cell_and_the_loop_of_another_are_one_program(shell):
    shell.run_cell(MEMORY, store_history=True)
    made = "model = GatedMemory(3)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nseries = torch.randn(4, 3)"
    shell.run_cell(made, store_history=True)
    shell.run_cell(f"%%pitfall\n{LOOP}", store_history=True)
    explorer = explorers(shell)[-1]
    [finding] = explorer.findings
    assert finding.message.en.startswith(
        "In [1], line 11 writes new values into `memory`, but the backward pass on In [3], line 4"
    )
    assert [fix.verified for fix in finding.fixes] == [True, True]
    [story] = views.scene(explorer.trace, explorer.findings)["stories"]
    assert [beat["place"]["en"] for beat in story["beats"]] == ["In [1], line 10", "In [1], line 11", "In [3], line 4"]
    assert [(edit["name"], edit["own"]) for edit in story["fixes"][0]["edits"]] == [("In [1]", 11)]
    assert ".py" not in json.dumps(story)


STATE = """from torch import nn
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 3)
    def forward(self, x, hidden=None):
        y, hidden = self.rnn(x, hidden)
        return self.out(y), hidden"""
CARRIED = """hidden = None
for at in range(0, 8, 4):
    part = series[:, at:at + 4]
    optimizer.zero_grad()
    out, hidden = model(part, hidden)
    loss = (out - part).square().mean()
    loss.backward()
    optimizer.step()"""


def test_a_state_carried_through_a_model_of_an_earlier_cell_was_not_computed_before_the_loop(shell):
    shell.run_cell(STATE, store_history=True)
    made = "model = Reader()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nseries = torch.randn(1, 8, 3)"
    shell.run_cell(made, store_history=True)
    shell.run_cell(f"%%pitfall\n{CARRIED}", store_history=True)
    [finding] = explorers(shell)[-1].findings
    assert finding.rule == "PL502"
    assert finding.message.en.startswith("`hidden` still has the graph of an earlier round")
    assert finding.fixes[0].verified


def test_a_page_that_names_its_cells_is_drawn_before_the_fixes_are_tried(shell, monkeypatch):
    later = []
    monkeypatch.setattr(Explorer, "_behind", staticmethod(later.append))
    shell.run_cell(f"%%pitfall\n{FAILS}", cell_id="seven")
    [explorer] = explorers(shell)
    assert [finding.fixes for finding in explorer.findings] == [()]
    assert explorer._tried == b""
    sent = []
    explorer.observe(lambda change: sent.append(json.loads(zlib.decompress(change.new))), "_tried")
    later.pop()()
    assert [one["trials"]["done"] for one in sent] == sorted(one["trials"]["done"] for one in sent)
    assert len(sent) > 2
    assert (sent[0]["trying"], sent[-1]["trying"], sent[-1]["trials"]["state"]) == (True, False, "done")
    fixes = sent[-1]["stories"][0]["fixes"]
    assert fixes
    assert all(fix["verified"] and fix["edits"][0]["cell"] == "seven" for fix in fixes)
    assert sent[-1]["changes"][0]["id"] == "fix-1"


def test_a_verified_fix_comes_into_the_stored_page_of_which_nothing_else_is_made_again(shell, monkeypatch):
    later, ids, stored = [], [], []
    monkeypatch.setattr(Explorer, "_behind", staticmethod(later.append))
    monkeypatch.setattr(type(shell.display_pub), "publish", lambda self, data, *_, **more: stored.append((data, more)))
    monkeypatch.setattr("pitfall_lab.widgets.front_end.is_page_connected", lambda: True)
    made = []
    monkeypatch.setattr(
        views, "page", lambda *args, page=views.page, **more: made.append(page(*args, **more)) or made[-1]
    )
    monkeypatch.setattr(
        "IPython.display.display", lambda one, **more: (one._repr_mimebundle_(), ids.append(more["display_id"]))
    )
    shell.run_cell(f"%%pitfall\n{FAILS}", cell_id="seven")
    assert (len(made), stored) == (1, [])
    while later:
        later.pop(0)()
    [(data, more)] = stored
    assert len(made) == 1, "the page is written once"
    assert (more["transient"], more["update"]) == ({"display_id": ids[0]}, True)
    before, after = made[0], data["text/html"]
    assert "What to do (not tried here)" in before
    assert "applied and re-run: it works" not in before
    assert "What to do" not in after
    assert "applied and re-run: it works" in after
    assert "− h.mul_(2)\n+ h = h * 2" in after
    cut = "<h2>", "<ol"
    assert before[: before.index(cut[0])] == after[: after.index(cut[0])]
    assert before[before.index(cut[1]) :] == after[after.index(cut[1]) :]
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"]


def test_without_the_extension_the_stored_page_stays_as_it_was_displayed(shell, monkeypatch):
    later, more = [], []
    monkeypatch.setattr(Explorer, "_behind", staticmethod(later.append))
    monkeypatch.setattr(type(shell.display_pub), "publish", lambda *_, **__: pytest.fail("shown again"))
    monkeypatch.setattr("IPython.display.display", lambda one, **given: (one._repr_mimebundle_(), more.append(given)))
    shell.run_cell(f"%%pitfall\n{FAILS}", cell_id="seven")
    while later:
        later.pop(0)()
    assert more == [{}]


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_waits_while_an_explorer_is_drawn_and_is_then_as_it_was(shell, monkeypatch, on):
    seen = []
    made = Explorer.__init__
    monkeypatch.setattr(
        Explorer, "__init__", lambda self, *args, **more: (seen.append(gc.isenabled()), made(self, *args, **more))[1]
    )
    (gc.enable if on else gc.disable)()
    try:
        shell.run_cell("%%pitfall\n1 + 1", cell_id="seven")
        assert (seen, gc.isenabled()) == ([False], on)
    finally:
        gc.enable()


def test_the_fixes_of_all_cells_are_tried_the_newest_first_and_those_of_a_cell_that_ran_again_are_not(
    shell, monkeypatch
):
    ended = []
    tell = Explorer._tell
    monkeypatch.setattr(
        Explorer, "_tell", lambda self, state, *more: (ended.append((state, self)), tell(self, state, *more))
    )
    with fix_runs.bench().lock:  # all of them wait for the first run
        for number, cell in enumerate(("seven", "eight", "eight"), 1):
            shell.run_cell(f"%%pitfall\n{FAILS}", cell_id=cell)
            wait_until(lambda number=number: len(ended) >= number)
    seven, before, eight = explorers(shell)
    wait_until(lambda: ("done", seven) in ended)
    assert [end for end in ended if end[0] != "trying"] == [("stopped", before), ("done", eight), ("done", seven)]
    assert seven.findings[0].fixes


def wait_until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_stop_ends_the_run_that_is_going_on(shell, monkeypatch):
    monkeypatch.setattr(Explorer, "_behind", staticmethod(lambda work: None))
    shell.run_cell(f"%%pitfall\n{FAILS}", cell_id="seven")
    explorer = explorers(shell)[0]
    threading.Timer(0.5, lambda: explorer._received(explorer, {"stop": True}, [])).start()
    with pytest.raises(fix_runs.Stopped):
        explorer._lab.rerun("while True: pass")
    monkeypatch.undo()
    explorer._trying()
    assert explorer.findings[0].fixes  # the next run has a new process


def test_what_cannot_be_taken_along_is_named(shell):
    shell.run_cell("scale = (x for x in [2.0])")
    shell.run_cell("%%pitfall\nh = (x * next(scale)).exp()\nh.mul_(2)\nh.sum().backward()")
    explorer = explorers(shell)[0]
    told = json.loads(zlib.decompress(explorer._tried))
    assert told["trials"]["state"] == "refused"
    assert (
        told["trials"]["said"]["en"]
        == "No fix was tried: `scale` of an earlier cell cannot be taken along into another process."
    )


def what_if(explorer, monkeypatch, change):
    """What the page gets when the reader tries a change."""
    sent = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers=(): sent.append(content))
    explorer._what_if(change)
    [answer] = sent
    return answer


def test_what_cannot_be_run_again_has_no_changes_to_try(shell):
    shell.run_cell("w = torch.ones(3, 3, requires_grad=True)\nv = torch.ones(3)\nloss = ((v @ w) ** 2).mean()")
    shell.run_cell("%%pitfall\nv.add_(1)\nloss.backward()")
    explorer = explorers(shell)[0]
    assert [finding.rule for finding in explorer.findings] == ["PL101"]
    assert explorer._changes == {}, "each would end in a NameError: `loss` is not there in another process"
    assert json.loads(zlib.decompress(explorer._scene))["changes"] == []


def test_a_change_is_run_with_the_class_of_an_earlier_cell(shell, monkeypatch):
    shell.run_cell(MEMORY, store_history=True)
    made = "model = GatedMemory(3)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nseries = torch.randn(4, 3)"
    shell.run_cell(made, store_history=True)
    shell.run_cell(f"%%pitfall\n{LOOP}", store_history=True)
    explorer = explorers(shell)[-1]
    assert explorer._changes
    answers = [what_if(explorer, monkeypatch, change) for change in list(explorer._changes.values())[:3]]
    assert not [answer for answer in answers if "failed" in answer]
    assert any(answer["compared"]["sides"][1]["raised"] == "" for answer in answers), "one of them repairs it"


LONG = """torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.randn(16, 4)
for step in range(ROUNDS):
    h = net[:2](data)
    loss = net[2](h).square().mean()
    if step == ROUNDS - 1:
        h.mul_(0.5)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


SEEN = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from pitfall_lab.observe.rounds import SHOWN
from pitfall_lab.verify.writer import EVENT_LIMIT
from pitfall_lab.widgets.explorer import Explorer
shell, shown = InteractiveShell.instance(), []
sys.modules["IPython.display"].display = lambda *objects, **_: shown.extend(objects)
shell.run_line_magic("load_ext", "pitfall_lab")
shell.run_cell("import torch")
shell.run_cell(sys.argv[1])
[explorer] = [each for each in shown if isinstance(each, Explorer)]
trace = explorer.trace
assert trace.stopped is None, trace.stopped
assert SHOWN <= len(trace.events) < EVENT_LIMIT, len(trace.events)
assert trace.outcome.failure.kind == "saved-tensor-modified", trace.outcome
assert [finding.rule for finding in explorer.findings] == ["PL101"], explorer.findings
*_, gap = trace.reach.gaps
assert next(event.op for event in trace.events[gap.step :] if event.span is not None) == "torch.Tensor.mul_"
assert sum(gap.calls for gap in trace.reach.gaps) > 400
print("seen to its end")
"""


def test_a_long_training_is_seen_to_its_end_and_its_gaps_are_named(warm_python, tmp_path):
    """In a process of its own, as a kernel is. In one that has run thousands of other tests the rounds were all
    recorded twice, for a reason that is not known yet.
    """
    done = subprocess.run(  # some 27,000 steps
        [warm_python, "-c", SEEN, "%%pitfall\n" + LONG.replace("ROUNDS", "1000")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "seen to its end" in done.stdout, done.stderr[-1500:]


def test_a_short_training_has_no_gaps(shell):
    shell.run_cell("%%pitfall\n" + LONG.replace("ROUNDS", "30"))
    [explorer] = explorers(shell)
    assert explorer.trace.reach.gaps == explorer.trace.unseen == ()
