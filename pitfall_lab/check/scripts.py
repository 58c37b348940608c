"""The files to check: finds Python files and notebooks in folders (:func:`found`), reads them as Python does
(:func:`read`), and applies edits to them (:meth:`Script.edited`).
"""

# ruff: noqa: PLC0415 - a program is checked without Jupyter: its packages are imported for notebooks only

from __future__ import annotations

import ast
import codecs
import fnmatch
import io
import os
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pitfall_lab.check.workshop import Unchecked
from pitfall_lab.rules import Edit
from pitfall_lab.rules.kit.source import split_lines
from pitfall_lab.trace import T

SUFFIXES = (".py", ".ipynb")
EXCLUDED = (".*", "__pycache__", "node_modules", "site-packages", "build", "dist", "venv", "*.egg-info")
"""Folders that are not searched; so is every folder that holds a virtual environment."""
SHELL = """\
class _Shell:
    def __getattr__(self, name):
        return lambda *args, **kwargs: []
def get_ipython():
    return _Shell()
def display(*things, **options):
    for thing in things:
        print(thing)
def _await(thing, loops=[]):
    import asyncio
    async def wait():
        return await thing
    if not loops:
        loops.append(asyncio.new_event_loop())
    return loops[0].run_until_complete(wait())
"""
"""Replaces IPython in a notebook's namespace: magics and shell lines do nothing and return an
empty list, ``display`` prints.

``_await`` replaces ``await`` outside a function (:func:`forgiving`).
"""
_TRANSPARENT = ("%%time", "%%capture", "%%pitfall")


@dataclass(frozen=True, slots=True)
class ScriptCell:
    """A code cell that became lines of a script. ``number`` counts code cells from 1, ``index`` all cells from 0.

    ``first`` is its first line in the script (from 1), ``count`` the number of its lines.
    """

    number: int
    index: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Script:
    r"""A file as it is run: a notebook's code cells become one text, one after the other. ``name`` is its name in
    reports, ``path`` where it is, ``encoding`` that of the file, ``cells`` are the code cells of a notebook (empty for
    a file).

    ``shown`` has the same lines as ``text`` as the author wrote them (magics are other lines in ``text``, cells that
    are left out are blank there); ``raw`` are the bytes of the file. Line ends are ``\n`` in both texts, whatever they
    are in the file. ``forgiven`` are the lines (first, last) of cells that may raise. ``notes`` say which cells were
    left out.
    """

    name: str
    path: Path
    raw: bytes
    text: str
    shown: str
    encoding: str = "utf-8"
    cells: tuple[ScriptCell, ...] = ()
    forgiven: tuple[tuple[int, int], ...] = ()
    notes: tuple[T, ...] = ()

    @property
    def prelude(self) -> str:
        """The code that is run before the script: :data:`SHELL` for a notebook, empty for a file."""
        return SHELL if self.cells else ""

    def place(self, line: int | None) -> tuple[int | None, int | None]:
        """The cell number (``None`` for a file) and the line in that cell, or in the file.

        ``line`` counts in the script; ``None`` stays ``None``.
        """
        if line is None or not self.cells:
            return None, line
        cell = next((c for c in reversed(self.cells) if c.first <= line), self.cells[0])
        return cell.number, line - cell.first + 1

    def place_text(self, line: int) -> str:
        """A line number as shown to the user; for a notebook ``cell 3:2``."""
        cell, own = self.place(line)
        return f"cell {cell}:{own}" if cell else str(own)

    def edited(self, edits: Iterable[Edit]) -> Script | None:
        """The script with the edits of a fix applied; ``None`` where one touches a line that the author did not write,
        or two cells.

        The file is not written; its new bytes are in ``raw``. Raises :class:`Unchecked` if the result is not a program.
        """
        text, shown = split_lines(self.text), split_lines(self.shown)
        edits = sorted(edits, key=lambda edit: edit.line, reverse=True)
        if any(text[e.line - 1 : e.end_line] != shown[e.line - 1 : e.end_line] for e in edits):
            return None
        raw = self._notebook(edits) if self.cells else self._file(edits)
        return None if raw is None else read(self.path, self.name, raw)

    def _file(self, edits: Iterable[Edit]) -> bytes:
        """Return the edited file as bytes: unchanged lines keep their line ends, new ones get those of
        the lines that they replace.
        """
        bom = codecs.BOM_UTF8 if self.raw.startswith(codecs.BOM_UTF8) else b""
        lines = split_lines(self.raw[len(bom) :].decode(self.encoding.removesuffix("-sig")))
        for edit in edits:
            end = "\r\n" if lines[edit.line - 1].endswith("\r\n") else "\n"
            lines[edit.line - 1 : edit.end_line] = [edit.text.replace("\n", end)] if edit.text else []
        return bom + "".join(lines).encode(self.encoding.removesuffix("-sig"))

    def _notebook(self, edits: Iterable[Edit]) -> bytes | None:
        import nbformat

        notebook = nbformat.reads(self.raw.decode("utf-8"), as_version=nbformat.NO_CONVERT)
        for edit in edits:
            cell = next(c for c in reversed(self.cells) if c.first <= edit.line)
            if edit.end_line >= cell.first + cell.count:
                return None
            lines = split_lines(notebook.cells[cell.index].source)
            first, last = edit.line - cell.first, edit.end_line - cell.first + 1
            text = (
                edit.text if last < len(lines) or (lines and lines[-1].endswith("\n")) else edit.text.removesuffix("\n")
            )
            lines[first:last] = [text] if text else []
            notebook.cells[cell.index].source = "".join(lines)
        written: str = nbformat.writes(notebook, version=nbformat.NO_CONVERT)
        return (written.rstrip("\n") + "\n").encode("utf-8")


