"""Experiments that need a CUDA device: run live where there is one, replayed from a labelled recording where there is
none. :func:`experiment` returns what one gave as a :class:`Recording`.

An experiment is one short program in ``programs/``, complete in itself; it prints what a reader wants to see and leaves
its numbers in ``result``. ``python -m pitfall_lab.lessons.gpu.record`` runs them all and writes ``recorded.json``:
device, driver, torch version and date are shown beside the numbers, and every replay says so. A recording belongs to
the text of its program: when that has changed since, it is not shown. Programs run in a process of their own, live and
recorded alike: a fresh CUDA context, so that what other cells have cached does not show in the counters.
"""

from __future__ import annotations

import hashlib
import html
import json
import sys
import tempfile
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from pitfall_lab import processes
from pitfall_lab.trace import Language, T

TIMEOUT = 300
"""Seconds that one experiment may take."""

_LIVE = T(en="measured now on {device}, torch {torch}", zh="刚在 {device}、torch {torch} 上实测")
_RECORDED = T(
    en="recorded on {device}, torch {torch}, {date}; not measured on this machine",
    zh="在 {device}、torch {torch} 上于 {date} 录制；并非本机实测",
)

_NEITHER = T(
    en="This takes a CUDA device; there is none here, and no recorded result is included. On a "
    "machine with such a device, the cell measures:",
    zh="这需要 CUDA 设备；这里没有，此版本也没有附带录制结果。有设备时，本单元格会测量：",
)

# Runs a program and writes what it left behind; a process of its own because torch is imported
# there, never in this package.
_HARNESS = """\
import contextlib, io, json, runpy, sys
path, out = sys.argv[1:]
printed = io.StringIO()
import torch
with contextlib.redirect_stdout(printed):
    left = runpy.run_path(path)
device = torch.cuda.get_device_name(0)
with open(out, "w", encoding="utf-8") as file:
    json.dump({"device": device, "torch": torch.__version__, "printed": printed.getvalue(), "result": left["result"]}, file)
"""  # noqa: E501
_HAS_CUDA = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"


class ExperimentFailed(RuntimeError):
    """The experiment's program failed on this device; the message ends with the last line of its error."""


class NotRecorded(ExperimentFailed):
    """There is neither a CUDA device nor a recording of the experiment."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What one experiment gave.

    ``source`` is its program, ``printed`` what that printed, ``result`` the numbers that it left. ``device``, ``torch``
    (its version) and ``date`` say where and when they were measured; ``live``: now, not from a recording.
    """

    name: str
    source: str
    printed: str
    result: dict[str, Any]
    device: str
    torch: str
    date: str
    live: bool

    @property
    def title(self) -> str:
        """The program's first line: what it shows."""
        return _first_line(self.source)

    @property
    def label(self) -> T:
        """Where and when the numbers were measured, in both languages; every picture made from them shows it."""
        text = _LIVE if self.live else _RECORDED
        words = {"device": self.device, "torch": self.torch, "date": self.date}
        return T(en=text.en.format(**words), zh=text.zh.format(**words))

    def __str__(self) -> str:
        return f"{self.title}\n[{self.label.en}]\n\n{self.printed}"

    def _repr_html_(self) -> str:
        label = f"{html.escape(self.label.en)} · <span lang='zh'>{html.escape(self.label.zh)}</span>"
        return (
            f"<figure class='pitfall-lab-recording'><figcaption>{html.escape(self.title)}</figcaption>"
            f"<pre>{html.escape(self.printed)}</pre><p><small>{label}</small></p>"
            f"<details><summary>Program</summary><pre>{html.escape(self.source)}</pre></details></figure>"
        )


def names() -> list[str]:
    """The experiments there are, in alphabetical order."""
    return sorted(
        Path(p.name).stem for p in files(__package__).joinpath("programs").iterdir() if p.name.endswith(".py")
    )


def experiment(name: str, *, live: bool | None = None, file: Path | str | None = None) -> Recording:
    """Run the experiment ``name`` if a CUDA device is present, else return its recording.

    ``live=False`` always returns the recording, ``live=True`` always runs; ``file`` is a recording of one's own, as
    ``python -m pitfall_lab.lessons.gpu.record FILE`` makes it on a machine with a device. Raises KeyError for an
    unknown name, :class:`ExperimentFailed` if the program fails, the file is no recording, or the recording was made
    with another text of the program, and :class:`NotRecorded` if there is no recording.
    """
    if name not in names():
        raise KeyError(f"There is no experiment {name!r}; there are {', '.join(names())}.")
    if live if live is not None else file is None and has_cuda():
        return run(name)
    kept = recorded() if file is None else _read(Path(file))
    found = kept["experiments"].get(name)
    if found is not None and found["program"] != fingerprint(name):
        raise ExperimentFailed(
            f"{name} needs a CUDA device: there is none here, and its recording was made with another program text."
        )
    if found is None:
        raise NotRecorded(f"{name} needs a CUDA device: there is none here, and no recorded result is included.")
    return Recording(
        name, source(name), found["printed"], found["result"], kept["device"], kept["torch"], kept["date"], live=False
    )


