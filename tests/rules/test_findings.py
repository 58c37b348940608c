"""Rules read typed facts: the same facts give the same finding whatever torch's message says, and
missing facts break nothing.
"""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import pytest

import pitfall_lab
import pitfall_lab.rules
from pitfall_lab.rules import RULES, find, rule
from pitfall_lab.trace import LANGUAGES, Failure, T, Trace
from tests.rules.build import SIGMOID, bypassed, compared, refused


def test_rules_are_found_by_being_in_the_folder() -> None:
    folder = Path(pitfall_lab.rules.__file__).parent
    with_rule = [path for path in folder.glob("*.py") if "\nRULE = Rule(" in path.read_text(encoding="utf-8")]
    assert len(RULES) == len(with_rule) >= 4
    assert [r.code for r in RULES] == sorted({r.code for r in RULES})


@pytest.mark.parametrize("each", RULES, ids=lambda r: r.code)
def test_a_rule_is_documented_in_both_languages_with_a_bad_and_a_good_program(each: pitfall_lab.rules.Rule) -> None:
    assert rule(each.code) is each is rule(each.name)
    assert all(text.say(language).strip() for text in (each.title, each.why) for language in LANGUAGES)
    assert ast.dump(ast.parse(each.bad)) != ast.dump(ast.parse(each.good))
    assert each.name == each.name.lower().replace(" ", "-")


ALTERNATING = """import torch
a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
slow, fast = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (a, b))
for turn in range(4):
    loss = b(a(torch.ones(3, 2))).pow(2).mean()
    loss.backward()
    if turn % 2:
        slow.step()
    else:
        fast.step()
"""


def test_advice_has_the_program_s_own_lines_and_code() -> None:
    advice = next(finding.advice for finding in find(pitfall_lab.record(ALTERNATING)) if finding.rule == "PL601")
    assert advice is not None
    assert "between line 8 and the next `loss.backward()` on line 6" in advice.en


TWICE = """import torch

x = torch.tensor([3.0], requires_grad=True)
w = torch.tensor([2.0], requires_grad=True)
y = x * 2
y.sum().backward()
(y).sum().backward()
"""


@pytest.mark.parametrize(("first", "detached"), [("y.sum()", False), ("(w * y.exp()).sum()", True)])
def test_detaching_is_advised_only_where_the_first_backward_reaches_another_leaf(first: str, detached: bool) -> None:
    program = TWICE.replace("y.sum()", first, 1)
    advice = next(finding.advice for finding in find(pitfall_lab.record(program)) if finding.rule == "PL501")
    assert advice is not None
    assert (".detach()" in advice.en) == (".detach()" in advice.zh) == detached
    assert "`backward(retain_graph=True)`" in advice.en


LOGGED = """import torch

torch.manual_seed(0)
points = torch.rand(6, 2)
model = torch.nn.Linear(2, 1)
error = ((model(points) - points.sum(1)) ** 2).mean()
"""


@pytest.mark.parametrize(("rest", "trained"), [("print(error.item())\n", False), ("error.backward()\n", True)])
def test_only_what_a_backward_went_through_is_said_to_train(rest: str, trained: bool) -> None:
    (finding,) = (each for each in find(pitfall_lab.record(LOGGED + rest)) if each.rule == "PL401")
    assert ("training still moves" in finding.explanation.en) == trained
    assert ("训练也在进行" in finding.explanation.zh) == trained


def test_what_torch_refuses_comes_with_what_it_would_accept() -> None:
    (finding,) = find(pitfall_lab.record("import torch\nx = torch.ones(2, 3)\nx.view(4)\n"))
    assert finding.advice is not None
    assert finding.advice.en.startswith("What torch would accept on line 3: ")
    assert "6" in finding.advice.en


def test_names_of_the_rule_s_example_are_marked_as_such() -> None:
    program = "import torch\ncube = torch.arange(4.0).view(2, 2)\ncube[cube > 1].zero_()\nprint(cube)\n"
    (finding,) = find(pitfall_lab.record(program))
    assert finding.advice is not None
    assert finding.advice.en.endswith("(names as in the rule's example).")


def test_an_unknown_rule_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        rule("PL999")


def test_a_refused_backward_names_save_change_and_backward() -> None:
    (finding,) = find(refused())
    assert (finding.rule, finding.severity, finding.predicted) == ("PL101", "error", True)
    assert finding.span is not None
    assert finding.span.line == 4
    assert [(r.role, r.span and r.span.line) for r in finding.related] == [
        ("saved", 3),
        ("changed", 4),
        ("backward", 5),
    ]
    assert finding.fact("expected") == 0
    assert finding.fact("found") == 1
    assert not any(fix.verified for fix in finding.fixes)


def test_the_message_of_torch_is_never_read() -> None:
    one, other = find(refused(message="")), find(refused(message="[torch.CudaFloatTensor [7]] is at version 99"))
    assert one == other


