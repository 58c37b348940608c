"""The browser's types are those of Python, and what is sent has these types."""

from __future__ import annotations

import contextlib
import io
import typing
from typing import Any

import pytest
import typeguard

import pitfall_lab
from pitfall_lab import views
from pitfall_lab.reference import browser_types
from pitfall_lab.rules import RULES, find
from pitfall_lab.rules.kit.expected_marks import plain
from pitfall_lab.trace.replay import replay
from pitfall_lab.trace.state_types import State
from pitfall_lab.views.compare import ComparedRuns, compare
from pitfall_lab.views.finding_pictures import FindingPicture
from pitfall_lab.views.tabs import tabs
from tests import corpus
from tests.views.test_pictures import CUT, SAVED, TABLE, TWICE

ALL = typeguard.CollectionCheckStrategy.ALL_ITEMS
ITS_OWN = ("PL408", "PL414", "PL420", "PL621")
"""Rules whose example has a picture of another kind."""
TEXTS = (
    *(SAVED, TWICE, TABLE, CUT, (corpus.FOLDER / "gan.py").read_text(encoding="utf-8")),
    *(plain(rule.bad) for rule in RULES if rule.code in ITS_OWN),
)


def test_the_file_is_what_the_types_say():
    assert browser_types.FILE.read_text(encoding="utf-8") == browser_types.text(), (
        "run `python -m pitfall_lab.reference.browser_types`"
    )


def test_a_folder_with_a_tab_is_the_registration_of_a_view():
    assert browser_types.TABS.read_text(encoding="utf-8") == browser_types.listed(), (
        "run `python -m pitfall_lab.reference.browser_types`"
    )
    assert list(tabs())[:2] == ["graph", "storage"]
    assert [tab.place for tab in tabs().values()] == sorted(tab.place for tab in tabs().values())
    assert len({tab.place for tab in tabs().values()}) == len(tabs())
    assert set(tabs()) < set(views.names())
    for name, tab in tabs().items():
        script = browser_types.TABS.with_name(f"{name}.ts").read_text(encoding="utf-8")
        assert f"export const {name}: View = {{" in script
        assert f'title: {{ en: "{tab.title.en}", zh: "{tab.title.zh}" }}' in script


@pytest.fixture(scope="module")
def traces():
    with contextlib.redirect_stdout(io.StringIO()):
        return [pitfall_lab.record(text) for text in TEXTS]


def fits(value: Any, kind: Any) -> None:
    typeguard.check_type(paired(value), kind, collection_check_strategy=ALL)


def paired(value: Any) -> Any:
    """``value`` with the pairs of shortened cells as tuples: a trace has them as lists, which is the same in JSON."""
    if isinstance(value, dict):
        return {
            key: [tuple(one) for one in member] if key == "shown" else paired(member) for key, member in value.items()
        }
    return [paired(one) for one in value] if isinstance(value, list) else value


def test_what_is_sent_has_these_types(traces):
    hints = typing.get_type_hints(views.CommonScene)
    for trace in traces:
        scene = views.scene(trace, find(trace))
        for name in views.names():
            fits(scene.pop(name), browser_types.scene_type(name))
        assert scene.keys() <= hints.keys()
        for key, value in scene.items():
            fits(value, hints[key])
        fits(replay(trace), State)


def test_the_pictures_of_findings_were_all_met(traces):
    drawn = {story["picture"]["kind"] for trace in traces for story in views.scene(trace, find(trace))["stories"]}
    known = {typing.get_args(typing.get_type_hints(kind)["kind"])[0] for kind in typing.get_args(FindingPicture)}
    assert drawn == known >= {"time", "table", "sum", "path", "axes", "curve", "looks", "pairs"}


def test_a_comparison_has_its_type(traces):
    one, other, *_ = traces
    fits(compare(one, other), ComparedRuns)


def test_a_type_that_does_not_fit_is_found(traces):
    scene = views.scene(next(iter(traces)))
    scene["memory"]["bands"] = [{"id": 7}]
    with pytest.raises(typeguard.TypeCheckError):
        fits(scene["memory"], browser_types.scene_type("memory"))
