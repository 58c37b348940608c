"""What the catalogue of refusals (torch's errors) consists of: families of errors, and in each family the cases that
torch words differently.
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

    ``pattern`` is searched for in torch's message, only to know which of its checks it was. ``wrong`` selects the wrong
    argument, ``other`` the one that it does not fit: selectors separated by ``|``, of which the first that finds an
    argument counts (names of parameters, ``#2`` for the second tensor, ``@2`` for the second argument, see
    :mod:`.offending`); with ``""`` the argument is found from the message. ``refused`` and ``accepts`` are sentences
    with placeholders: ``{wrong}``, ``{other.shape}``, ``{Line}``, ``{call}``, ``{m[1]}`` for a group of the pattern.
    ``fixes`` are rewritings of the wrong argument to try, in which ``{}`` is its source. ``op`` restricts the case to
    functions whose name ends with it. ``remedy`` is a function that searches the source for a repair, often on another
    line, and may replace the sentences; None if there is none.
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
        """The compiled pattern."""
        return re.compile(self.pattern, re.DOTALL)


@dataclass(frozen=True)
class Family:
    """Errors of torch with one cause, described by one page.

    ``code`` (``"PLE12"``) and ``name`` name the page; ``title`` is torch's message, which people search for; ``what``
    is the page's text; both texts are in two languages. ``cases`` are the ways in which torch words the error. ``bad``
    and ``good`` are two short programs: one that raises the error, and the same one repaired. ``severity`` is that of
    its findings.
    """

    code: str
    name: str
    title: T
    what: T
    cases: tuple[Case, ...]
    bad: str
    good: str
    severity: Severity = "error"
