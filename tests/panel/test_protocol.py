"""What comes from a front end is one of five questions, or gets one sentence; the schema says the same as the code."""

from __future__ import annotations

import pytest

from pitfall_lab.panel import protocol
from tests.panel.notebook import FrontEnd, validator

GOOD = [
    {"ask": "watch", "visible": True, "stale": False}, {"ask": "rows"}, {"ask": "rows", "from": 500}, {"ask": "rows",
    "all": True}, {"ask": "unfold", "id": "net"}, {"ask": "picture", "id": "x", "view": "graph"}, {"ask": "past",
    "cell": 3},
]  # fmt: skip
BAD = [
    None,
    7,
    [],
    "rows",
    {},
    {"ask": "rows"},
    {"version": 2, "ask": "rows"},
    {"version": True, "ask": "rows"},
    {"version": 1, "ask": "run"},
    {"version": 1, "ask": ["rows"]},
    {"version": 1, "ask": "rows", "from": -1},
    {"version": 1, "ask": "rows", "from": 10**30},
    {"version": 1, "ask": "rows", "more": 1},
    {"version": 1, "ask": "rows", "all": 1},
    {"version": 1, "ask": "watch", "visible": 1, "stale": True},
    {"version": 1, "ask": "unfold"},
    {"version": 1, "ask": "unfold", "id": "x" * 5000},
    {"version": 1, "ask": "unfold", "id": 3},
    {"version": 1, "ask": "past", "cell": "3"},
    {"version": 1, "ask": "picture", "id": "x", "view": "<script>"},
    {"version": 1, "ask": "past", "cell": True},
]


@pytest.mark.parametrize("ask", GOOD, ids=str)
def test_what_is_asked_is_understood(ask):
    assert protocol.read({"version": 1, **ask})
    assert validator("ask").is_valid({"version": 1, **ask})


def test_a_forged_message_gets_one_sentence_and_the_schema_refuses_it_too(notebook):
    for forged in BAD:
        [answer] = notebook.page.forge(forged)
        assert answer["kind"] == "refused", forged
        if forged != {
            "version": 1,
            "ask": "past",
            "cell": True,
        }:  # to the schema's language a truth value is none, to this one too
            assert not validator("ask").is_valid(forged)


def test_a_row_that_is_not_there_is_refused(notebook):
    for gone in ("", "nothing", "net\x1fx\x1fy", "__builtins__", "In", "x\x1f__class__", "\x1f\x1f"):
        assert [answer["kind"] for answer in notebook.page.ask("unfold", id=gone)] == ["refused"]
        for view in protocol.VIEWS:
            assert [answer["kind"] for answer in notebook.page.ask("picture", id=gone, view=view)] == ["refused"]
    assert notebook.page.ask("past", cell=99)[0]["kind"] == "refused"


def test_a_row_without_memory_of_its_own_says_so(notebook):
    notebook.run("net = nn.Sequential(nn.Linear(2, 2))\nopt = torch.optim.SGD(net.parameters())")
    for row in ("net", "net\x1f0", "opt"):
        [answer] = notebook.page.ask("picture", id=row, view="storage")
        assert "no memory of its own" in answer["text"]["en"]


@pytest.mark.parametrize("opening", [{"version": 2}, {}, None, {"version": "1"}])
def test_another_version_is_refused_and_the_connection_closed(notebook, opening):
    page = FrontEnd(notebook.comms, opening)
    assert [message["kind"] for message in page.sent] == ["refused"]
    assert page.closed


def test_two_pages_each_get_what_they_watch(notebook):
    other = FrontEnd(notebook.comms, {"version": 1, "language": "zh"})
    other.ask("watch", visible=False, stale=False)
    notebook.run("x = torch.ones(3)")
    assert notebook.page.last("rows")["cell"]["count"] == 2
    assert [message["warnings"] for message in other.sent] == [[]]  # the greeting
    other.ended(None)
    notebook.run("x.add_(1)")
    assert notebook.page.last("rows")["rows"][0]["version"] == [0, 1]