# --- finding files ---------------------------------------------------------------------------------------------------


def found(paths: Iterable[str], exclude: Callable[[Path], bool] = lambda _: False) -> Iterator[Path | Unchecked]:
    """Yield the files to check, each once, in order; a folder is searched for Python files and notebooks, and for what
    cannot be read in it the reason is yielded.

    In a folder, hidden files, the folders of :data:`EXCLUDED` and paths for which ``exclude`` returns True are left
    out; a file that is named is always yielded, and not looked at here. A folder without any file to check gives a
    reason, too.
    """
    seen: set[str] = set()
    for name in paths:
        path = Path(name)
        for file in _below(path, exclude) if path.is_dir() else [path]:
            key = file if isinstance(file, Unchecked) else os.path.realpath(file)
            if str(key) not in seen:
                seen.add(str(key))
                yield file


def _below(folder: Path, exclude: Callable[[Path], bool]) -> Iterator[Path | Unchecked]:
    refused: list[Unchecked] = []

    def refuse(problem: OSError) -> None:
        refused.append(
            Unchecked(
                type(problem).__name__, f"{problem.filename} cannot be read: {problem.strerror}.", file=problem.filename
            )
        )

    any_file = False
    # links to folders are not followed: they may lead in circles
    for here, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(
            name for name in folders if not _is_excluded(Path(here, name)) and not exclude(Path(here, name))
        )
        for name in sorted(names):
            path = Path(here, name)
            if path.suffix in SUFFIXES and not name.startswith(".") and not exclude(path):
                any_file = True
                yield path
    yield from refused
    if not any_file and not refused:
        yield Unchecked("NoFiles", f"There is no Python file and no notebook in {folder}.", file=str(folder))


def _is_excluded(folder: Path) -> bool:
    return any(fnmatch.fnmatch(folder.name, pattern) for pattern in EXCLUDED) or (folder / "pyvenv.cfg").exists()


# --- reading ---------------------------------------------------------------------------------------------------------


def read(path: Path, name: str | None = None, raw: bytes | None = None) -> Script:
    """Read the file at ``path``, called ``name`` in messages (default: the path), as Python would.

    Raises :class:`Unchecked` with a one-sentence reason for one that cannot be read, is not a program, or is empty.

    ``raw``: the bytes to take instead of the file's; then ``path`` is only its name.
    """
    name = name or str(path)
    raw = _bytes(path, name) if raw is None else raw
    script = _notebook(path, name, raw) if path.suffix == ".ipynb" else _file(path, name, raw)
    if not script.text.strip():
        what = "has no code cells" if path.suffix == ".ipynb" else "is empty"
        raise Unchecked("EmptyFile", f"{name} {what}, so there is nothing to check.")
    parsed(script.text, name, script)
    return script


