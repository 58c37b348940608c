"""Wrong answers to questions that no known misconception predicts, for the author of the questions: the next
misconceptions are among them. ``unexplained`` counts them.

``python -m pitfall_lab.lessons.unexplained FOLDER...`` reads the progress files of these folders (learners', or a
class's submissions) and prints such answers, the most frequent first, each with its program.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pitfall_lab.lessons import progress
from pitfall_lab.lessons.question import key_of


def unexplained(folders: Iterable[Path]) -> Counter[tuple[str, str, str]]:
    """Count wrong answers that fit no misconception, by (chapter, item, answer), in all progress files below some
    folders.

    Files that cannot be read are left out.
    """
    found: Counter[tuple[str, str, str]] = Counter()
    for folder in folders:
        for file in sorted(folder.rglob(progress.NAME)):
            try:
                entries = progress.load(file.parent).entries
            except progress.ProgressError:
                continue
            found.update(
                (e.chapter, e.item, e.note) for e in entries if e.kind == "question" and e.note not in ("", "skipped")
            )
    return found


def programs(notebooks: Path) -> dict[str, str]:
    """The programs of the questions in a folder of notebooks, by the item of the question (``"q-"`` and its key).

    Each program ends with a comment line with its question. Only the first question of a cell is taken, and only if its
    arguments are literals.
    """
    found = {}
    for path in sorted(notebooks.glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] != "code" or "question(" not in source:
                continue
            try:
                calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
                call = next(node for node in calls if ast.unparse(node.func).endswith("question"))
                named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
                program, ask = (*(ast.literal_eval(argument) for argument in call.args), named.get("ask", "None"))[:2]
            except (SyntaxError, ValueError, StopIteration):
                continue
            found[f"q-{key_of(named.get('kind', 'value'), program, ask)}"] = (
                f"{program.strip()}\n# {named.get('kind', 'value')}: {ask}"
            )
    return found


def main() -> None:
    """Print the unexplained answers."""
    parser = argparse.ArgumentParser(prog="python -m pitfall_lab.lessons.unexplained", description=__doc__)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path)
    parser.add_argument(
        "--notebooks", metavar="FOLDER", type=Path, default=Path("notebooks"), help="where the questions are"
    )
    arguments = parser.parse_args()
    known = programs(arguments.notebooks)
    for (chapter, item, note), count in unexplained(arguments.folders).most_common():
        print(
            f"{count} × in chapter {chapter or '?'}: {note}\n"
            f"{known.get(item, f'(no notebook there has the question {item})')}\n"
        )


if __name__ == "__main__":
    main()