def test_a_failure_nobody_forecast_is_found_but_not_called_predicted() -> None:
    (finding,) = find(refused(forecast=False))
    assert not finding.predicted


def test_a_write_that_could_break_a_backward_that_never_ran_draws_nothing() -> None:
    assert find(refused(raised=False)) == []


def test_without_the_steps_of_the_writes_the_counter_tells_them() -> None:
    (finding,) = find(refused(changed_at=(), forecast=False))
    assert finding.span is not None
    assert finding.span.line == 4


def test_without_any_place_in_the_source_there_is_still_a_finding() -> None:
    trace = refused()
    bare = dataclasses.replace(trace, sources=(), events=tuple(dataclasses.replace(e, span=None) for e in trace.events))
    (finding,) = find(bare)
    assert finding.fixes == ()
    assert json.loads(json.dumps(finding.to_dict()))["rule"] == "PL101"


def test_a_finding_as_json_counts_lines_and_columns_from_one() -> None:
    found = find(refused())[0].to_dict()
    assert list(found) == [
        "rule",
        "name",
        "severity",
        "line",
        "column",
        "end_line",
        "end_column",
        "predicted",
        "message",
        "related",
        "fixes",
    ]
    assert (found["line"], found["column"], found["end_column"]) == (4, 1, 11)
    assert SIGMOID.split("\n")[3][found["column"] - 1 : found["end_column"] - 1] == "h.mul_(10)"
    assert list(found["related"][0]) == ["role", "line", "column", "message"]
    assert list(found["fixes"][0]) == ["title", "edits", "verified"]
    assert list(found["fixes"][0]["edits"][0]) == ["line", "end_line", "text"]


@pytest.mark.parametrize(
    "trace", [refused(), bypassed([200.0, 8.0], [8.0, 8.0]), compared([4, 1], [4])], ids=["PL101", "PL301", "PL401"]
)
def test_both_languages_say_something_of_their_own(trace: Trace) -> None:
    (finding,) = find(trace)
    texts = [
        finding.message,
        finding.explanation,
        *(r.message for r in finding.related),
        *(fix.title for fix in finding.fixes),
    ]
    for text in texts:
        assert text.en.isascii() or "…" in text.en
        assert any("\u4e00" <= c <= "\u9fff" for c in text.zh), text.zh


def test_a_silently_wrong_gradient_is_a_warning_with_both_numbers() -> None:
    (finding,) = find(bypassed([200.0, 8.0], [8.0, 8.0]))
    assert (finding.rule, finding.severity) == ("PL301", "warning")
    assert finding.fact("gradient") == [200.0, 8.0]
    assert finding.fact("meant") == [8.0, 8.0]
    assert "one of its numbers is 200 instead of 8" in finding.message.en
    assert {r.role: r.span and r.span.line for r in finding.related} == {
        "saved": 3,
        "changed": 5,
        "alias": 4,
        "backward": 6,
    }


def test_of_a_long_gradient_the_cells_that_differ_are_shown() -> None:
    got = {"count": 20, "shown": [[0, 1.0], [7, 99.0]]}
    meant = {"count": 20, "shown": [[0, 1.0], [7, 3.0]]}
    (finding,) = find(bypassed(got, meant))
    assert "one of its numbers is 99 instead of 3" in finding.message.en


@pytest.mark.parametrize(("left", "right"), [([4, 1], [4]), ([4], [4, 1]), ([3, 3, 1], [3, 3])])
def test_a_column_against_a_row_is_found_in_a_loss(left: list[int], right: list[int]) -> None:
    (finding,) = find(compared(left, right))
    assert (finding.rule, finding.severity, finding.span and finding.span.line) == ("PL401", "warning", 4)


@pytest.mark.parametrize(
    ("left", "right"), [([4], [4]), ([4, 1], [4, 1]), ([1, 1], [1]), ([4, 2], [2]), ([4, 1], []), ([4, 1], [1])]
)
def test_shapes_that_fit_draw_nothing(left: list[int], right: list[int]) -> None:
    assert find(compared(left, right)) == []


def test_the_same_place_in_a_loop_is_one_finding() -> None:
    trace = compared([4, 1], [4])
    again = tuple(dataclasses.replace(e, step=e.step + 3) for e in trace.events)
    assert len(find(dataclasses.replace(trace, events=trace.events + again))) == 1


def test_an_empty_trace_has_no_finding() -> None:
    assert find(Trace()) == []


