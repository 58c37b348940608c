"""``%load_ext pitfall_lab`` and ``%%pitfall``: run a cell as it is, watched, and show the Explorer under it.

(``%%exercise`` and ``%%check`` come too: :mod:`pitfall_lab.notebook.practice`,
:mod:`pitfall_lab.notebook.program_cells`.)

The cell is not run *by* the magic. The magic line is taken off the text, IPython runs the rest like any other cell
(errors, display, ``await``, history and all), and the recording is switched on before it and off after it.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

import argparse
import contextlib
import gc
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

from pitfall_lab.notebook.fix_runs import Lab, bench
from pitfall_lab.notebook.practice import Practice
from pitfall_lab.notebook.program_cells import Programs
from pitfall_lab.panel import Offer
from pitfall_lab.trace import LANGUAGES, Language, Part, T, Trace

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from pitfall_lab.notebook.cell_program import CellProgram, EarlierCells
    from pitfall_lab.notebook.hint import Hint
    from pitfall_lab.panel.cells_behind import Behind
    from pitfall_lab.verify import Session

MAGIC = "%%pitfall"
LOAD = "%load_ext pitfall_lab"
HELP = ("-h", "--help", "help", "?")
HINT = "application/vnd.pitfall-lab.hint+json"
"""A hint as the JupyterLab extension draws it; elsewhere its plain text is shown."""
_SWITCH = T(
    en="pitfall_lab did not understand this: {reason}. Usage: %pitfall on|off [--language en|zh], "
    "%pitfall explain RULE",
    zh="pitfall_lab 看不懂：{reason}。用法：%pitfall on|off [--language en|zh]，%pitfall explain RULE",
)
_HELP = T(
    en="%%pitfall on the first line of a cell runs the cell, watched, and shows below it what happened to its "
    "tensors.\n"
    "%%pitfall --with 2,3 runs In [2] and In [3] again before it, and shows them with it.\n"
    "%pitfall on does so with every cell that uses torch, until %pitfall off. %pitfall explain PL101 prints the page "
    "of a rule.\n"
    "Both take --language en|zh.",
    zh="单元格第一行写 %%pitfall：在观察下运行此单元格，并在下面显示张量发生了什么。\n"
    "%%pitfall --with 2,3 先重新运行 In [2] 和 In [3]，并一起显示。\n"
    "%pitfall on 对每个使用 torch 的单元格都这样做，直到 %pitfall off。%pitfall explain PL101 显示一条规则的说明。\n"
    "两者都可加 --language en|zh。",
)
_ON = T(
    en="pitfall_lab records every cell that uses torch from now on; %pitfall off ends it.",
    zh="pitfall_lab 从现在起记录每个使用 torch 的单元格；用 %pitfall off 结束。",
)
_OFF = T(
    en="pitfall_lab records only cells that begin with %%pitfall.", zh="pitfall_lab 只记录写有 %%pitfall 的单元格。"
)
_BEGAN = T(
    en="pitfall_lab: what this cell uses was computed in {names}, which this recording does not contain.",
    zh="pitfall_lab：此单元格使用的内容在 {names} 中算出，这次记录不包含它们。",
)
_WITH = T(
    en="{said} %%pitfall --with {counts} records them, too.", zh="{said}用 %%pitfall --with {counts} 把它们也记录下来。"
)
#: Where a shell keeps the one watcher that it has.
_PLACE = "_pitfall_lab"
_FAILED = T(
    en="pitfall_lab could not show this cell: {reason}. The cell itself ran as it would have without it.",
    zh="pitfall_lab 无法展示此单元格:{reason}。单元格本身的运行不受影响。",
)
_UNREADABLE = T(
    en="pitfall_lab did not watch this cell: {reason}. Usage: %%pitfall [--language en|zh] [--with 2,3]",
    zh="pitfall_lab 没有观察此单元格:{reason}。用法:%%pitfall [--language en|zh] [--with 2,3]",
)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Switch ``%%pitfall`` on in this kernel; calling it again changes nothing."""
    if getattr(shell, _PLACE, None) is None:
        watcher = Watcher(shell)
        setattr(shell, _PLACE, watcher)
        watcher.install()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Switch ``%%pitfall`` off again."""
    watcher = getattr(shell, _PLACE, None)
    if watcher is not None:
        watcher.remove()
        setattr(shell, _PLACE, None)


class _Usage(Exception):
    """The words after ``%%pitfall`` are not understood."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(message)


