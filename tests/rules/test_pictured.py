"""What a finding has drawn: rows of which nothing is known take no room."""

from __future__ import annotations

from pitfall_lab.rules.kit.pictured import looks


def test_rows_and_columns_of_which_nothing_is_known_are_left_out() -> None:
    known = {(0, 0): True, (0, 1): True, (63, 11): False}
    (fact,) = looks((64, 12), lambda r, c: known.get((r, c)), lambda r, c: (r, c) != (0, 1), examples=True)
    assert fact.value == {
        "of": (64, 12),
        "rows": (0, 63),
        "columns": (0, 1, 11),
        "cells": ("+x?", "??o"),
        "examples": True,
    }


def test_nothing_is_drawn_where_nothing_is_known_to_be_wrong() -> None:
    assert looks((2, 2), lambda r, c: True, lambda r, c: None) == []
    assert looks((2, 2), lambda r, c: r == c, lambda r, c: r == c) == []
