"""What the catalogue of refusals (torch's errors) is made of: families of errors, and in each the cases that torch
words differently.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from pitfall_lab.rules.kit.finding import Severity
from pitfall_lab.rules.refusals.remedy import Finder
from pitfall_lab.trace import T


@dataclass(frozen=True)
class Case:
    """One way in which torch refuses something.

    ``pattern`` is searched for in torch's message, only to know which of its checks it was. ``wrong`` says which
    argument offends, ``other`` what it does not go with: selectors separated by ``|``, of which the first that finds an
    argument counts (names of parameters, ``#2`` for the second tensor, ``@2`` for the second argument, see
    :mod:`.offending`); ``""`` says that it is to be found out. ``refused`` and ``accepts`` are sentences with places
    for facts: ``{wrong}``, ``{other.shape}``, ``{Line}``, ``{call}``, ``{m[1]}`` for a group of the pattern. ``fixes``
    are rewritings of the wrong argument that are worth trying, ``{}`` marks its place. ``op`` restricts the case to
    functions whose name ends so. ``remedy`` is a function that looks in the text for what to do, often on another line,
    and may say it in other words; None where there is none.
    """

    pattern: str
    wrong: str
    refused: T
    accepts: T
    other: str = ""
    fixes: tuple[str, ...] = ()
    op: str = ""
    remedy: Finder | None = None

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern, ready to be searched for."""
        return re.compile(self.pattern, re.DOTALL)


@dataclass(frozen=True)
class Family:
    """Errors of torch with one cause, which one page is about.

    ``code`` (``"PLE12"``) and ``name`` name the page; ``title`` is torch's message, by which people search; ``what`` is
    the page's text, both in two languages. ``cases`` are the ways in which torch words it. ``bad`` and ``good`` are two
    short programs: one that raises the error, and the same one repaired. ``severity`` is that of its findings.
    """

    code: str
    name: str
    title: T
    what: T
    cases: tuple[Case, ...]
    bad: str
    good: str
    severity: Severity = "error"
