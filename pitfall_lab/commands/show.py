"""``pitfall-lab show``: a self-contained page of a program or of a saved trace, readable
without a kernel and without scripts.
"""

# ruff: noqa: PLC0415 - the command starts fast: what few calls need is imported by them

from __future__ import annotations

import os
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

from pitfall_lab.cli import Refusal
from pitfall_lab.trace import LANGUAGES, Trace, TraceError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``pitfall-lab show``."""
    what = "a Python program (.py), which is run with your rights, or a saved trace (.json), which needs no torch"
    parser.add_argument("file", type=Path, help=what)
    parser.add_argument(
        "-o", "--output", type=Path, help="the page to write (default: FILE's name with .pitfall.html, in this folder)"
    )
    parser.add_argument(
        "--language", choices=LANGUAGES, default="en", help="the language of the sentences (default: en)"
    )
    parser.add_argument("--text", action="store_true", help="print the story as plain text and write no page")


def run(arguments: argparse.Namespace) -> int:
    """Write the page, or print the trace as text (``--text``, in English), and return 0.

    Raises :class:`~pitfall_lab.cli.Refusal` for a file that cannot be read or shown, and if the page cannot be written.
    """
    trace = read(arguments.file)
    from pitfall_lab import rules, views

    try:
        said = views.text(trace) if arguments.text else views.page(trace, rules.find(trace), arguments.language)
    except Exception as error:
        if arguments.file.suffix != ".json":
            raise
        # Whether all parts of a file from elsewhere fit together is known only when they are put together.
        raise Refusal(
            f"{arguments.file} cannot be shown: it is a trace whose parts do not fit together, or one that pitfall_lab "
            f"cannot draw ({type(error).__name__}: {str(error)[:60]!r})."
        ) from error
    if arguments.text:
        print(said)
        return 0
    output: Path = arguments.output or Path(arguments.file.stem + ".pitfall.html")
    try:
        output.write_text(said, encoding="utf-8")
    except OSError as error:
        raise Refusal(f"{output} cannot be written: {error.strerror or error}.") from None
    print(output)
    return 0


def read(path: Path) -> Trace:
    """The trace in a ``.json`` file, or the trace of running a ``.py`` file; raises
    :class:`~pitfall_lab.cli.Refusal` for a file with another ending, and for one that cannot be read or is no trace.
    """
    if path.suffix not in {".py", ".json"}:
        raise Refusal(f"{path} is neither a Python program (.py) nor a saved trace (.json).")
    try:
        # tokenize.open honours a `# -*- coding -*-` line and a byte order mark, as Python itself does.
        with tokenize.open(path) if path.suffix == ".py" else path.open(encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror or error}.") from None
    except (UnicodeDecodeError, SyntaxError):
        raise Refusal(
            f"{path} is not text in the encoding that it declares (UTF-8 unless it says otherwise)."
        ) from None
    if path.suffix == ".json":
        try:
            return Trace.from_json(text)
        except TraceError as error:
            raise Refusal(f"{path} is not a saved trace: {error}") from None
    from pitfall_lab.check.module_path import as_for_python
    from pitfall_lab.verify import for_drawing, trace_program

    with as_for_python(str(path.resolve().parent), os.environ.get("PYTHONPATH", "")):
        return trace_program(text, name=path.name, sampling=for_drawing())
