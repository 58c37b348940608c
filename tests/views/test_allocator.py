"""The caching allocator's picture, from an artificial recording: its numbers are made up, and its device says so."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from pitfall_lab import show_allocator
from pitfall_lab.lessons import gpu
from tests.frontend.test_hostile import INJECTIONS

POINTS = [("start", 0, 2), ("x = randn(…)", 100, 120), ("x = None", 0, 120), ("empty_cache()", 0, 2)]
ROWS = [{"step": where, "allocated_mib": allocated, "reserved_mib": reserved} for where, allocated, reserved in POINTS]
SIDE_BY_SIDE = [
    {"kind": kind, "points": [{**row, "where": row["step"]} for row in ROWS]} for kind in ("out of place", "in place")
]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    kept = {
        "schema": 1,
        "device": "INVENTED for tests, no such GPU",
        "driver": None,
        "torch": "0.0.0",
        "date": "1970-01-01",
        "experiments": {
            "allocator_cache": {"program": gpu.fingerprint("allocator_cache"), "printed": "", "result": {"rows": ROWS}},
            "memory_timeline": {
                "program": gpu.fingerprint("memory_timeline"),
                "printed": "",
                "result": {"rows": SIDE_BY_SIDE},
            },
            "nvidia_smi": {"program": gpu.fingerprint("nvidia_smi"), "printed": "", "result": {"rows": []}},
        },
    }
    path = tmp_path / "artificial.json"
    path.write_text(json.dumps(kept), encoding="utf-8")
    return path


def test_no_recording_is_shipped_yet_and_the_picture_says_so(monkeypatch: pytest.MonkeyPatch):
    assert not (Path(gpu.__file__).with_name("recorded.json")).exists(), (
        "then this test is to be replaced by one of the recording"
    )
    monkeypatch.setattr(gpu, "has_cuda", lambda: False)
    picture = show_allocator()
    assert picture.svg == ""
    assert "no recorded result is included" in picture.text
    assert "还没有随附录制" in show_allocator(language="zh").text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_replayed_says_where_it_comes_from_in_the_picture_and_in_words(recording: Path, language: str):
    picture = show_allocator("allocator_cache", file=recording, language=language)
    for said in (picture.svg, picture.text, picture.html):
        assert "INVENTED for tests" in said
        assert "1970-01-01" in said
        assert ("并非本机实测" if language == "zh" else "not measured on this machine") in said


def test_every_point_has_both_numbers(recording: Path):
    picture = show_allocator("allocator_cache", file=recording)
    assert "x = None: allocated 0 B, reserved 120 MiB" in picture.text
    assert all(f">{where}</text>" in picture.svg for where, _, _ in POINTS)


def test_the_curves_have_the_right_heights(recording: Path):
    svg = show_allocator("allocator_cache", file=recording).svg
    reserved, allocated = re.findall(r'd="M76\.0,220\.0((?:V[\d.]+h[\d.]+)+)', svg)[:2]
    heights = [[220 - float(y) for y in re.findall(r"V([\d.]+)h", one)] for one in (reserved, allocated)]
    assert heights[0] == pytest.approx([3, 180, 180, 3], abs=0.06)
    assert heights[1] == pytest.approx([0, 150, 0, 0], abs=0.06)


def test_runs_stand_side_by_side(recording: Path):
    picture = show_allocator("memory_timeline", file=recording)
    assert "out of place · 100 MiB" in picture.svg
    assert "in place · 100 MiB" in picture.svg


def test_what_counts_nothing_and_what_is_no_recording_is_one_sentence(recording: Path, tmp_path: Path):
    assert "counts no allocated and reserved bytes" in show_allocator("nvidia_smi", file=recording).text
    for text in ("", "7", "{}", '{"experiments": 5}', recording.read_text(encoding="utf-8")[:60]):
        bad = tmp_path / "bad.json"
        bad.write_text(text, encoding="utf-8")
        assert "is not a recording" in show_allocator(file=bad).text
    assert "is not a recording" in show_allocator(file=tmp_path / "missing.json").text
    with pytest.raises(KeyError, match="allocator_cache"):
        show_allocator("nothing", file=recording)


@pytest.mark.parametrize("text", INJECTIONS)
def test_a_hostile_recording_stays_text(recording: Path, text: str):
    kept = json.loads(recording.read_text(encoding="utf-8"))
    kept["device"] = text
    kept["experiments"]["allocator_cache"]["result"]["rows"][0]["step"] = text
    recording.write_text(json.dumps(kept), encoding="utf-8")
    shown = show_allocator(file=recording).html
    assert html.escape(text) in shown
    assert "<" not in text or text not in shown