def _bytes(path: Path, name: str) -> bytes:
    try:
        if path.is_dir():
            raise Unchecked("IsADirectoryError", f"{name} is a folder.")
        if path.exists() and not path.is_file():
            raise Unchecked("NotAFile", f"{name} is not an ordinary file.")
        return path.read_bytes()
    except FileNotFoundError:
        raise Unchecked("FileNotFoundError", f"There is no file {name}.") from None
    except OSError as problem:
        raise Unchecked(type(problem).__name__, f"{name} cannot be read: {problem.strerror or problem}.") from None


def _file(path: Path, name: str, raw: bytes) -> Script:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = io.TextIOWrapper(io.BytesIO(raw), encoding, newline=None).read()
    except (SyntaxError, UnicodeDecodeError, ValueError, LookupError):
        raise Unchecked("UnicodeDecodeError", f"{name} is not a text file that Python can read.") from None
    if "\0" in text:
        raise Unchecked("UnicodeDecodeError", f"{name} is not a text file that Python can read: it holds NUL bytes.")
    return Script(name, path, raw, text, text, encoding)


def parsed(text: str, name: str, script: Script | None = None) -> None:
    """Raise :class:`Unchecked`, naming the line, for a ``text`` that is not Python, before a process is started for it;
    returns nothing. ``name`` is the program's name in the message.

    For a notebook, ``script``, the line is named by its cell, and ``await`` is allowed outside functions.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(
                text if script is None or not script.cells else forgiving(text, ()), name, "exec", dont_inherit=True
            )
    except SyntaxError as problem:
        cell, line = script.place(problem.lineno) if script else (None, problem.lineno)
        place = f"cell {cell}, line {line}" if cell else f"line {line}"
        where = f" ({place}: {problem.msg})" if problem.lineno else ""
        raise Unchecked("SyntaxError", f"{name} is not valid Python{where}.", line) from None
    except (ValueError, RecursionError, MemoryError, OverflowError):
        raise Unchecked("SyntaxError", f"{name} is not valid Python.") from None


# --- notebooks -------------------------------------------------------------------------------------------------------


def _notebook(path: Path, name: str, raw: bytes) -> Script:
    notebook = _parsed_notebook(name, raw)
    language = (notebook.metadata.get("kernelspec") or {}).get("language") or (
        notebook.metadata.get("language_info") or {}
    ).get("name")
    if language and language.lower() not in ("python", "ipython"):
        raise Unchecked("NotPython", f"{name} is a notebook for {language}, not for Python.")
    text, shown, cells, forgiven, notes, widgets = "", "", [], [], [], []
    for number, (index, cell) in enumerate(
        ((i, c) for i, c in enumerate(notebook.cells) if c.cell_type == "code"), start=1
    ):
        first = text.count("\n") + 1
        source = cell.source if cell.source.endswith("\n") else cell.source + "\n"
        source = source.replace("\r\n", "\n").replace("\r", "\n")
        run, note = _as_python(source, number)
        count = source.count("\n")
        cells.append(ScriptCell(number, index, first, count))
        if note is not None:
            notes.append(note)
        if note is None and _shows_widgets(run):
            widgets.append(number)
            run = "\n" * count
        text, shown = text + run, shown + source
        if "raises-exception" in cell.metadata.get("tags", ()):
            forgiven.append((first, first + count - 1))
    if widgets:
        notes.append(_left_out(widgets))
    return Script(name, path, raw, text, shown, "utf-8", tuple(cells), tuple(forgiven), tuple(notes))


def _parsed_notebook(name: str, raw: bytes) -> Any:
    import nbformat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook whose cells have no ids is read all the same
            notebook = nbformat.reads(raw.decode("utf-8"), as_version=4)
        whole = all(isinstance(cell.source, str) for cell in notebook.cells) and isinstance(notebook.metadata, dict)
    except Exception:  # nbformat raises many kinds of errors for a broken document
        whole = False
    if not whole:
        raise Unchecked("NotANotebook", f"{name} is not a notebook that can be read.")
    return notebook


def _as_python(source: str, number: int) -> tuple[str, T | None]:
    """A cell as Python code with the same number of lines, and None; blank lines, and a
    note, when the cell is left out.

    Left out are cells with a ``%%`` magic (except :data:`_TRANSPARENT`), with magics that take another number of lines
    as Python, and with ``async`` outside a function.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    lines = source.split("\n")[:-1]
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    blank = "\n" * len(lines)
    if lines and lines[first].startswith("%%"):
        magic = lines[first].split()[0]
        if magic not in _TRANSPARENT:
            return blank, T(
                en=f"cell {number} was left out: it begins with `{magic}`, which does not run as a part of "
                "the notebook's Python",
                zh=f"第 {number} 个代码单元格没有运行：它以 `{magic}` 开头，不作为笔记本的 Python 代码运行",
            )
        lines[first] = ""
    # `%time x = f()` is a statement with a prefix; `if 1: ` has the same length
    lines = [line.replace("%time ", "if 1: ", 1) if line.lstrip().startswith("%time ") else line for line in lines]
    lines = ["" if line.startswith("from __future__ ") else line for line in lines]
    leading = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    run = (
        "\n" * leading + TransformerManager().transform_cell("\n".join(lines[leading:])) if leading < len(lines) else ""
    )
    run = run.rstrip("\n") + "\n" * max(len(lines) - run.rstrip("\n").count("\n"), 1)
    if run.count("\n") > len(lines):
        return blank, T(
            en=f"cell {number} was left out: its magics cannot be read line by line",
            zh=f"第 {number} 个代码单元格没有运行：其中的魔法命令无法逐行读取",
        )
    if _only_async(run):
        return blank, T(
            en=f"cell {number} was left out: it uses `async` outside a function",
            zh=f"第 {number} 个代码单元格没有运行：它在函数之外使用了 `async`",
        )
    return run, None


