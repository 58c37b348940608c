"""The settings of a check, from ``[tool.pitfall-lab]`` in the nearest pyproject.toml and from the command line
(:class:`Settings` and :func:`near`).
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pitfall_lab.check.workshop import EVENT_LIMIT, TIMEOUT
from pitfall_lab.cli import Refusal
from pitfall_lab.rules import CATALOGUE

UNUSED = "PL001"
"""The code of the note about an ignore comment that ignores nothing.

It has no page: it is about the comment, not about torch.
"""

WHOLE = {"memory": "a number of MiB", "steps": "a number of steps"}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings for checking files. ``select`` and ``ignore`` are prefixes of codes: ``PL1`` is all of PL101, PL102,
    …; ``per_file_ignores`` has pairs of a path pattern and the prefixes that are ignored in the files that it matches;
    ``exclude`` are patterns of paths that are left out of folders.

    ``root`` is the folder where path patterns start (None: patterns apply to whole paths). ``timeout`` is in seconds,
    ``memory`` in MiB (``None``: no limit); for ``steps`` and ``every_round`` see :class:`Workshop`.
    """

    root: Path | None = None
    select: tuple[str, ...] = ("PL",)
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    timeout: float = TIMEOUT
    memory: int | None = None
    steps: int = EVENT_LIMIT
    every_round: bool = False

    def wants(self, code: str, path: Path) -> bool:
        """Whether a finding with ``code`` in the file at ``path`` is reported: the longest prefix of it in ``select``
        or ``ignore`` decides, of equal ones that in ``ignore``.

        False, whatever these say, if ``per_file_ignores`` has the code for a pattern that matches the path.
        """
        if any(code.startswith(codes) for pattern, codes in self.per_file_ignores if self._matches(path, pattern)):
            return False
        chosen = max((len(prefix) for prefix in self.select if code.startswith(prefix)), default=-1)
        left_out = max((len(prefix) for prefix in self.ignore if code.startswith(prefix)), default=-1)
        return chosen > left_out

    def excludes(self, path: Path) -> bool:
        """Whether ``path``, found in a folder, is excluded."""
        return any(self._matches(path, pattern) for pattern in self.exclude)

    def _matches(self, path: Path, pattern: str) -> bool:
        """Whether a pattern matches ``path``, as in linters: ``tests/*`` from the root, ``old.py`` or
        ``scratch`` anywhere below it.
        """
        path = Path(os.path.realpath(path))
        inside = path.relative_to(self.root) if self.root is not None and path.is_relative_to(self.root) else path
        pattern = pattern.removeprefix("./").rstrip("/")
        whole = [inside, *inside.parents]
        if "/" in pattern:
            return any(fnmatch.fnmatch(part.as_posix(), pattern) for part in whole)
        return any(fnmatch.fnmatch(name, pattern) for name in inside.parts)


def near(path: Path) -> Settings:
    """The settings for a file or folder: of the nearest pyproject.toml above it with a table
    ``[tool.pitfall-lab]``, else the defaults.

    Raises :class:`~pitfall_lab.cli.Refusal` if such a file cannot be read, or a setting in it is
    unknown or has a wrong value.
    """
    start = Path(os.path.realpath(path))  # unlike resolve(), it does not mind links in circles
    return _above(start if start.is_dir() else start.parent)


@cache
def _above(folder: Path) -> Settings:
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        if file.is_file():
            section = _section(file)
            if section is not None:
                return _settings(section, file)
    return Settings()


def _section(file: Path) -> dict[str, Any] | None:
    try:
        section = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("pitfall-lab")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, AttributeError) as problem:
        raise Refusal(f"{file} cannot be read: {problem}.") from None
    if section is not None and not isinstance(section, dict):
        raise Refusal(f"{file}: [tool.pitfall-lab] must be a table.")
    return section


def _settings(section: dict[str, Any], file: Path) -> Settings:
    known = {field.name.replace("_", "-"): field.name for field in fields(Settings) if field.name != "root"}
    settings = Settings(root=file.parent)
    for key, value in section.items():
        if key not in known:
            hint = difflib.get_close_matches(key, known, 1)
            raise Refusal(f"{file}: there is no setting {key!r}{f'; did you mean {hint[0]!r}?' if hint else '.'}")
        settings = replace(settings, **{known[key]: _value(key, value, file)})
    return settings


def _value(key: str, value: Any, file: Path) -> Any:
    where = f"{file}, {key}"
    if key == "timeout":
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e6:
            return float(value)
        raise Refusal(f"{where}: expected a number of seconds.")
    if key in WHOLE:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        raise Refusal(f"{where}: expected {WHOLE[key]}.")
    if key == "every-round":
        if isinstance(value, bool):
            return value
        raise Refusal(f"{where}: expected true or false.")
    if key == "per-file-ignores":
        if not isinstance(value, dict):
            raise Refusal(f"{where}: expected a table of patterns and codes.")
        return tuple((pattern, codes(_words(each, where), where)) for pattern, each in value.items())
    return codes(_words(value, where), where) if key in ("select", "ignore") else _words(value, where)


def _words(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise Refusal(f"{where}: expected a list of strings.")


def codes(words: Iterable[str], where: str) -> tuple[str, ...]:
    """Convert codes and names of rules to prefixes of codes (``ALL``: ``PL``). ``where`` is named in the error's
    message.

    Raises :class:`~pitfall_lab.cli.Refusal` for one that no rule has.

    >>> codes(["PL1", "loss-broadcast", "ALL"], "--select")
    ('PL1', 'PL401', 'PL')
    """
    by_name = {rule.name: rule.code for rule in CATALOGUE}
    every = [*by_name.values(), UNUSED]
    found = []
    for word in words:
        code = "PL" if word.upper() == "ALL" else by_name.get(word.lower(), word.upper())
        if not word or not any(each.startswith(code) for each in every):
            near_ones = difflib.get_close_matches(word.upper(), every, 1) or difflib.get_close_matches(
                word.lower(), by_name, 1
            )
            hint = f" Did you mean {near_ones[0]}?" if near_ones else ""
            raise Refusal(f"{where}: no rule has the code {word!r}.{hint} `pitfall-lab explain --list` shows them all.")
        found.append(code)
    return tuple(found)
