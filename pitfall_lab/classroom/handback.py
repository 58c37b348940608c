"""Students' pages in the forms in which learning management systems take feedback files for a whole class.
:func:`write` writes them and returns their paths.

- Moodle, “Upload multiple feedback files in a zip”: names begin as those of its download do, and the number
  in them says whose a file is.
- Canvas, “Re-Upload Submissions”: the numbers of the user and of the file that was handed in, as in the
  download. It attaches each file as
  a comment, *under the name of the file that was handed in*: so a notebook gets a notebook that shows the
  page, and a zip a zip with it.

Blackboard documents no such upload.
"""

# ruff: noqa: PLC0415 - nbformat takes longer to import than most commands take: it is imported where a notebook is
# read or written

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pitfall_lab.classroom.ledger import LedgerLine, called
from pitfall_lab.classroom.roster import listed
from pitfall_lab.classroom.whose import DownloadName, form

_NAMES = {"moodle": "moodle-feedback.zip", "canvas": "canvas-feedback.zip"}
_BODY = re.compile(r"<body>(.*)</body>", re.DOTALL)
_WITHOUT = {
    "moodle": "whose files have no name of Moodle's",
    "canvas": "whose files have no name of Canvas', or are neither notebook nor zip",
}
Files = Mapping[str, Iterable[str]]


def write(folder: Path, pages: Mapping[str, str], entries: Mapping[str, LedgerLine], files: Files) -> list[Path]:
    """Write a zip for each of Moodle and Canvas whose form the names of submitted files have (of Canvas: those of two
    students or more), and return their paths; empty if there is none. ``pages`` are students' pages (HTML) by file
    name, ``entries`` the student's line in the table for each page, ``files`` what each submission's files are called.

    A zip of an earlier run is removed where nothing came with that system's names. Raises ``OSError`` if one cannot be
    written.
    """
    written = []
    for system, make in (("moodle", _for_moodle), ("canvas", _for_canvas)):
        path, found = folder / _NAMES[system], _named(system, entries, files)
        if not found:
            path.unlink(missing_ok=True)
            continue
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in dict(make(*of, pages[page]) for page, of in found.items()).items():
                archive.writestr(name, content)
        written.append(path)
    return written


def told(folder: Path, entries: Sequence[LedgerLine], files: Files) -> Iterator[str]:
    """A sentence for each zip that :func:`write` has made in ``folder``: its path, and the students with a mark whose
    page is not in it.
    """
    names = called(entries)
    marked = {entry.row.student: entry for entry in entries if entry.has_mark}
    for system, name in _NAMES.items():
        if found := _named(system, marked, files):
            others = [student for student in marked if student not in found]
            without = ""
            for absent, why in ((False, _WITHOUT[system]), (True, "who handed in nothing")):
                if theirs := [names[student] for student in others if marked[student].row.absent == absent]:
                    without += f" Not in it: {listed(theirs)}, {why}."
            yield f"Pages for {system.capitalize()}: {folder / name}.{without}"


def _named(system: str, entries: Mapping[str, LedgerLine], files: Files) -> dict[str, tuple[str, DownloadName]]:
    """For each student's page the newest file of the submission whose name has the form
    that ``system`` gives to files.
    """
    newest = {
        page: _newest(files.get(entry.row.student, (entry.row.student,)), system) for page, entry in entries.items()
    }
    found = {page: of for page, of in newest.items() if of}
    if system == "canvas":
        # week_3_12_ada has Canvas' form, too: all of a class would be one person
        alone = len({(said.who, said.number) for _, said in found.values()}) < 2
        found = {page: of for page, of in found.items() if not alone and Path(of[0]).suffix.lower() in _KINDS}
    return found


def _newest(names: Iterable[str], system: str) -> tuple[str, DownloadName] | None:
    """The file, with its parsed name, that has the highest attempt number among names of the form that ``system``
    gives.

    Files that can show the page (notebook, zip, HTML) go before all others. None if no name has that form.
    """
    found = [(name, said) for name in names if (said := form(name)) and said.system == system]
    return max(found, key=lambda pair: (Path(pair[0]).suffix.lower() in _KINDS, pair[1].attempt), default=None)


def _for_moodle(_: str, said: DownloadName, page: str) -> tuple[str, str]:
    who = _in_a_zip(said.who).replace("_", " ")
    return f"{who}_{said.number}_assignsubmission_file_feedback.html", page


def _for_canvas(name: str, _: DownloadName, page: str) -> tuple[str, str | bytes]:
    """The name of the file to upload, and its content: the downloaded file's name, and content that fits its ending."""
    return _in_a_zip(name), _KINDS[Path(name).suffix.lower()](page)


def _in_a_zip(name: str) -> str:
    """A name as a zip can have it: no path of any system, and no byte that is not text."""
    return re.sub(r"[/\\\x00-\x1f\ud800-\udfff]", " ", name)


def notebook(page: str) -> str:
    """The text of a notebook (JSON) that shows a student's ``page`` in one Markdown cell, as HTML on one line: signs
    that Markdown would read are written as numbers.
    """
    import nbformat
    from nbformat.v4 import new_markdown_cell, new_notebook

    found = _BODY.search(page)
    body = (found[1] if found else page).replace('<li class="yes">', "<li>✓ ").replace('<li class="no">', "<li>○ ")
    for sign in "\n$\\`":
        body = body.replace(sign, f"&#{ord(sign)};")
    return str(nbformat.writes(new_notebook(cells=[new_markdown_cell(f"<div>{body}</div>", id="feedback")])))


def _zipped(page: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("feedback.html", page)
    return held.getvalue()


_KINDS: dict[str, Callable[[str], str | bytes]] = {".ipynb": notebook, ".zip": _zipped, ".html": str}
"""By the ending of a file's name: the function that makes the file's content from a page."""
