"""The text of an exercise's task, from its one source: Markdown for notebooks, HTML for pages.

``Exercise.task`` says everything that is graded, so that the exercise can be solved without its chapter.
``python -m pitfall_lab.lessons.tasks notebooks`` writes title and text above each exercise of the
notebooks; a test holds them equal.
"""

from __future__ import annotations

import json
import re
import sys
from html import escape
from pathlib import Path

from pitfall_lab.lessons.exercise import Exercise
from pitfall_lab.lessons.exercises import exercises

_BEGIN = re.compile(r"^### Exercise (\d+\.\d+)\b.*\Z", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```\w*\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")


def markdown(exercise: Exercise) -> str:
    """The heading and the task in English as Markdown, as they are above the exercise in its chapter's notebook."""
    return f"### Exercise {exercise.key} · {exercise.title.en}\n\n{exercise.task.en}"


def paragraphs(text: str) -> str:
    """A task or a hint as HTML: paragraphs, quotations, listings, code, bold and italic; everything else is escaped.

    >>> paragraphs("Write `a < b` **once**.")
    '<p>Write <code>a &lt; b</code> <strong>once</strong>.</p>'
    """
    parts = _FENCED.split(text)
    return "".join(
        f"<pre tabindex=0>{escape(part)}</pre>" if n % 2 else "".join(_paragraphs(part)) for n, part in enumerate(parts)
    )


def _paragraphs(text: str) -> list[str]:
    found = [part.strip() for part in text.split("\n\n") if part.strip()]
    return [
        f"<blockquote><p>{inline(part.removeprefix('> '))}</p></blockquote>"
        if part.startswith("> ")
        else f"<p>{inline(part)}</p>"
        for part in found
    ]


def inline(text: str) -> str:
    """A line of Markdown as HTML: code, bold and italic."""
    parts = _CODE.split(text)
    return "".join(
        f"<code>{escape(part)}</code>" if n % 2 else _emphasised(escape(part)) for n, part in enumerate(parts)
    )


def coded(text: str) -> str:
    """A sentence of a grader as HTML: what is between backticks is code, and an asterisk is an asterisk.

    >>> coded("`t` is a * b")
    '<code>t</code> is a * b'
    """
    parts = _CODE.split(text)
    return "".join(f"<code>{escape(part)}</code>" if n % 2 else escape(part) for n, part in enumerate(parts))


def _emphasised(text: str) -> str:
    text = re.sub(r"\*\*(\S[^*]*)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"\*(\S[^*]*)\*", r"<em>\1</em>", text)


def split(source: str) -> tuple[str, str]:
    """The text in the source of a notebook cell above an exercise's task, and the exercise's key.

    The whole source and "" if there is no task in it.
    """
    begin = _BEGIN.search(source)
    return (source[: begin.start()], begin[1]) if begin else (source, "")


def written(source: str) -> str:
    """The source of a notebook cell, with the title and task of its exercise replaced by the current ones.

    Unchanged if it has no exercise.
    """
    text, key = split(source)
    exercise = exercises().get(key)
    return text + markdown(exercise) if exercise else source


def main(words: list[str]) -> int:
    """Write the tasks into the notebooks of a folder (the first of ``words``, or ``notebooks``), print which of them
    changed, and return 0.
    """
    for path in sorted(Path(words[0] if words else "notebooks").glob("*.ipynb")):
        text = path.read_text("utf-8")
        book = json.loads(text)
        for cell in book["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = written("".join(cell["source"])).splitlines(keepends=True)
        new = json.dumps(book, indent=1, ensure_ascii=False) + "\n"
        if new != text:
            path.write_text(new, "utf-8")
            print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