def options(line: str) -> argparse.Namespace:
    """Parse the rest of the line after ``%%pitfall``: ``language``, and ``earlier``, the numbers of the earlier cells
    to run first (``--with 2,3``; empty: none). Raises :class:`_Usage` if the line is not understood.

    >>> options("--language zh").language
    'zh'
    """
    parser = _Parser(prog=MAGIC, add_help=False)
    parser.add_argument("--language", "-l", choices=("en", "zh"), default="en")
    parser.add_argument("--with", dest="earlier", metavar="2,3", type=_counts, default=())
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise _Usage(str(error)) from error


def _counts(text: str) -> tuple[int, ...]:
    """Return the numbers of earlier cells that the option names; raises ValueError for another text.

    >>> _counts("2,3")
    (2, 3)
    """
    return tuple(int(each) for each in text.split(","))


def switched(line: str) -> argparse.Namespace:
    """Parse the rest of the line after ``%pitfall``, which switches the recording of every cell on and off: ``state``
    (``"on"`` or ``"off"``) and ``language``. Raises :class:`_Usage` for other words than ``on``, ``off`` and
    ``--language``.

    >>> switched("on").state
    'on'
    """
    parser = _Parser(prog="%pitfall", add_help=False)
    parser.add_argument("state", choices=("on", "off"))
    parser.add_argument("--language", "-l", choices=("en", "zh"), default="en")
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise _Usage(str(error)) from error


def explain(line: str) -> None:
    """What ``%pitfall explain PL101`` does: print the page of the rule that ``line`` names, or why there is none;
    raises :class:`_Usage` if ``line`` is not understood.
    """
    from pitfall_lab.check import explain as command
    from pitfall_lab.cli import Refusal

    parser = _Parser(prog="%pitfall explain", add_help=False)
    command.add_arguments(parser)
    try:
        command.run(parser.parse_args(shlex.split(line)))
    except ValueError as error:
        raise _Usage(str(error)) from error
    except Refusal as refusal:
        print(refusal)


def _is_magic(line: str) -> bool:
    return line.rstrip() == MAGIC or line.startswith((MAGIC + " ", MAGIC + "\t"))


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Switch Python's cyclic garbage collector off while active: a run of it would take
    as long as half of a drawing.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


