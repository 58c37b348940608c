"""Experiments for a CUDA device, as far as a machine without one can tell."""

from __future__ import annotations

import ast

import pytest

from pitfall_lab.lessons import gpu


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


def test_an_unknown_experiment_is_answered_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="allocator_cache"):
        gpu.experiment("nothing")


def test_what_a_program_prints_cannot_become_html() -> None:
    shown = gpu.Recording("x", '"""<b>title"""', "<script>", {}, "dev<ice", "2", "today", live=True)._repr_html_()
    assert "<script>" not in shown
    assert "dev<ice" not in shown
