"""A program says in comments what it expects of the rules; other comments are left alone."""

from __future__ import annotations

import pytest

from pitfall_lab.rules.kit.expected_marks import expected, plain


@pytest.mark.parametrize(
    ("line", "findings", "roles"),
    [
        ("h.mul_(2)  # PL101 changed", [("PL101", 1)], {("changed", 1)}),
        ("y = f(h)  # saved", [], {("saved", 1)}),
        ("y = f(h)  # saved changed\r\n", [], {("saved", 1), ("changed", 1)}),
        ("y = f(h)  # is saved", [], set()),
        ("y = f(h)  # PL101: a remark", [], set()),
        ("print('# saved')", [], set()),
    ],
)
def test_a_mark_is_a_comment_of_codes_and_roles_only(line: str, findings: list[object], roles: set[object]) -> None:
    assert expected(line) == (findings, roles)
    assert (plain(line) != line) == bool(findings or roles)
    assert len(plain(line).splitlines()) == 1