class Watcher:
    """Records the cells of one kernel that begin with ``%%pitfall``.

    While ``%pitfall on`` is set, it records every cell, as soon as torch is imported or named, except those of other
    ``%%`` magics and those that are not kept in the history.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._session: Session | None = None
        self._cell: tuple[CellProgram, Language] | None = None
        #: What tries the fixes of a cell, by the cell's id in the notebook; "" where there is none.
        self._labs: dict[str, Lab] = {}
        #: The notebook's ids of the cells that have run, by number.
        self._ids: dict[int, str] = {}
        #: The language of the last cell that was watched, also used for hints.
        self._language: Language = "en"
        #: The numbers of the earlier cells that the recorded one begins with.
        self._counts: tuple[int, ...] = ()
        #: Whether every cell is recorded, and the running one because of that.
        self._always, self._automatic = False, False
        self._bench = bench()
        self._practice = Practice(shell)
        self._programs = Programs(shell)
        self._panel = Offer(shell)
        #: A page loads the extension into every notebook, with a silent message: that must
        #: cost nothing until it is used.
        self._wanted = not (getattr(shell, "parent_header", None) or {}).get("content", {}).get("silent", False)
        self._warmed = 0

    def install(self) -> None:
        """Hook into the kernel: one text transformer, two events, and three magics."""
        self._shell.input_transformers_cleanup.insert(0, self._without_magic)
        self._shell.events.register("pre_run_cell", self.before)
        self._shell.events.register("post_run_cell", self.after)
        self._shell.register_magic_function(self._as_magic, "cell", "pitfall")  # type: ignore[arg-type]
        self._shell.register_magic_function(self._switch, "line", "pitfall")  # type: ignore[arg-type]
        self._shell.register_magic_function(self._practice.magic, "cell", "exercise")  # type: ignore[arg-type]
        self._shell.register_magic_function(self._programs.magic, "cell", "check")  # type: ignore[arg-type]
        self._panel.install()

    def remove(self) -> None:
        """Remove all hooks from the shell."""
        with contextlib.suppress(ValueError):
            self._shell.input_transformers_cleanup.remove(self._without_magic)
        self._shell.events.unregister("pre_run_cell", self.before)
        self._shell.events.unregister("post_run_cell", self.after)
        for name in ("pitfall", "exercise", "check"):
            self._shell.magics_manager.magics["cell"].pop(name, None)
        self._shell.magics_manager.magics["line"].pop("pitfall", None)
        self._panel.remove()
        self._bench.close()

    def _without_magic(self, lines: list[str]) -> list[str]:
        """IPython input transformer: removes the magic line, and inserts the earlier cells that it names
        (none if it is not understood).
        """
        if not lines or not _is_magic(lines[0]):
            return lines
        earlier: Sequence[str] = ()
        with contextlib.suppress(_Usage):
            earlier = self._earlier(options(lines[0][len(MAGIC) :]).earlier).lines
        return [*(f"{line}\n" for line in earlier), *lines[1:]]

    def _earlier(self, counts: Sequence[int]) -> EarlierCells:
        """The earlier cells with these numbers, as they were run; raises :class:`_Usage` if one has not been."""
        from pitfall_lab.notebook.cell_program import again

        texts: Sequence[str] = (
            self._shell.history_manager.input_hist_parsed if self._shell.history_manager is not None else ()
        )
        for count in counts:
            if not (0 < count < len(texts) and texts[count]):
                raise _Usage(f"there is no In [{count}]")
        return again((f"In [{count}]", texts[count], self._ids.get(count, "")) for count in counts)

    def _as_magic(self, line: str, cell: str) -> None:
        """Run this cell watched, and show below it what it did to storages, versions and the graph."""
        self._shell.run_cell(f"{MAGIC} {line}\n{cell}")

    def _switch(self, line: str) -> None:
        """``%pitfall on`` records every cell that uses torch, as ``%%pitfall`` does one; ``%pitfall off`` ends it.

        ``%pitfall explain PL101`` prints the page of a rule, and ``%pitfall --help`` what there is.
        """
        first, _, rest = line.strip().partition(" ")
        if first in HELP:
            print(_HELP.say(self._language))
            return
        try:
            if first == "explain":
                explain(rest)
                return
            wanted = switched(line)
        except _Usage as problem:
            self._say(_SWITCH, str(problem), "en")
            return
        self._always, self._language = wanted.state == "on", wanted.language
        print((_ON if self._always else _OFF).say(wanted.language))

    def _is_recorded(self, raw: str, info: Any) -> bool:
        """Whether a cell without ``%%pitfall`` is recorded while ``%pitfall on`` is set: torch is or gets imported.

        Not if it is another magic's, or not kept in the history.
        """
        uses = "torch" in sys.modules or "torch" in raw
        return (
            self._always and uses and bool(getattr(info, "store_history", True)) and not raw.lstrip().startswith("%%")
        )

    def before(self, info: Any) -> None:
        """Called before a cell runs (``info`` is IPython's, with its text and id): switch the recording on if the cell
        begins with ``%%pitfall`` or every cell is recorded. A line that is not understood is answered with a printed
        sentence.
        """
        raw = info.raw_cell or ""
        manager = self._shell.extension_manager
        if (
            LOAD in raw and manager is not None
        ):  # a page may have loaded it before: IPython would say so, above the learner's first output
            manager.loaded.discard("pitfall_lab")
        first, _, _ = raw.partition("\n")
        is_magic = _is_magic(first)
        if self._session is not None or not (is_magic or self._is_recorded(raw, info)):
            return
        self._wanted, self._automatic = True, not is_magic
        if "torch" in sys.modules and not self._warmed:
            self._bench.start()
        words = first[len(MAGIC) :] if is_magic else f"--language {self._language}"
        if words.strip() in HELP:
            print(_HELP.say(self._language))
            return
        try:
            wanted = options(words)
            earlier = self._earlier(wanted.earlier)
            self._counts = tuple(wanted.earlier)
        except _Usage as problem:
            self._say(_UNREADABLE, str(problem), "en")
            return
        try:
            self._begin(raw, wanted.language, getattr(info, "cell_id", None) or "", earlier)
        except Exception as error:  # the learner's cell runs whatever happens to us
            self._session = None
            self._say(_FAILED, f"{type(error).__name__}: {error}", wanted.language)

    def _begin(self, raw: str, language: Language, cell: str, earlier: EarlierCells) -> None:
        from pitfall_lab.notebook import cell_program
        from pitfall_lab.verify import Session, for_drawing

        text = self._shell.transform_cell(raw)
        compiler = self._shell.compile
        # IPython counts up before or after this event, depending on its version; the name is
        # right when the cell has run.
        count = self._shell.execution_count
        names = tuple(compiler.get_code_name(raw, text, number) for number in (count, count - 1))
        self._language = language
        program = cell_program.program(text, self._shell.user_ns, self._part, cell, earlier)
        self._cell = (program, language)
        session = Session(
            names,
            "cell",
            program.text,
            parts=program.parts,
            places=program.places,
            begins=program.begins,
            sampling=for_drawing(),
        )
        session.__enter__()
        self._session = session
        self._shell.set_custom_exc((BaseException,), self._show_error)

    def _part(self, filename: str) -> Part | None:
        """The cell whose code has this file name; None if it is no cell."""
        named = self._shell.compile.format_code_name(filename)
        digits = "".join(c for c in named[1] if c.isdigit()) if named is not None else ""
        return Part(f"In [{digits}]", 1, 1, self._ids.get(int(digits), "")) if digits else None

    def _name(self, filename: str) -> str | None:
        part = self._part(filename)
        return part.name if part is not None else None

    @staticmethod
    def _show_error(
        shell: Any,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType,
        tb_offset: int | None = None,
    ) -> None:
        """Show the learner's error without our frames in it."""
        from pitfall_lab.observe.recorder import clean_traceback

        cleaned = clean_traceback(traceback)
        error.__traceback__ = cleaned
        shell.showtraceback((kind, error, cleaned), tb_offset=tb_offset)

    def after(self, result: Any) -> None:
        """Called after a cell has run (``result`` is IPython's): stop recording and show what was recorded; of a cell
        that was not recorded and failed, a hint.
        """
        session, self._session = self._session, None
        self._warm()
        if result.execution_count and (cell := getattr(result.info, "cell_id", None)):
            self._ids[result.execution_count] = cell
        if session is None or self._cell is None:
            self._hint(result)
            return
        program, language = self._cell
        self._shell.set_custom_exc((), None)
        try:
            session.__exit__(None, None, None)
            session.sources.rename(f"In [{result.execution_count}]" if result.execution_count else "cell")
            session.sources.rename_others(self._name)
            error = getattr(result, "error_in_exec", None)
            unread = result.error_before_exec
            recorded = session.finish(error) if unread is None else session.unparsable(program.text, unread)
            if self._automatic and not recorded.events:  # torch has done nothing here, and there is nothing to look at
                self._hint(result)
                return
            self._show(recorded, program, language, result)
            if (gone := self._gone(error, result)) is not None:
                self._below(gone, result, None)
            if isinstance(error, NameError):  # the Explorer shows what happened; this is about cells that did not run
                self._hint(result)
            elif error is not None:
                self._offer(error, result)
        except Exception as error:  # as above
            self._say(_FAILED, f"{type(error).__name__}: {error}", language)

    def _gone(self, error: BaseException | None, result: Any) -> Hint | None:
        """What is said where a recorded cell no longer fails as its last run did, and the panel
        does not know why it failed.
        """
        text = self._shell.transform_cell(result.info.raw_cell or "")
        before = self._panel.failed_before(error, text)
        if before is None or before.cause is not None:
            return None
        from pitfall_lab.notebook.hint import not_as_before

        return not_as_before(before, text, failed=error is not None)

    def _warm(self) -> None:
        """Start the process that tries fixes, if torch was imported and the extension was loaded by a cell or used.

        Once more when the first optimizer has made torch import the rest.
        """
        needs = ("torch" in sys.modules) + ("torch._dynamo" in sys.modules)  # the second with the first optimizer
        if self._wanted and self._warmed < needs:
            self._warmed = needs
            self._bench.warm()

    def _hint(self, result: Any) -> None:
        """Say below the traceback of a cell that was not watched what torch's error means, and
        how to see where it came from.
        """
        error = getattr(result, "error_in_exec", None)
        if error is None or getattr(result.info, "silent", False):
            return
        with contextlib.suppress(Exception):  # the learner's traceback is shown, whatever error happens here
            from pitfall_lab.notebook.hint import Hint, hint

            cell = self._shell.transform_cell(result.info.raw_cell or "")
            elsewhere = self._practice.elsewhere(error)
            found = Hint(elsewhere) if elsewhere is not None else hint(error, cell, self._panel.cause(error, cell))
            if found is not None:
                self._below(found, result, self._panel.behind(error, cell) if found.rule else None)

    def _offer(self, error: BaseException, result: Any) -> None:
        """Show, below the Explorer of a cell that torch refused, the offer to record it together with the
        earlier cells that led to it.

        Nothing if there are no such cells, or if the error has no rule.
        """
        from pitfall_lab.notebook.hint import Hint, hint
        from pitfall_lab.panel.cells_run import is_whole

        raw = result.info.raw_cell or ""
        cell = self._shell.transform_cell(raw)
        known = hint(error, cell) if is_whole(raw) else None
        behind = self._panel.behind(error, cell) if known is not None and known.rule else None
        if behind is not None:
            names, counts = (", ".join(form.format(each.count) for each in behind.cells) for form in ("In [{}]", "{}"))
            said = T(*(_BEGAN.say(each).format(names=names) for each in LANGUAGES))
            plain = T(
                *(_WITH.say(each).format(said=said.say(each), counts=counts.replace(" ", "")) for each in LANGUAGES)
            )
            self._below(Hint(plain, beside=said), result, behind)

    def _below(self, hint: Hint, result: Any, behind: Behind | None) -> None:
        """Show a hint below the cell.

        If earlier cells matter, it comes with the offer to record them together with this one.
        """
        self._wanted = True  # who reads a hint may soon look closer
        self._warm()
        beside, cell = hint.beside or hint.text, getattr(result.info, "cell_id", None) or ""
        under = {
            "version": 1,
            "text": {"en": beside.en, "zh": beside.zh},
            "rule": hint.rule,
            "cell": cell,
            "again": None,
        }
        if behind is not None:
            cells = [{"count": each.count, "id": each.id} for each in behind.cells]
            under["again"] = {"cells": cells, "effects": {"en": behind.effects.en, "zh": behind.effects.zh}}
        self._shell.display_pub.publish({"text/plain": hint.text.say(self._language), HINT: under})

    def _show(self, recorded: Trace, program: CellProgram, language: Language, result: Any) -> None:
        """Draw at once what was seen; the fixes are tried when it is there.

        A page that runs a notebook names its cells. Without such a page (nbconvert, a test) what is shown is
        final: it waits for the fixes.
        """
        from IPython.display import display

        from pitfall_lab.check import Subject
        from pitfall_lab.rules import find
        from pitfall_lab.widgets.explorer import Explorer
        from pitfall_lab.widgets.front_end import is_page_connected

        cell = getattr(result.info, "cell_id", None) or ""
        if cell in self._labs:  # its fixes are for what the cell was
            self._labs[cell].stop()
        subject = Subject(
            program.text, recorded.sources[0].name, prelude=program.imports, carried=self._bench.keep(program.values)
        )
        watched = bool(cell)
        text = self._shell.transform_cell(result.info.raw_cell or "")
        cause, before = (
            self._panel.cause(result.error_in_exec, text),
            self._panel.failed_before(result.error_in_exec, text),
        )
        warned = self._panel.warned(cell, text, self._counts)
        with _uncollected():
            found = find(recorded)
            if cause is not None or before is not None or warned:
                from pitfall_lab.notebook.explained_cells import completed

                found = completed(found, cause, before, warned)
            lab = self._labs[cell] = Lab(self._bench, subject, recorded, found, program.left)
            without_fixes = [finding.with_fixes(()) for finding in found]
            hopes = any(finding.fixes for finding in found)
            # Only our extension takes a new stored page without drawing the Explorer anew.
            place = uuid4().hex if hopes and watched and is_page_connected() else None
            explorer = Explorer(
                recorded,
                findings=without_fixes,
                language=language,
                lab=lab,
                whole=not watched,
                again=None if place is None else partial(self._again, place),
            )
        if hopes and not watched:
            explorer.try_fixes(behind=False)
        with _uncollected():
            display(explorer, **({} if place is None else {"display_id": place}))
        if watched:
            if hopes:
                explorer.try_fixes()  # another process works while this one draws the rest
            explorer.complete()

    def _again(self, place: str, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Show a MIME bundle in place of what was displayed under the id ``place``."""
        self._shell.display_pub.publish(data, metadata, transient={"display_id": place}, update=True)

    @staticmethod
    def _say(sentence: T, reason: str, language: Language) -> None:
        print(sentence.say(language).format(reason=reason.splitlines()[0][:200] if reason else "?"))