def _shows_widgets(text: str) -> bool:
    """Whether all statements of a cell are calls of this package (questions or claims), on which
    nothing in the program depends.

    False for a cell without statements, or one that is not valid Python.
    """
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    return bool(body) and all(isinstance(statement, ast.Expr) and _is_ours(statement.value) for statement in body)


def _is_ours(call: ast.expr) -> bool:
    """Whether the expression is a call of this package such as ``pitfall_lab.question(...)`` or
    ``pitfall_lab.claims(...).run()``.
    """
    if not isinstance(call, ast.Call):
        return False
    inner: ast.expr = call
    while isinstance(inner, ast.Call | ast.Attribute):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return isinstance(inner, ast.Name) and inner.id == "pitfall_lab"


def _left_out(cells: list[int]) -> T:
    """One sentence for all cells that only show widgets."""
    numbers = ", ".join(map(str, cells))
    one = len(cells) == 1
    return T(
        en=f"cell{'' if one else 's'} {numbers} {'was' if one else 'were'} left out: "
        f"{'it shows' if one else 'they show'} only questions, claims or pictures of pitfall_lab",
        zh=f"第 {numbers} 个代码单元格没有运行：其中只有 pitfall_lab 的提问、说法或图",
    )


def _only_async(text: str) -> bool:
    """Whether the text is valid only in a notebook, which allows ``async for`` and
    ``async with`` outside a function.
    """
    try:
        tree = forgiving(text, ())
        compile(tree, "cell", "exec", dont_inherit=True)
    except SyntaxError:
        try:
            compile(text, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except SyntaxError:
            return False
        return True
    return False


class _Waiting(ast.NodeTransformer):
    """Replaces ``await x`` outside a function, which notebooks allow, by ``_await(x)``."""

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        name = ast.copy_location(ast.Name("_await", ast.Load()), node)
        return ast.copy_location(ast.Call(name, [node.value], []), node)

    def inside(self, node: ast.AST) -> ast.AST:
        """Leave functions unchanged."""
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = inside  # noqa: N815 - the names that ast calls


def forgiving(text: str, forgiven: Iterable[tuple[int, int]]) -> ast.Module:
    """Return the syntax tree of a notebook's ``text`` as it is executed; SyntaxError is raised when it is not Python.

    An exception (no KeyboardInterrupt or SystemExit) on the ``forgiven`` lines, pairs of first and last line, ends only
    those lines, as in a cell tagged raises-exception; ``await`` is allowed outside functions.
    """
    tree = ast.parse(text)
    if "await" in text:
        _Waiting().visit(tree)
    for first, last in forgiven:
        inside = [s for s in tree.body if first <= s.lineno <= last]
        if not inside:
            continue
        handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
        guarded = ast.Try(inside, [handler], [], [])
        at = tree.body.index(inside[0])
        tree.body[at : at + len(inside)] = [ast.fix_missing_locations(ast.copy_location(guarded, inside[0]))]
    return tree
