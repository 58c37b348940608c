"""Students' pages in the forms in which learning management systems take feedback files for a whole class.

- Moodle, “Upload multiple feedback files in a zip”: names begin as those of its download do, and the number in them says whose a file is.
- Canvas, “Re-Upload Submissions”: the numbers of the user and of the file that was handed in, as in the download. It attaches each file as
  a comment, *under the name of the file that was handed in*: so a notebook gets a notebook that shows the page, and a zip a zip with it.

Blackboard documents no such upload.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pitfall_lab.classroom.ledger import Entry
from pitfall_lab.classroom.whose import Form, form

_NAMES = {"moodle": "moodle-feedback.zip", "canvas": "canvas-feedback.zip"}
_BODY = re.compile(r"<body>(.*)</body>", re.DOTALL)
Files = Mapping[str, Iterable[str]]


def write(folder: Path, pages: Mapping[str, str], entries: Mapping[str, Entry], files: Files) -> list[Path]:
    """Write the zips, and return them: ``pages`` are texts by their names, ``files`` what each submission's files are called.

    A zip of an earlier run is removed where nothing came with that system's names. Raises ``OSError``.
    """
    written = []
    for system, make in (("moodle", _for_moodle), ("canvas", _for_canvas)):
        path = folder / _NAMES[system]
        newest = {page: _newest(files.get(entry.row.student, (entry.row.student,)), system) for page, entry in entries.items()}
        found = {page: of for page, of in newest.items() if of}
        senders = {(said.who, said.number) for _, said in found.values()}
        inside = {made[0]: made[1] for page, of in found.items() if (made := make(*of, pages[page]))}
        # week_3_12_ada has Canvas' form, too: all of a class would be one person
        if not inside or (system == "canvas" and len(senders) < 2):
            path.unlink(missing_ok=True)
            continue
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in inside.items():
                archive.writestr(name, content)
        written.append(path)
    return written


def _newest(names: Iterable[str], system: str) -> tuple[str, Form] | None:
    """Of a person's files that have a system's form, that of the newest attempt, with its ending where that is known."""
    found = [(name, said) for name in names if (said := form(name)) and said.system == system]
    return max(found, key=lambda pair: (pair[1].attempt, Path(pair[0]).suffix.lower() in _KINDS), default=None)


def _for_moodle(_: str, said: Form, page: str) -> tuple[str, str]:
    who = re.sub(r"[/\\_\x00-\x1f]", " ", said.who)
    return f"{who}_{said.number}_assignsubmission_file_feedback.html", page


def _for_canvas(name: str, _: Form, page: str) -> tuple[str, str | bytes] | None:
    """A file under the name of the download, with content that fits its ending; None: for no other ending there is one."""
    make = _KINDS.get(Path(name).suffix.lower())
    return (name, make(page)) if make else None


def notebook(page: str) -> str:
    """A notebook that shows a page in one Markdown cell, as HTML on one line: signs that Markdown would read are written as numbers."""
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
"""What makes the content for a file's ending, from a page."""
