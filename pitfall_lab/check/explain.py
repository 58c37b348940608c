"""``pitfall-lab explain PL101``: print the page of a rule (:func:`run`).

Needs no torch: the pages are made beforehand (:mod:`pitfall_lab.reference.pages`).
"""

# ruff: noqa: PLC0415 - the command starts fast: what few calls need is imported by them

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING

from pitfall_lab.cli import Refusal
from pitfall_lab.resources import DOCS
from pitfall_lab.trace import Language

if TYPE_CHECKING:
    from pitfall_lab.rules import Family, Rule

FOLDER = DOCS / "rules"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pitfall-lab explain``."""
    parser.add_argument("rule", metavar="RULE", nargs="?", help="a code or a name: PL101, saved-tensor-overwritten")
    parser.add_argument("--list", action="store_true", help="list all rules")
    parser.add_argument(
        "--lang", "--language", dest="language", choices=("en", "zh"), default="en", help="the language of the page"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one page, or the list of all rules, and return 0; raise :class:`~pitfall_lab.cli.Refusal` if no rule is
    named, or an unknown one, or one whose page was not made.
    """
    if arguments.list:
        print(listing(arguments.language), end="")
        return 0
    if not arguments.rule:
        raise Refusal("Name a rule, as in `pitfall-lab explain PL101`; `pitfall-lab explain --list` shows them all.")
    print(
        _about_comments(arguments.rule, arguments.language) or page(known(arguments.rule), arguments.language), end=""
    )
    return 0


def _about_comments(word: str, language: Language) -> str:
    """The page of the one finding that is about a comment and not about the program; empty for every other word."""
    from pitfall_lab.check.ignores import UNUSED_NAME, UNUSED_TITLE, UNUSED_WHY
    from pitfall_lab.check.settings import UNUSED

    is_unused = word.upper() == UNUSED or word.lower() == UNUSED_NAME
    return (
        f"# {UNUSED} {UNUSED_NAME}\n\n{UNUSED_TITLE.say(language)}\n\n{UNUSED_WHY.say(language)}\n" if is_unused else ""
    )


def listing(language: Language) -> str:
    """All rules, one on a line: code, severity, name, title."""
    from pitfall_lab.check.ignores import UNUSED_NAME, UNUSED_TITLE
    from pitfall_lab.check.settings import UNUSED
    from pitfall_lab.check.terminal import SEVERITIES, columns
    from pitfall_lab.rules import CATALOGUE

    words = {severity: text.say(language) for severity, text in SEVERITIES.items()}
    widest, longest = max(map(columns, words.values())), max(len(rule.name) for rule in CATALOGUE)
    every = [
        (UNUSED, words["info"], UNUSED_NAME, UNUSED_TITLE),
        *((r.code, words[r.severity], r.name, r.title) for r in CATALOGUE),
    ]
    return "".join(
        f"{code}  {word}{' ' * (widest - columns(word))}  {name:<{longest}}  {title.say(language)}\n"
        for code, word, name, title in every
    )


NEAR = 0.75
"""One character of a code may be wrong; PL999 is not near PL609."""
LOOKALIKES = str.maketrans("OIL", "011")
"""Letters that are typed for digits in a code."""


def known(word: str) -> Rule | Family:
    """The rule with the code or name ``word``, in upper or lower case; raises :class:`~pitfall_lab.cli.Refusal` when
    there is none, with the nearest one if one is near.
    """
    from pitfall_lab.rules import CATALOGUE, rule

    try:
        return rule(word.upper() if word.upper().startswith("PL") else word.lower())
    except KeyError:
        words = [name for each in CATALOGUE for name in (each.code, each.name)]
        digits = word[:2].upper() + word[2:].upper().translate(LOOKALIKES)
        near = difflib.get_close_matches(digits, words, 1, NEAR) or difflib.get_close_matches(word.lower(), words, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise Refusal(f"There is no rule {word!r}.{hint} `pitfall-lab explain --list` shows them all.") from None


def page(rule: Rule | Family, language: Language) -> str:
    """The text of the rule's page as it was made, without the remark for those who edit it.

    Raises :class:`~pitfall_lab.cli.Refusal` if it was not made.
    """
    path = FOLDER / (f"{rule.code}.md" if language == "en" else f"{rule.code}.{language}.md")
    if not path.is_file():
        raise Refusal(
            f"The page of {rule.code} was not made yet: run `python -m pitfall_lab.reference.pages {rule.code}`."
        )
    return path.read_text(encoding="utf-8").split("-->\n\n", 1)[-1]
