"""Every switch of the Policy changes the outcome of a program; the default is what the running torch prints."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings

import pytest

from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.shadow import TORCH, Policy
from pitfall_lab.shadow.beliefs import BELIEFS, file, outcome, page
from pitfall_lab.trace import LANGUAGES, Language

SWITCHES = [field.name for field in dataclasses.fields(Policy)]


def test_every_switch_stands_for_a_belief_and_is_off_in_torch() -> None:
    assert list(BELIEFS) == SWITCHES
    assert Policy() == TORCH
    assert not any(dataclasses.astuple(TORCH))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(TORCH, SWITCHES[0], True)


@pytest.mark.parametrize("switch", SWITCHES)
def test_the_belief_predicts_something_else_than_torch_does(switch: str) -> None:
    belief, printed = BELIEFS[switch], io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(printed):
            exec(belief.source, {})
        default, believed = outcome(belief, TORCH), outcome(belief, Policy(**{switch: True}))
    assert default == printed.getvalue(), "the default policy is not torch's"
    assert believed != default


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_belief_is_said_in_both_languages(switch: str) -> None:
    says = BELIEFS[switch].says
    assert says.en.endswith(".")
    assert says.zh.endswith("。")


@pytest.mark.parametrize("key", MISCONCEPTIONS)
def test_a_misconception_is_a_switch(key: str) -> None:
    assert MISCONCEPTIONS[key](TORCH) != TORCH


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_is_fresh(language: Language) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert file(language).read_text("utf-8") == page(language), (
            "python -m pitfall_lab.shadow.beliefs writes it anew"
        )
