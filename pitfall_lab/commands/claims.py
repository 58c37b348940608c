"""``pitfall-lab claims``: run the ledger's programs on the installed torch and say where it
differs from what was recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pitfall_lab.cli import Refusal
from pitfall_lab.lessons import chapters
from pitfall_lab.lessons.claims import RECORDED_WITH, VERDICTS, Check, Claim, check, ledger


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pitfall-lab claims``."""
    which = "ids of claims (s1-2-h), beginnings of ids (s1-2) or numbers of chapters (05); without any: all"
    parser.add_argument("what", metavar="CLAIM", nargs="*", help=which)
    parser.add_argument("--list", action="store_true", help="print the claims and their verdicts, and run nothing")
    shown = "print which cell of which notebook of a folder shows each claim, and run nothing"
    parser.add_argument("--where", metavar="NOTEBOOKS", type=Path, help=shown)
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def run(arguments: argparse.Namespace) -> int:
    """Print one line per claim and return the exit code: 0 when every output is as recorded, 1 when one is not.

    With ``--where``, print where the notebooks of a folder show the claims; 1 if one is shown nowhere. Raises
    :class:`~pitfall_lab.cli.Refusal` if there is no such folder.
    """
    if arguments.where is not None:
        if not arguments.where.is_dir():
            raise Refusal(f"{arguments.where} is not a folder of notebooks")
        return chapters.main([str(arguments.where)])
    claims = chosen(arguments.what)
    if arguments.list:
        for claim in claims:
            print(f"{claim.id:14s} {VERDICTS[claim.verdict].glyph} {claim.verdict:18s} {claim.claim}")
        return 0
    done = [(claim, _shown(claim, check(claim), quiet=arguments.json)) for claim in claims]
    different = sum(found.same == "no" for _, found in done)
    if arguments.json:
        print(json.dumps([_row(claim, found) for claim, found in done], ensure_ascii=False, indent=1))
    else:
        version = next((found.torch for _, found in done if found.torch != "?"), "?")
        print(
            f"{len(done)} claims on torch {version}: {len(done) - different} as recorded with "
            f"{RECORDED_WITH}, {different} not"
        )
    return int(bool(different))


def chosen(words: list[str]) -> list[Claim]:
    """The claims named by ids, beginnings of ids or numbers of chapters, in the ledger's order; raises
    :class:`~pitfall_lab.cli.Refusal` for a word that names none.

    >>> [claim.id for claim in chosen(["s1-0"])], len(chosen(["12"])), len(chosen([]))
    (['s1-0-a'], 7, 333)
    """
    numbers = {f"{chapter.number:02d}": chapter.claims for chapter in chapters.CHAPTERS}
    keys: list[str] = []
    for word in words:
        found = numbers.get(word.zfill(2)) or [
            key for key in ledger() if key == word or key.startswith(f"{word.rstrip('-')}-")
        ]
        if not found:
            raise Refusal(f"there is no claim or chapter {word!r}; `pitfall-lab claims --list` prints them")
        keys += found
    return [claim for key, claim in ledger().items() if not words or key in keys]


def _shown(claim: Claim, found: Check, *, quiet: bool) -> Check:
    """Print how a claim came out, as soon as it is known, and return the check."""
    if not quiet:
        word = {"exactly": "as recorded", "but for numbers": "as recorded, but for numbers", "no": "DIFFERENT"}[
            found.same
        ]
        print(f"{claim.id:14s} {claim.verdict:18s} {word}", flush=True)
        if found.same == "no":
            print("\n".join(f"    {line}" for line in found.difference.splitlines()), flush=True)
    return found


def _row(claim: Claim, found: Check) -> dict[str, object]:
    """Return one claim as plain data."""
    return {
        "id": claim.id,
        "verdict": claim.verdict,
        "claim": claim.claim,
        "truth": claim.truth,
        "same": found.same,
        "printed": found.printed,
        "recorded": found.recorded,
        "error": found.error,
        "torch": found.torch,
        "python": sys.version.split()[0],
    }