@dataclass(frozen=True, slots=True)
class ExperimentsShown:
    """Some experiments on one page.

    ``recordings`` are those that ran or were recorded; ``missing`` the names of those that need a CUDA device and have
    no recording that fits; ``failed`` has a sentence for each that failed on the device.
    """

    recordings: tuple[Recording, ...]
    missing: tuple[str, ...]
    failed: tuple[str, ...]
    language: Language = "en"

    @property
    def sentence(self) -> T:
        """A sentence that the ``missing`` experiments need a CUDA device; empty if none is missing."""
        return _NEITHER if self.missing else T(en="", zh="")

    def __repr__(self) -> str:
        missing = [f"- {title_of(name)} ({name})" for name in self.missing]
        said = ["\n".join([self.sentence.say(self.language), *missing])] if missing else []
        return "\n\n".join([*map(str, self.recordings), *self.failed, *said])

    def _repr_html_(self) -> str:
        said = [f"<p>{html.escape(text)}</p>" for text in (*self.failed, self.sentence.say(self.language)) if text]
        if self.missing:
            rows = "".join(f"<li>{html.escape(title_of(name))}</li>" for name in self.missing)
            said.append(f"<ul>{rows}</ul>")
        return "".join([each._repr_html_() for each in self.recordings] + said)


def show(*wanted: str, language: Language = "en") -> ExperimentsShown:
    """Return the results of the experiments of these names, to be shown in a notebook: run now where a CUDA device is
    present, else as they were recorded.

    One that fails, or has no recording that fits, is named in what is shown. Raises KeyError for an unknown name.
    """
    recordings, missing, failed = [], [], []
    for name in wanted:
        try:
            recordings.append(experiment(name))
        except ExperimentFailed as error:
            if has_cuda():
                failed.append(str(error))
            else:
                missing.append(name)
    return ExperimentsShown(tuple(recordings), tuple(missing), tuple(failed), language)


def fingerprint(name: str) -> str:
    """Return the SHA-256 of an experiment's program; a recording of another text of the program does not match it."""
    return hashlib.sha256(source(name).encode()).hexdigest()


def title_of(name: str) -> str:
    """What an experiment shows: its program's first line."""
    return _first_line(source(name))


def _first_line(program: str) -> str:
    return program.split('"""')[1].strip().partition("\n")[0].removesuffix(".")


def source(name: str) -> str:
    """The program of an experiment."""
    return files(__package__).joinpath("programs", f"{name}.py").read_text(encoding="utf-8")


def run(name: str) -> Recording:
    """Run the experiment of this name now, in a process of its own, and return what it recorded.

    Raises :class:`ExperimentFailed` if it takes longer than ``TIMEOUT`` seconds, or ends with an error.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        as_file(files(__package__).joinpath("programs", f"{name}.py")) as path,
    ):
        out = Path(folder) / "out.json"
        try:
            done = processes.run(
                processes.code(_HARNESS, str(path), str(out)), capture_output=True, timeout=TIMEOUT, cwd=folder
            )
        except processes.TimeoutExpired as error:
            raise ExperimentFailed(f"{name} took longer than {TIMEOUT} s.") from error
        if done.returncode or not out.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ExperimentFailed(f"{name} did not run through: {last}")
        found = json.loads(out.read_text(encoding="utf-8"))
    date = datetime.now(UTC).date().isoformat()
    return Recording(
        name, source(name), found["printed"], found["result"], found["device"], found["torch"], date, live=True
    )


@cache
def recorded() -> dict[str, Any]:
    """The recording that comes with the package: ``device``, ``driver``, ``torch``, ``date``, and ``experiments`` by
    name.

    If none comes with it, only ``experiments``, empty.
    """
    file = files(__package__).joinpath("recorded.json")
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"experiments": {}}
    return kept


def _read(file: Path) -> dict[str, Any]:
    """The recording in ``file``; raises :class:`ExperimentFailed` if it is none."""
    try:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        found = kept["experiments"].items()
        kept["experiments"] = {
            str(name): {"program": str(one["program"]), "printed": str(one["printed"]), "result": dict(one["result"])}
            for name, one in found
        }
        kept.update({key: str(kept[key]) for key in ("device", "torch", "date")})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExperimentFailed(f"{file} is not a recording ({type(error).__name__}).") from error
    return kept


@cache
def has_cuda() -> bool:
    """Whether torch sees a CUDA device.

    If torch is not imported yet, another process imports it and answers, since this package does not import torch.
    """
    if "torch" in sys.modules:
        with warnings.catch_warnings(action="ignore"):  # torch warns about an old driver
            return bool(sys.modules["torch"].cuda.is_available())
    return processes.run(processes.code(_HAS_CUDA), capture_output=True).returncode == 0
