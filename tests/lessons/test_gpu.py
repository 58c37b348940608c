"""Experiments for a CUDA device, as far as a machine without one can tell."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from pitfall_lab.lessons import gpu
from pitfall_lab.lessons.gpu import record


@pytest.mark.parametrize("name", gpu.names())
def test_a_program_says_what_it_shows_and_leaves_a_result(name: str) -> None:
    tree = ast.parse(gpu.source(name))
    assert ast.get_docstring(tree)
    assert any(isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "result" for n in tree.body)


def test_without_a_device_an_experiment_is_replayed_or_says_why_not() -> None:
    kept = gpu.recorded()["experiments"]
    for name in gpu.names():
        if name in kept:
            found = gpu.experiment(name, live=False)
            assert found.device in found.label.en
            assert not found.live
        else:
            with pytest.raises(gpu.ExperimentFailed, match="needs a CUDA device"):
                gpu.experiment(name, live=False)


def test_a_torch_that_is_there_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(gpu.processes, "run", None)
    assert gpu.has_cuda.__wrapped__() is torch.cuda.is_available()


def test_an_unknown_experiment_is_answered_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="allocator_cache"):
        gpu.experiment("nothing")


def test_what_a_program_prints_cannot_become_html() -> None:
    shown = gpu.Recording("x", '"""<b>title"""', "<script>", {}, "dev<ice", "2", "today", live=True)._repr_html_()
    assert "<script>" not in shown
    assert "dev<ice" not in shown


def test_what_cannot_be_shown_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "has_cuda", lambda: False)
    monkeypatch.setattr(gpu, "recorded", lambda: {"experiments": {}})
    shown = gpu.show("nvidia_smi", "profiler")
    assert re.fullmatch(
        r"This takes a CUDA device; [^.]+ no recorded result [^.]+\. [^.]+:\n- .+ \(nvidia_smi\)\n- .+ \(profiler\)",
        repr(shown),
    )
    assert shown._repr_html_().count("<li>") == 2
    chinese = gpu.show("nvidia_smi", language="zh")
    assert "这需要 CUDA 设备" in chinese._repr_html_()
    assert "CUDA device" not in chinese._repr_html_() + repr(chinese).partition("\n")[0]


PROGRAM = '"""An artificial experiment."""\nprint("sum", sum(range(4)))\nresult = {"sum": 6}\n'


def test_the_script_records_what_ran_names_what_failed_and_is_replayed_with_its_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way without a device: only its name is made up. Such a file is never shipped as a recording."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "adds.py").write_text(PROGRAM)
    (programs / "breaks.py").write_text('"""Breaks."""\nraise ValueError("no such card")\n')
    monkeypatch.setattr(gpu, "files", lambda _: tmp_path)
    monkeypatch.setattr(gpu, "_HARNESS", gpu._HARNESS.replace("torch.cuda.get_device_name(0)", "'no device, made up'"))
    for module in (gpu, record):
        monkeypatch.setattr(module, "has_cuda", lambda: True)
    gpu.recorded.cache_clear()
    assert record.main([str(tmp_path / "recorded.json")]) == 1
    said = capsys.readouterr().out
    assert "1 recorded, 1 failed: breaks" in said
    assert "breaks did not run through: ValueError: no such card" in said
    kept = json.loads((tmp_path / "recorded.json").read_text())
    assert kept.keys() == {"schema", "device", "driver", "torch", "python", "date", "experiments"}
    assert kept["device"] == "no device, made up"

    monkeypatch.setattr(gpu, "has_cuda", lambda: False)
    replayed = gpu.show("adds", "breaks")
    assert [each.printed for each in replayed.recordings] == ["sum 6\n"]
    assert (
        f"recorded on no device, made up, torch {kept['torch']}, {kept['date']}; not measured on this machine"
        in repr(replayed)
    )
    assert replayed.missing == ("breaks",)

    (programs / "adds.py").write_text(PROGRAM + "# changed\n")
    with pytest.raises(gpu.ExperimentFailed, match="another program text"):
        gpu.experiment("adds")
    gpu.recorded.cache_clear()


def test_without_a_device_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "has_cuda", lambda: False)
    assert record.main([str(tmp_path / "recorded.json")]) == 2
    assert not list(tmp_path.iterdir())