def test_an_error_whose_text_differs_from_the_forecast_in_a_detail_is_still_explained() -> None:
    start = "one of the variables needed for gradient computation has been modified by an inplace operation: "
    trace = refused(raised=False)
    event = trace.events[2]
    forecast = dataclasses.replace(
        event.forecasts[0],
        failure=dataclasses.replace(event.forecasts[0].failure, message=start + "[3] is at version 1"),
    )
    for message, expected in (
        (start + "[3], which is output 0 of Sigmoid, is at version 1", ["PL101"]),
        ("some other error", ["PLE90"]),
    ):
        failure = Failure("RuntimeError", message, "other", 3, trace.events[3].span)
        events = (
            *trace.events[:2],
            dataclasses.replace(event, forecasts=(forecast,)),
            dataclasses.replace(trace.events[3], error=failure),
        )
        assert [f.rule for f in find(dataclasses.replace(trace, events=events))] == expected


@pytest.mark.parametrize(
    ("got", "meant"), [(None, None), (None, [1.0]), ([1e-9, 0.0], [-3e-9, 0.0]), ([1.0, 2.0], [1.00001, 2.0])]
)
def test_a_gradient_that_is_unknown_or_only_rounded_otherwise_draws_nothing(got: object, meant: object) -> None:
    assert find(bypassed(got, meant)) == []


def test_a_small_gradient_can_be_wrong() -> None:
    assert [f.rule for f in find(bypassed([2e-5, 1e-5], [1e-5, 1e-5]))] == ["PL301"]


def test_a_special_rule_speaks_instead_of_the_general_one(monkeypatch: pytest.MonkeyPatch) -> None:
    (general,) = find(refused())
    text = T(en="special", zh="特例")
    special = dataclasses.replace(
        rule("PL104"),
        code="PL199",
        name="special",
        refine=lambda _, finding: special.instead(finding, text, text),
        refines=("PL101",),
    )
    monkeypatch.setattr(pitfall_lab.rules, "RULES", (*RULES, special))
    (finding,) = find(refused())
    assert (finding.rule, finding.name, finding.message) == ("PL199", "special", text)
    assert (finding.span, finding.step, finding.facts, finding.fixes) == (
        general.span,
        general.step,
        general.facts,
        general.fixes,
    )


def test_special_rules_refine_rules_that_there_are_and_never_each_other_in_turn() -> None:
    for each in RULES:
        seen = {each.code}
        above = list(each.refines)
        while above:
            code = above.pop()
            assert code not in seen
            seen.add(code)
            above += rule(code).refines


def test_a_residual_sum_is_said_to_be_added_onto_what_its_own_line_writes():
    trace = pitfall_lab.record(
        "import torch\nclass Block(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.f = torch.nn.Linear(2, 2)\n    def forward(self, x):\n        h = torch.sigmoid(x)\n"
        "        h = self.f(h * x)\n        x += h\n        return x\n"
        "block = Block()\nx = torch.ones(3, 2, requires_grad=True)\ny = block(x * 2)\ny.sum().backward()\n"
    )
    [finding] = [one for one in find(trace) if one.rule == "PL105"]
    assert "`x += h` adds onto `x` in place" in finding.message.en
    assert "`x += h` 就地加到 `x` 上" in finding.message.zh


AVERAGED = """import torch
online = torch.nn.Linear(2, 1)
target, opt = online, torch.optim.SGD(online.parameters(), lr=0.1)
online(torch.ones(2)).square().sum().backward()
opt.step()
with torch.no_grad():
    for t, s in zip(target.parameters(), online.parameters()):
        t.{name}
"""
ROUNDED = """import torch
net, x = torch.nn.Linear(2, 1), torch.randn(12, 2)
y = (x[:, :1] > 0).float()
torch.nn.functional.binary_cross_entropy_with_logits(net(x), y).backward()
new = net(x).detach()
print((({guess}).float() == y).float().mean())
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (AVERAGED.format(name="lerp_(s, 0.1)"), "averages `target.weight` with itself"),
        (AVERAGED.format(name="copy_(s)"), "copies `target.weight` onto itself"),
        (ROUNDED.format(guess="new.round()"), "Line 6 rounds `new` as if it were a probability"),
        (ROUNDED.format(guess="new > 0.3"), "Line 6 compares `new` with 0.3 as if it were a probability"),
        ("import torch\nmarks = torch.tensor([0, 1, 1], dtype=torch.uint8)\nprint(~marks)\n", "`~n` is `255 - n`."),
        ("import torch\nmarks = torch.tensor([0, 1, 1])\nprint(~marks)\n", "`~n` is `-n - 1`."),
        (
            "import torch\nmarks, x = torch.tensor([0, 1, 1, 0]), torch.arange(4.0)\nprint(x[marks])\n",
            "one of this dtype is a list of row numbers",
        ),
    ],
)
def test_a_sentence_says_what_the_line_does_and_not_what_the_rule_s_example_does(program: str, said: str) -> None:
    [finding] = find(pitfall_lab.record(program))
    assert said in f"{finding.message.en} {finding.explanation.en}"
