"""Expected findings written as comments in a program: ``# PL101 changed`` on the finding's line,
``# saved`` on a related one.

Such a comment has only codes and roles and ends its line. Rules and tests mark their programs this way, so that no line
number has to be kept up to date.
"""

from __future__ import annotations

import re
from typing import get_args

from pitfall_lab.rules.kit.finding import Finding, Role
from pitfall_lab.rules.kit.source import split_lines

_WORD = "(?:PL[0-9]{3}|" + "|".join(get_args(Role)) + ")"
_MARK = re.compile(rf"[ \t]*#[ \t]*({_WORD}(?:[ \t]+{_WORD})*)[ \t]*(?=\r?\n?$)")


def expected(text: str) -> tuple[list[tuple[str, int]], set[tuple[str, int]]]:
    """Return the findings that the comments of ``text`` expect, as a list of (code, line), and the related lines, as a
    set of (role, line).

    >>> expected("h.mul_(10)  # PL101 changed")
    ([('PL101', 1)], {('changed', 1)})
    """
    findings, roles = [], set()
    for number, line in enumerate(split_lines(text), start=1):
        for word in _words(line):
            if word.startswith("PL"):
                findings.append((word, number))
            else:
                roles.add((word, number))
    return findings, roles


def plain(text: str) -> str:
    """Return ``text`` without its marks; lines keep their numbers.

    >>> plain("h.mul_(10)  # PL101 changed")
    'h.mul_(10)'
    """
    return "".join(_MARK.sub("", line) for line in split_lines(text))


def met(findings: list[Finding], text: str) -> str:
    """Return in a few words how ``findings`` differ from what the marks in ``text`` expect; an empty string if they
    agree.

    Every expected code must be found on its line, and there may be no other finding (except one of severity ``info``
    whose code is nowhere expected). Each marked role must be on exactly the marked lines; roles that are not marked may
    be anywhere.
    """
    wanted, roles = expected(text)
    selected = {code for code, _ in wanted}
    here = [(f.rule, f.span.line if f.span else 0) for f in findings if f.severity != "info" or f.rule in selected]
    if sorted(here) != sorted(wanted):
        return f"expected {sorted(wanted)}, found {sorted(here)}"
    named = {(r.role, r.span.line if r.span else 0) for f in findings for r in f.related}
    marked = {role for role, _ in roles}
    got = {(role, line) for role, line in named if role in marked}
    return "" if got == roles else f"expected lines {sorted(roles)}, found {sorted(got)}"


def _words(line: str) -> list[str]:
    found = _MARK.search(line)
    return found[1].split() if found else []
