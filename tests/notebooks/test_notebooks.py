"""The committed notebooks as they are written: clean, complete, and of one form."""

from __future__ import annotations

import ast
import itertools
import re

import nbformat
import pytest

from pitfall_lab.lessons import chapters, gpu
from pitfall_lab.lessons.claims import ledger
from pitfall_lab.lessons.exercises import exercises
from tests.notebooks import table
from tests.notebooks.books import FOLDER, NAMES, checked, code, exercises_of, read, shown_claims, tags, text

PLANNED = {chapter.file: chapter for chapter in chapters.CHAPTERS}
CHAPTERS = [name for name in NAMES if name in PLANNED]


def test_there_are_no_other_notebooks_than_the_start_and_the_planned_chapters() -> None:
    assert ["00-start-here.ipynb", *CHAPTERS] == NAMES
    assert [c.number for c in chapters.CHAPTERS] == list(range(1, 20))


def test_every_section_of_a_written_chapter_and_every_claim_has_its_cell() -> None:
    missing = [row for row in chapters.where(FOLDER) if row[2] in CHAPTERS and not row[3]]
    assert not missing


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_committed_clean(name: str) -> None:
    book = read(name)
    nbformat.validate(book)
    assert (book.nbformat, book.nbformat_minor) == (4, 5)
    assert all(not c.outputs and c.execution_count is None for c in code(book))
    assert "widgets" not in book.metadata
    assert "/" not in str(book.metadata.get("kernelspec", {}))
    ids = [c.id for c in book.cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+-[a-z0-9-]+", i) for i in ids), (
        "ids are deterministic: they come from the content, not from a random source"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_first_code_cell_loads_the_extension(name: str) -> None:
    assert code(read(name))[0].source.startswith("%load_ext pitfall_lab\n")


@pytest.mark.parametrize("name", NAMES)
def test_code_fits_the_width_of_a_cell(name: str) -> None:
    shown = [c for c in code(read(name)) if not c.metadata.get("jupyter", {}).get("source_hidden")]
    assert not [line for c in shown for line in c.source.splitlines() if len(line) > 100]


@pytest.mark.parametrize("name", NAMES)
def test_the_source_of_a_question_is_folded_away(name: str) -> None:
    questions = [c for c in code(read(name)) if "pitfall_lab.question(" in c.source]
    assert questions
    assert all(c.metadata.get("jupyter", {}).get("source_hidden") for c in questions)


@pytest.mark.parametrize("name", NAMES)
def test_a_folded_cell_does_not_show_a_check_in_its_first_line(name: str) -> None:
    """JupyterLab shows the first line of a folded cell, also below a prediction."""
    folded = [c for c in code(read(name)) if c.metadata.get("jupyter", {}).get("source_hidden")]
    assert [c.id for c in folded if c.source.startswith(("assert ", "try:"))] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_folded_away_in_a_text_is_read_as_markdown(name: str) -> None:
    """Behind a tag markdown begins again at an empty line; before it a backtick is shown as a backtick."""
    prose = [c.source for c in read(name).cells if c.cell_type == "markdown"]
    folds = [fold for text in prose for fold in re.findall(r"</summary>(.*?)</details>", text, re.DOTALL)]
    assert [fold for fold in folds if not re.fullmatch(r"\n\n.*\n\n", fold, re.DOTALL)] == []


@pytest.mark.parametrize("name", NAMES)
def test_headings_are_ordered_and_unique(name: str) -> None:
    prose = "\n".join(c.source for c in read(name).cells if c.cell_type == "markdown")
    headings = re.findall(r"^(#+) (.+)$", prose, re.MULTILINE)
    levels = [len(marks) for marks, _ in headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len({title for _, title in headings}) == len(headings)
    numbers = [int(n) for n in re.findall(r"^## (\d+) ·", prose, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_that_exist(name: str) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", text(name))
    assert targets
    assert all((FOLDER / target).is_file() for target in targets if "://" not in target), targets
    assert not [target for target in targets if "://" in target], "a notebook needs no network"


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_leads_to_the_next(name: str) -> None:
    last = [c for c in read(name).cells if c.cell_type == "markdown"][-1].source.splitlines()[-1]
    following = [c.file for c in chapters.CHAPTERS if c.number == PLANNED[name].number + 1]
    assert re.findall(r"\]\(([^)]+)\)", last) == [*following, "00-start-here.ipynb"]


def test_the_start_leads_to_every_chapter() -> None:
    assert {c.file for c in chapters.CHAPTERS} <= set(re.findall(r"\]\(([^)]+\.ipynb)\)", text("00-start-here.ipynb")))


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_shows_each_of_its_claims_once(name: str) -> None:
    assert sorted(shown_claims(read(name))) == sorted(PLANNED[name].claims)


@pytest.mark.parametrize("name", CHAPTERS)
def test_at_most_two_claims_are_in_a_section_and_eight_in_the_flow_and_the_ledger_has_the_others(name: str) -> None:
    sections, section = dict[str, int](), ""
    for cell in read(name).cells:
        if cell.cell_type == "markdown":
            section = (re.findall(r"^## (.+)$", cell.source, re.MULTILINE) or [section])[-1]
        else:
            sections[section] = sections.get(section, 0) + len(chapters.shown_in(cell.source))
    rest = sections.pop("The ledger", 0)
    assert max(sections.values()) <= 2
    assert sum(sections.values()) <= 8
    assert not rest or sum(sections.values()) >= 4  # the flow has those that surprise: what was just said is no question


@pytest.mark.parametrize("name", CHAPTERS)
def test_what_a_ledger_asks_is_not_nearly_all_right(name: str) -> None:
    cells = [c.source for c in code(read(name)) if "-ledger-" in c.id and "claim_list(" not in c.source]
    asked = [ledger()[key] for source in cells for key in chapters.shown_in(source)]
    assert len(asked) <= 12
    assert not asked or sum(claim.judged == "correct" for claim in asked) <= 0.5 * len(asked)


def test_another_sentence_is_written_only_for_a_claim_that_is_asked() -> None:
    decided = {key for name in NAMES for c in code(read(name)) if "claim_list(" not in c.source for key in chapters.shown_in(c.source)}
    assert {key for key, claim in ledger().items() if claim.asked} <= decided


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_keeps_the_rhythm(name: str) -> None:
    source = "\n".join(c.source for c in read(name).cells)
    assert "**A question from practice.**" in source
    assert "## To remember" in source
    assert re.search(r"## \d+ · Where it bites in real projects", source)
    assert "pitfall_lab.check(program" in source or re.search(r"^%%check \w+\.py$", source, re.MULTILINE)
    assert source.count("pitfall_lab.question(") >= 3
    assert source.count("%%pitfall") >= 4
    assert source.count("**What if**") >= 2
    remembered = re.search(r"## To remember\n\n((?:\d\. .+\n)+)", source)
    assert remembered
    assert len(remembered[1].splitlines()) == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_keeps_the_bounds_of_the_second_edition(name: str) -> None:
    assert table.row(name).broken() == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_exercises_of_a_chapter_are_its_cells_as_they_are_given(name: str) -> None:
    book, planned = read(name), {key: e for key, e in exercises().items() if e.chapter == name[:2]}
    assert exercises_of(book) == {key: e.given.strip("\n") for key, e in planned.items()}
    assert len(planned) >= 3
    assert len({e.kind for e in planned.values()}) >= 2
    assert [("exercise" in tags(c)) for c in code(book)] == [c.source.startswith("%%exercise") for c in code(book)]


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_program_from_practice_is_of_realistic_size(name: str) -> None:
    cell = next(c for c in code(read(name)) if c.id.endswith("practice-check"))
    program = checked(cell.source)
    assert 20 <= len([line for line in program.splitlines() if line.strip()]) <= 60


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_shown_with_its_words(name: str) -> None:
    for cell in code(read(name)):
        shown = [n for n in ast.walk(ast.parse(re.sub(r"(?m)^\s*[%!].*$", "", cell.source))) if isinstance(n, ast.Call)]
        calls = {ast.unparse(n.func): n for n in shown}
        if "plt.subplots" in calls:
            assert len(ast.literal_eval(calls["pitfall_lab.show_figure"].args[1])) > 60, cell.id
        assert not calls.keys() & {"plt.show", "plt.savefig"}, cell.id
    assert "![](" not in text(name)


def test_every_experiment_for_a_gpu_has_its_chapter() -> None:
    calls = re.findall(r"gpu\.show\(([^)]*)\)", "".join(map(text, CHAPTERS)))
    shown = [name for call in calls for name in re.findall(r"\w{4,}", call)]
    assert sorted(shown) == gpu.names()
