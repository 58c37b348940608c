"""The command line of ``pitfall-lab classroom``: making an assignment."""

# ruff: noqa: PLC0415 - the commands for teachers start fast: each imports what it needs

from __future__ import annotations

import argparse
import ast
import copy
import csv
import re
import secrets
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pitfall_lab.classroom import assignment as assignments
from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.submissions import CELL
from pitfall_lab.cli import Refusal
from pitfall_lab.lessons.exercise import Exercise
from pitfall_lab.resources import shipped_notebooks
from pitfall_lab.trace import T

STUDENT = "student"
_CHAPTER_LINK = re.compile(r"\[([^\]\n]+)\]\((\d\d-[\w-]+\.ipynb)(?:#[^)]*)?\)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pitfall-lab classroom``."""
    words = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    init = words.add_parser(
        "init",
        help="make an assignment",
        description="Make an assignment from chapters. Nothing that is there is overwritten.",
    )
    init.add_argument(
        "folder", metavar="DIR", type=Path, help="where the assignment goes; with --nbgrader, the course's folder"
    )
    what = init.add_mutually_exclusive_group(required=True)
    what.add_argument("--chapters", metavar="N,M", help="the chapters, such as 5,12 or 5-7 or 5 12")
    what.add_argument("--exercises", metavar="N.K", help="these alone, such as 4.1 4.3 12.2: see `classroom exercises`")
    init.add_argument(
        "--name", help="what the assignment is called (default: the folder's name; with --nbgrader: pitfalls)"
    )
    init.add_argument("--exercises-only", action="store_true", help="short notebooks: the exercises without the lesson")
    init.add_argument("--otter", action="store_true", help="master notebooks with solutions, for `otter assign`")
    init.add_argument(
        "--package",
        metavar="SPEC",
        default="pitfall-lab",
        help="with --otter: what pip installs this package from in Otter's environment, such as git+https://… "
        "(default: pitfall-lab)",
    )
    init.add_argument(
        "--nbgrader", action="store_true", help="source notebooks for nbgrader, whose tests call the grader"
    )
    init.set_defaults(act=make)
    listed = words.add_parser("exercises", help="list the exercises: number, kind, minutes, title")
    listed.add_argument(
        "--chapters", metavar="N,M", help="of these chapters, such as 5,12 or 5-7 or 5 12 (default: all)"
    )
    listed.add_argument(
        "--lang",
        "--language",
        dest="language",
        choices=("en", "zh"),
        default="en",
        help="the titles' language (default: en)",
    )
    listed.set_defaults(act=_list)
    preview = words.add_parser("preview", help="write the answer key, and what students see, as pages")
    preview.add_argument("folder", metavar="DIR", type=Path, help="the assignment's folder")
    preview.add_argument(
        "-o", "--output", metavar="FOLDER", type=Path, default=None, help="where the pages go (default: DIR/preview)"
    )
    preview.add_argument(
        "--lang",
        "--language",
        dest="language",
        choices=("en", "zh"),
        default="en",
        help="the language of the pages (default: en)",
    )
    preview.set_defaults(act=_preview)
    terms = words.add_parser(
        "terms", help="print how often each property and misconception was there in several terms, as CSV"
    )
    terms.add_argument(
        "folders", metavar="DIR", type=Path, nargs="+", help="a graded assignment's folder, or its grades.state.jsonl"
    )
    terms.set_defaults(act=_terms)
    totals = words.add_parser(
        "totals", help="print the points of each student in several assignments, and their sum, as CSV"
    )
    totals.add_argument(
        "folders", metavar="DIR", type=Path, nargs="+", help="a graded assignment's folder, or its grades.csv"
    )
    totals.set_defaults(act=_totals)


def run(args: argparse.Namespace) -> int:
    """Run ``pitfall-lab classroom …`` and return its exit code.

    Raises :class:`~pitfall_lab.cli.Refusal` if what the command names is not there, or cannot be written.
    """
    return int(args.act(args))


def _list(args: argparse.Namespace) -> int:
    from pitfall_lab.classroom.exercise_list import listing

    print(listing(assignments.chosen(args.chapters) if args.chapters is not None else None, args.language))
    return 0


def _preview(args: argparse.Namespace) -> int:
    from pitfall_lab.classroom.preview import write_preview

    made = assignments.load(args.folder / assignments.NAME)
    written = write_preview(args.output or args.folder / "preview", made, args.language)
    print("\n".join(f"{what}: {path}" for what, path in written.items()))
    return 0


def _terms(args: argparse.Namespace) -> int:
    from pitfall_lab.classroom.analysis import terms

    csv.writer(sys.stdout).writerows(terms(args.folders))
    return 0


def _totals(args: argparse.Namespace) -> int:
    from pitfall_lab.classroom.totals import totals

    lines, said = totals(args.folders)
    csv.writer(sys.stdout).writerows(lines)
    for line in said:
        print(line, file=sys.stderr)
    return 0


def make(args: argparse.Namespace) -> int:
    """Write the notebooks of an assignment, for students or for nbgrader or Otter-Grader, and return 0.

    Raises :class:`~pitfall_lab.cli.Refusal` for a name or exercises that are not possible, and if the files are there
    already or cannot be written.
    """
    name = args.name or ("pitfalls" if args.nbgrader or args.otter else args.folder.resolve().name)
    if args.nbgrader and not re.fullmatch(r"[\w-]+", name):
        raise Refusal("nbgrader takes letters, digits, _ and - in the name of an assignment.")
    ident = secrets.token_hex(6)
    if args.exercises is not None:
        made = Assignment(ident, name, assignments.chosen_exercises([args.exercises]))
    else:
        made = assignments.of_chapters(assignments.chosen(args.chapters), ident=ident, name=name)
    books = {
        file: student_book(book, made, exercises_only=args.exercises_only)
        for file, book in chapter_books(made.chapters).items()
    }
    if args.nbgrader:
        from pitfall_lab.classroom.nbgrader import write_course

        where = write_course(args.folder, made, books)
        print(f"The source notebooks are in {where}. Next, in {args.folder}: nbgrader generate_assignment {name}")
        return 0
    if args.otter:
        from pitfall_lab.classroom.otter import write_masters

        where = write_masters(args.folder, made, books, args.package)
        print(f"The master notebooks, with solutions, are in {where}. Next, for each: otter assign NOTEBOOK FOLDER")
        return 0
    from pitfall_lab.classroom.exercise_list import minutes
    from pitfall_lab.lessons.exercises import exercises

    _write(args.folder, made, books)
    alone = sum(minutes(exercises()[key]) for key in made.keys)
    print(
        f"{len(books)} notebook{'s' * (len(books) != 1)} for students, with {len(made.keys)} "
        f"exercise{'s' * (len(made.keys) != 1)}, in {args.folder / STUDENT}: about {alone} minutes for the "
        "exercises.\n"
        f"Put what comes back into {args.folder / assignments.SUBMISSIONS}, one file or folder for each student, and "
        "run\n"
        f"  pitfall-lab grade {shlex.quote(str(args.folder))} --report {shlex.quote(str(args.folder / 'report'))}"
    )
    return 0


def _write(folder: Path, made: Assignment, books: dict[str, Any]) -> None:
    import nbformat

    for path in (folder / assignments.NAME, folder / STUDENT):
        if path.exists():
            raise Refusal(f"{path} is there already, and nothing is overwritten; choose another folder.")
    try:
        (folder / STUDENT).mkdir(parents=True)
        (folder / assignments.SUBMISSIONS).mkdir(exist_ok=True)
        for file, book in books.items():
            nbformat.write(book, folder / STUDENT / file)
        (folder / STUDENT / "README.md").write_text(readme(made, books), encoding="utf-8")
        (folder / assignments.NAME).write_text(made.to_toml(), encoding="utf-8")
    except OSError as problem:
        raise Refusal(f"The assignment cannot be written into {folder}: {problem.strerror}.") from None


def chapter_books(chapters: tuple[int, ...]) -> dict[str, Any]:
    """The notebooks of chapters (by number), as ``nbformat`` has them, by file name. Raises
    :class:`~pitfall_lab.cli.Refusal` for a chapter that has none.
    """
    import nbformat

    from pitfall_lab.lessons.chapters import CHAPTERS

    shipped = shipped_notebooks()
    files = {chapter.number: chapter.file for chapter in CHAPTERS}
    found = {}
    for number in chapters:
        path = shipped / files[number] if shipped else None
        if path is None or not path.is_file():
            raise Refusal(f"The notebook of chapter {number} is not in this installation.")
        found[path.name] = nbformat.read(path, as_version=4)
    return found


def student_book(book: Any, made: Assignment, *, exercises_only: bool = False) -> Any:
    """A copy of a chapter's notebook as students get it: without outputs, with the chapter's exercises that are in the
    assignment ``made``, as they are given, and without other exercises. With ``exercises_only``, there is only a
    heading, the cell that loads the extension, and these exercises.

    Names of chapters that are not handed out are no links.
    """
    from pitfall_lab.lessons.chapters import CHAPTERS
    from pitfall_lab.lessons.exercises import exercises

    book = copy.deepcopy(book)
    book.cells = _without_others(book.cells, made.keys)
    files = {chapter.file for chapter in CHAPTERS if chapter.number in made.chapters}
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = _CHAPTER_LINK.sub(lambda link: link[0] if link[2] in files else link[1], cell.source)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            if begin := CELL.match(cell.source):
                cell.source = f"%%exercise {begin[1]}\n{exercises()[begin[1]].given.rstrip()}"
    there = {begin[1] for cell in book.cells if cell.cell_type == "code" and (begin := CELL.match(cell.source))}
    chapter = next((cell.source.split("\n")[0] for cell in book.cells if cell.source.startswith("# ")), "# Exercises")
    wanted = [
        key for key in made.keys if exercises()[key].chapter == re.sub(r"\D.*", "", chapter.removeprefix("# ")).zfill(2)
    ]
    if exercises_only:
        book.cells = _short(chapter, [exercises()[key] for key in wanted])
    elif missing := [key for key in wanted if key not in there]:
        book.cells += _tasks([exercises()[key] for key in missing])
    return book


def _without_others(cells: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """Leave out the cells of exercises that are not in the assignment, with their tasks; other
    text in a task's cell stays.
    """
    from pitfall_lab.lessons import tasks

    kept = []
    for cell in cells:
        if cell.cell_type == "code" and (begin := CELL.match(cell.source)) and begin[1] not in keys:
            continue
        if cell.cell_type == "markdown":
            text, key = tasks.split(cell.source)
            cell.source = cell.source if key in {"", *keys} else text.rstrip()
        if cell.source:
            kept.append(cell)
    return kept


def _short(title: str, wanted: list[Exercise]) -> list[Any]:
    from nbformat.v4 import new_code_cell, new_markdown_cell

    text = (
        f"{title}\n"
        "\n"
        "Each cell below that begins with `%%exercise` is one exercise. Change what is under that line and run the "
        "cell: it says what holds and what does not. A cell is run by itself, on inputs that change, with "
        f"{_imported(wanted).en} imported.\n"
        "\n"
        "以 `%%exercise` 开头的每个单元格是一道练习。修改该行以下的内容并运行：结果会说明哪些性质成立、哪些不成立。每"
        f"个单元格单独运行，输入会变化，{_imported(wanted).zh} 已导入。"
    )
    return [
        new_markdown_cell(text, id="exercises-title"),
        new_code_cell("%load_ext pitfall_lab", id="exercises-setup"),
        *_tasks(wanted),
    ]


def _tasks(wanted: list[Exercise]) -> list[Any]:
    from nbformat.v4 import new_code_cell, new_markdown_cell

    cells = []
    for exercise in wanted:
        ident = exercise.key.replace(".", "-")
        text = (
            f"## Exercise {exercise.key} · {exercise.title.en} · {exercise.title.zh}\n"
            "\n"
            f"{exercise.task.en}\n"
            "\n"
            f"{exercise.task.zh}"
        )
        cells.append(new_markdown_cell(text, id=f"task-{ident}"))
        source = f"%%exercise {exercise.key}\n{exercise.given.rstrip()}"
        cells.append(new_code_cell(source, id=f"exercise-{ident}", metadata={"tags": ["exercise"]}))
    return cells


def _imported(wanted: Iterable[Exercise]) -> T:
    """A part of a sentence: the names that the cells of these exercises find imported, and which
    exercises have more of them.
    """
    en, zh = "`torch`, `nn`, `F` and `np`", "`torch`、`nn`、`F`、`np`"
    more: dict[tuple[str, ...], list[str]] = {}
    for exercise in wanted:
        if names := imports(exercise):
            more.setdefault(names, []).append(exercise.key)
    for names, keys in more.items():
        code = [f"`{name}`" for name in names]
        en += f", in {' and '.join(keys)} also {' and '.join(code)}"
        zh += f"（{'、'.join(keys)} 中还有 {'、'.join(code)}）"
    return T(en=en, zh=zh)


def imports(exercise: Exercise) -> tuple[str, ...]:
    """The names by which the ``setup`` of an exercise imports modules (``np`` for ``import numpy as np``): its cell
    finds these as well.
    """
    found = [node for node in ast.parse(exercise.setup).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return tuple(name.asname or name.name for node in found for name in node.names)


INSTALL = "python3 -m venv .venv && .venv/bin/pip install -c binder/constraints.txt ."
"""As in the repository's README; a test compares."""
_PROGRESS = T(
    en="5. If your teacher wants it, hand in `pitfall-lab-progress.jsonl` from the same folder as well, in one zip or "
    "folder with the\n"
    "   notebooks. It says how you answered the lesson's questions, so that the class can talk about what was often "
    "believed. It is not\n"
    "   graded.\n",
    zh="5. 如果老师要求，请把同一文件夹中的 `pitfall-lab-progress.jsonl` 与笔记本一起（放在一个 zip 或文件夹里）提交。"
    "它记录你对课程问题\n"
    "   的回答，便于全班讨论常见的误解；不计分。\n",
)


def readme(made: Assignment, books: dict[str, Any]) -> str:
    """The instructions for students, as Markdown; they name the file of their answers where the notebooks ``books`` (by
    file name) have questions.
    """
    from pitfall_lab.lessons.exercises import exercises

    questions = any("pitfall_lab.question(" in cell.source for book in books.values() for cell in book.cells)
    files = "\n".join(f"- `{file}`" for file in books)
    keys = ", ".join(made.keys)
    modules = _imported(exercises()[key] for key in made.keys)
    progress, too = (_PROGRESS.en, _PROGRESS.zh) if questions else ("", "")
    return f"""# {made.name}

{files}

1. Open these notebooks where pitfall_lab is installed: on the hub or the Binder page whose address your teacher gave you, or on your own
   computer (below).
2. Each cell that begins with `%%exercise` is one exercise ({keys}). Change what is **below** that line and run the cell: it says
   what holds and what does not, and which share of the points that is: what is marked `[as given]` held before you began, and earns
   nothing by itself. The number of tries is not limited. `%%exercise {made.keys[0]} --hint` gives a hint.
3. Leave the first line as it is, and keep one cell for each exercise: when there are several, the last one that is filled in counts.
4. Save, and hand in the notebooks. Only what is in these cells is graded; outputs and other cells are not looked at.
{progress}
A cell is run by itself, on inputs that change, with {modules.en} imported: what other cells define is not there. It may take
{made.limits.timeout:g} seconds and {made.limits.memory} MiB, and can use neither files nor the network nor other processes.
`%time`, `!ls`, `x?` and the like are skipped when it is graded; `await` outside a function is an error there as in the notebook.

**On your own computer**: you need Python 3.11 or newer, and a copy (a clone) of pitfall_lab's repository; your teacher knows where it is.
In a terminal, in that copy:

    {INSTALL}
    .venv/bin/pitfall-lab doctor

The second line says whether everything is there. Then go to the folder of this file, and open JupyterLab there:

    cd PATH/TO/THIS/FOLDER
    PATH/TO/THE/COPY/.venv/bin/jupyter lab

On Windows it is `python` in the place of `python3`, and `.venv\\Scripts` in the place of `.venv/bin` (this was not tried).

---

1. 在装有 pitfall_lab 的地方打开这些笔记本：老师给出地址的 JupyterHub 或 Binder，或自己的电脑。在自己的电脑上：需要 Python 3.11
   或更新版本和 pitfall_lab 仓库的副本（地址请问老师），在副本中执行上面的两条命令安装并检查，再到本文件所在的文件夹执行 `jupyter lab`。
2. 以 `%%exercise` 开头的每个单元格是一道练习（{keys}）。修改该行**以下**的内容并运行，次数不限：结果会说明哪些性质成立、哪些不成立，
   以及得多少分；标有 `[原题已有]` 的性质原本就成立，本身不得分。
   `%%exercise {made.keys[0]} --hint` 给出提示。
3. 不要改动第一行，每道练习只保留一个单元格：有多个时以最后一个已作答的为准。
4. 保存并提交笔记本。只有这些单元格会被评分；输出和其他单元格不予理会。
{too}
每个单元格单独运行，输入会变化，{modules.zh} 已导入；其他单元格中定义的名字不可用。限时 {made.limits.timeout:g} 秒，
内存 {made.limits.memory} MiB，不能使用文件、网络和其他进程。
评分时会跳过 `%time`、`!ls`、`x?` 之类；函数之外的 `await` 与在笔记本中一样是错误。
"""  # noqa: E501
