"""What students get back: pages that explain themselves, under names that say whose they are, in a
form that can be handed back.
"""

from __future__ import annotations

import csv
import html
import io
import re
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import nbformat
import pytest

from pitfall_lab.classroom import assignment as assignments
from pitfall_lab.classroom import handback, report, similar
from pitfall_lab.classroom.init import INSTALL, STUDENT, imports
from pitfall_lab.classroom.judge import CellOutcome, known
from pitfall_lab.classroom.ledger import LedgerLine, Override, settled, write_grades
from pitfall_lab.classroom.register import Row
from pitfall_lab.classroom.roster import Person
from pitfall_lab.classroom.submissions import same
from pitfall_lab.classroom.totals import totals
from pitfall_lab.cli import main
from pitfall_lab.lessons import progress, tasks
from pitfall_lab.lessons.attempt import Request, observe
from pitfall_lab.lessons.chapters import CHAPTERS
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.notebook import practice
from pitfall_lab.trace import Language, T
from tests.classroom.thirteenth_class import colliding

KEYS = assignments.chosen_exercises(["4.2", "12.2"])
ASSIGNMENT = assignments.Assignment("a-test", "Week 3", KEYS)


def _row(student: str, *, right: bool = False) -> Row:
    chosen = [exercises()[key] for key in KEYS]
    return Row(student, "", tuple(known(each, each.right[0] if right else each.wrong[0]) for each in chosen))


def _entry(student: str, person: Person | None = None) -> LedgerLine:
    return LedgerLine(Row(student, ""), person or Person(student), {}, 0.0)


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("Łukasz Żółć", "Łukasz-Żółć-1007-"),
        ("王小明", "王小明-1007-"),
        ("Zo\u0065\u0308 Müller", "Zoë-Müller-1007-"),
        ("अनिल कुमार", "अनिल-कुमार-1007-"),
        ("../../etc/passwd", "etc-passwd-1007-"),
        ("a\u202eb\x00c<script>|:*?\"'", "a-b-c-script-1007-"),
        ("O'Connor, Seán", "O-Connor-Seán-1007-"),
        ("x" * 300, "x" * 40 + "-"),
    ],
)
def test_a_page_is_called_as_its_student_is(name: str, begins: str, tmp_path: Path) -> None:
    listed = report.page_name(_entry("77_912", Person("77_912", "1007", name)))
    assert re.fullmatch(re.escape(begins) + r"[0-9a-f]{8}\.html", listed)
    assert len(listed.encode()) < 255
    (tmp_path / listed).touch()
    assert report.page_name(_entry(name)).startswith(begins.removesuffix("1007-"))


def test_no_name_that_a_student_can_find_leads_to_the_page_of_another_one(tmp_path: Path) -> None:
    names = colliding()
    entries = settled(ASSIGNMENT, [_row(names[0], right=True), _row(names[1])])
    assert len({report.page_name(entry) for entry in entries}) == 1
    report.write_reports(tmp_path, ASSIGNMENT, entries)
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    links = [tmp_path / unquote(link) for link in re.findall(r'href="(students/[^"]+)"', index)]
    texts = [link.read_text(encoding="utf-8") for link in links]
    assert [html.escape(name) in text for name, text in zip(sorted(names), texts, strict=True)] == [True, True]
    report.write_reports(tmp_path, ASSIGNMENT, entries[:1])
    assert len([*(tmp_path / "students").iterdir()]) == 1


def test_what_the_grader_failed_at_stops_no_page_and_names_no_file_to_a_student(tmp_path: Path) -> None:
    failed = Row("eve", "", tuple(CellOutcome(key, "ungraded", (), "OSError: /usr/share/teacher/x") for key in KEYS))
    entries = settled(ASSIGNMENT, [failed, _row("ada", right=True)])
    index = report.write_reports(tmp_path, ASSIGNMENT, entries).read_text(encoding="utf-8")
    assert "/usr/share/teacher/x" in index
    theirs = [path.read_text(encoding="utf-8") for path in (tmp_path / "students").iterdir()]
    assert len(theirs) == 2
    assert not any("/usr/share/teacher" in text for text in theirs)
    assert not any("/usr/share/teacher" in remark for remark in entries[0].remarks(to_student=True))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("-++" * 248 + "+--" * 248, "+-" * 745, False),
        ("+-" * 740, "+-" * 745, True),
        ("-+" * 700 + "*", "*" + "-+" * 700, True),
    ],
)
def test_no_two_answers_take_long_to_compare(one: str, other: str, alike: bool) -> None:
    rows = [
        Row(name, "", (CellOutcome("12.2", "error", source=source),)) for name, source in (("a", one), ("b", other))
    ]
    started = time.process_time()
    assert bool(similar.all_pairs(rows, ["12.2"])) == alike
    assert time.process_time() - started < 10


def test_two_students_of_one_name_have_two_pages_and_no_name_is_no_page() -> None:
    same = [report.page_name(_entry(student, Person(student, name="Anna Schmidt"))) for student in ("a", "b")]
    assert len(set(same)) == 2
    assert re.fullmatch(r"student-[0-9a-f]{8}\.html", report.page_name(_entry("???")))


def test_a_table_says_which_page_is_whose_and_every_link_leads_to_one(tmp_path: Path) -> None:
    people = [
        Person("adal", "1001", "Ada Łovelace", "B", "ada@x.org"),
        Person("=1+1", "1002", "=cmd()"),
        Person("gone", "1003", "Gone"),
    ]
    entries = settled(ASSIGNMENT, [_row("adal"), _row("=1+1"), _row("guest")], people)
    index = report.write_reports(tmp_path, ASSIGNMENT, entries)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "pages.csv").read_text(encoding="utf-8-sig"))))
    assert {line["page"] for line in lines} == {path.name for path in (tmp_path / "students").iterdir()}
    assert [line["page"].removeprefix("'") for line in lines] == [line["page"] for line in lines]
    (ada,) = (line for line in lines if line["id"] == "1001")
    assert (ada["student"], ada["name"], ada["section"], ada["email"]) == ("adal", "Ada Łovelace", "B", "ada@x.org")
    assert not [cell for line in lines for cell in line.values() if cell.startswith("=")]
    links = re.findall(r'href="students/([^"]+)"', index.read_text(encoding="utf-8"))
    assert {unquote(link) for link in links} == {line["page"] for line in lines}
    assert not (tmp_path / "moodle-feedback.zip").exists()


def test_a_mark_for_someone_who_handed_in_nothing_has_a_page(tmp_path: Path) -> None:
    people = [Person("gone", "1003", "Gone"), Person("away", "1004", "Away")]
    entries = settled(ASSIGNMENT, [_row("guest")], people, [Override("gone", "", 1, "oral exam")])
    index = report.write_reports(tmp_path, ASSIGNMENT, entries).read_text(encoding="utf-8")
    (page,) = (tmp_path / "students").glob("Gone-*")
    assert "in all: 1 point by the teacher (oral exam)" in page.read_text(encoding="utf-8")
    assert quote(page.name) in index
    assert not list((tmp_path / "students").glob("Away-*"))


def test_the_class_page_has_the_spread_of_points_and_the_reason_that_a_line_shares() -> None:
    rows = [_row("ada", right=True), _row("bob")]
    people = [Person("ada"), Person("bob"), Person("carol")]
    entries = settled(ASSIGNMENT, rows, people, [Override("ada", "", 3, "read"), Override("bob", "", 1, "read")])
    most = sum(ASSIGNMENT.worth(key) for key in ASSIGNMENT.keys)
    text = report.class_page(ASSIGNMENT, entries, "en")
    assert f"Points of 2: mean 2 of {most:g}, median 2, lowest 1, highest 3." in text
    assert f"2 人的得分：平均 2（满分 {most:g}）" in report.class_page(ASSIGNMENT, entries, "zh")
    empty = known(exercises()["5.2"], "belief = {}")
    assert [mark.reason[0] for mark in empty.marks] == ["no answer yet"] * 6


def test_pages_go_back_to_moodle_under_the_names_of_its_download(tmp_path: Path) -> None:
    """Moodle splits a name at underscores: who, the participant's number, the kind and name
    of the plugin, and the file.
    """
    rows = [
        _row("Ada Łovelace_123_assignsubmission_file_"),
        _row("Zoë_Ann Müller_124_assignsubmission_file_week.ipynb"),
        _row("guest"),
    ]
    report.write_reports(tmp_path, ASSIGNMENT, settled(ASSIGNMENT, rows))
    with zipfile.ZipFile(tmp_path / "moodle-feedback.zip") as archive:
        names = archive.namelist()
        texts = {name: archive.read(name).decode() for name in names}
    assert len(names) == 2
    parts = [name.split("_", 4) for name in names]
    assert {part[1] for part in parts} == {"123", "124"}
    assert {tuple(part[2:]) for part in parts} == {("assignsubmission", "file", "feedback.html")}
    (ada,) = (texts[name] for name in names if "_123_" in name)
    assert "Ada Łovelace" in ada
    assert "124" not in ada
    report.write_reports(tmp_path, ASSIGNMENT, settled(ASSIGNMENT, rows[2:]))
    assert not (tmp_path / "moodle-feedback.zip").exists(), "marks that are no more are not handed back"


def test_pages_go_back_to_canvas_under_the_names_and_endings_of_its_download(tmp_path: Path) -> None:
    """Canvas takes the first two numbers between underscores, and calls the comment's file as what was handed in."""
    rows = [_row("ada", right=True), _row("muellerzoe_78_914_w"), _row("guest"), _row("bob_80_917_notes")]
    files = {
        "ada": [
            "lovelaceada_77_912_05",
            "lovelaceada_77_913_12",
            "lovelaceada_77_912_05.ipynb",
            "lovelaceada_LATE_77_913_12.ipynb",
        ],
        "muellerzoe_78_914_w": ["muellerzoe_78_914_w", "muellerzoe_78_914_w.zip"],
        "guest": ["guest", "guest.ipynb"],
        "bob_80_917_notes": ["bob_80_917_notes.pdf"],
    }
    entries = settled(ASSIGNMENT, rows, [Person("ada", "1001", "Ada $x$ Lovelace")])
    report.write_reports(tmp_path, ASSIGNMENT, entries, files=files)
    with zipfile.ZipFile(tmp_path / "canvas-feedback.zip") as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    assert set(inside) == {"lovelaceada_LATE_77_913_12.ipynb", "muellerzoe_78_914_w.zip"}
    (cell,) = nbformat.reads(inside["lovelaceada_LATE_77_913_12.ipynb"].decode(), as_version=4).cells  # type: ignore[no-untyped-call]
    assert not set("\n$\\`") & set(cell.source), "one block of HTML, without formulas"
    assert "<li>✓ " in cell.source
    assert "✓ " not in cell.source.replace("<li>✓ ", "").replace("<p class=quiet>✓ ", "")
    assert "every property holds" in cell.source
    with zipfile.ZipFile(io.BytesIO(inside["muellerzoe_78_914_w.zip"])) as archive:
        assert b"muellerzoe" in archive.read("feedback.html")
    for numbers in ((916, 917), (917, 916)):
        beside = {**files, "bob_80_917_notes": [f"bob_80_{numbers[0]}_15.ipynb", f"bob_80_{numbers[1]}_helpers.py"]}
        report.write_reports(tmp_path, ASSIGNMENT, entries, files=beside)
        with zipfile.ZipFile(tmp_path / "canvas-feedback.zip") as archive:
            assert f"bob_80_{numbers[0]}_15.ipynb" in archive.namelist(), (
                "the notebook takes the page, whichever file is newer"
            )
        assert "guest" in (said := " ".join(handback.told(tmp_path, entries, beside)))
        assert "bob" not in said
    by_chance = {row.student: ["week_3_12_" + row.student + ".ipynb"] for row in rows}
    report.write_reports(tmp_path, ASSIGNMENT, settled(ASSIGNMENT, rows), files=by_chance)
    assert not (tmp_path / "canvas-feedback.zip").exists()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_page_has_title_task_and_what_as_given_means(language: Language) -> None:
    row = _row("ada")
    (entry,) = settled(ASSIGNMENT, [row])
    page = report.student_page(ASSIGNMENT, entry, language)
    for key in KEYS:
        assert f"{key} · {tasks.inline(exercises()[key].title.say(language))}" in page
        assert tasks.paragraphs(exercises()[key].task.say(language)) in page
    assert any(mark.had for outcome in row.outcomes for mark in outcome.marks)
    assert page.count({"en": "as it was handed out", "zh": "发下的单元格"}[language]) == 1
    assert "`" not in re.sub(r"<pre.*?</pre>", "", page, flags=re.DOTALL)
    bare = [
        replace(outcome, marks=tuple(replace(mark, had=False) for mark in outcome.marks)) for outcome in row.outcomes
    ]
    (entry,) = settled(ASSIGNMENT, [replace(row, outcomes=tuple(bare))])
    assert {"en": "as it was handed out", "zh": "发下的单元格"}[language] not in report.student_page(
        ASSIGNMENT, entry, language
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_has_no_mark_yet_has_none_on_its_page_nor_in_the_table(language: Language, tmp_path: Path) -> None:
    graded = _row("ada")
    failed = replace(graded.outcomes[0], status="ungraded", marks=(), detail="")
    rows = [
        Row("bob", "1", problem=T(en="it is no JSON", zh="不是 JSON")),
        replace(graded, outcomes=(failed, *graded.outcomes[1:])),
    ]
    people = [Person("ada"), Person("bob"), Person("carol")]
    pages = {}
    for own in (
        [],
        [Override("ada", "", 1, "read"), Override("bob", "4.2", 1, "read"), Override("carol", "", 0, "oral")],
    ):
        entries = settled(ASSIGNMENT, rows, people, own)
        write_grades(tmp_path / "g.csv", ASSIGNMENT, entries)
        lines = {
            line["student"]: line
            for line in csv.DictReader(io.StringIO((tmp_path / "g.csv").read_text(encoding="utf-8-sig")))
        }
        found = {name: [line[column] for column in ("points", "percent", *KEYS)] for name, line in lines.items()}
        pages[bool(own)] = {
            entry.row.student: report.student_page(ASSIGNMENT, entry, language) for entry in entries if entry.has_mark
        }
        if not own:
            assert [found[name] for name in ("bob", "carol")] == [[""] * 4] * 2
            assert found["ada"] == ["", "", "", f"{entries[0].points[KEYS[1]]:g}"]
        else:
            assert (found["ada"][0], found["bob"], found["carol"]) == (
                "1",
                ["1", "50.0", "1", "0"],
                ["0", "0.0", "0", "0"],
            )
        totalled = {line[0]: line[6] for line in totals([tmp_path / "g.csv"])[0][1:]}
        assert totalled == {name: line[0] for name, line in found.items()}
    none, hand_in, looks = {
        "en": ("No mark yet", ".ipynb", "your teacher looks"),
        "zh": ("尚无分数", ".ipynb", "老师"),
    }[language]
    for name, of in (("ada", looks), ("bob", hand_in)):
        assert f"<strong>{none}</strong>" in pages[False][name]
        assert of in pages[False][name]
        assert none not in pages[True][name]
    assert "yourself" not in pages[False]["ada"]
    index = report.class_page(ASSIGNMENT, settled(ASSIGNMENT, rows, people), "en")
    assert re.findall("</th><td></td><td class=n>([^<]*)</td>", index) == [""] * 3


@pytest.mark.parametrize(
    ("days", "free", "extra", "said"),
    [
        (3, 0, 0, "3 days late; 0.3 points deducted"),
        (3, 1, 0, "3 days late, 1 of them free; 0.2 points deducted"),
        (1, 5, 0, "one day late, which is free; nothing deducted"),
        (3, 1, 1, "2 days late, after 1 extra day, 1 of them free; 0.1 points deducted"),
        (3, 0, 0.5, "3 days late, after 0.5 extra days; 0.3 points deducted"),
    ],
)
def test_a_student_reads_what_was_free(days: int, free: int, extra: float, said: str) -> None:
    due = replace(ASSIGNMENT, due=1e9, late_penalty=10, late_days=free)
    row = replace(_row("ada", right=True), received=1e9 + days * 86_400)
    half = tuple(
        replace(outcome, status="partly", marks=()) if n else outcome for n, outcome in enumerate(row.outcomes)
    )
    (entry,) = settled(due, [replace(row, outcomes=half)], [Person("ada", extra_days=extra)])
    assert said in entry.remarks()
    assert "迟交" in " ".join(entry.remarks("zh"))


@pytest.mark.parametrize("key", ["4.2", "5.1", "12.2", "15.2", "8.4"])
def test_the_notebook_says_what_the_page_will_say(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same marks as given, and the share of the points that the grader gives."""
    monkeypatch.chdir(tmp_path)
    exercise = exercises()[key]
    for source in (exercise.given, exercise.given + "\n\n", *exercise.wrong, exercise.right[0]):
        result, outcome = practice.Practice(None).grade(exercise, source), known(exercise, source)
        lines = str(result).splitlines()[1:]
        marked = [(m.had and not result.solved, m.holds) for m in outcome.marks]
        assert [" [passed before your change]" in line for line in lines[: len(marked)]] == [
            had and holds for had, holds in marked
        ]
        assert [" [it passed before your change]" in line for line in lines[: len(marked)]] == [
            had and not holds for had, holds in marked
        ]
        worth = 0 if same(source, exercise.given) else outcome.credit
        held = [mark.had for mark in outcome.marks if mark.holds]
        before = not worth and any(held) and all(held)
        assert (f" ({100 * worth:.0f} % of the points, if your teacher grades this). " in lines[-1]) is not (
            result.solved or before
        )
        assert ("before you changed anything, so " in lines[-1]) is before
    shown = str(practice.Practice(None).grade(exercise, exercise.given, "zh"))
    assert ("，所以不得分。" in shown) is any(mark.had for mark in outcome.marks)
    assert ("（若老师评分，得 0 % 的分）。" in shown) is not any(mark.had for mark in outcome.marks)
    assert ("[改动之前已通过]" in shown) is any(mark.had for mark in outcome.marks)


# --- what is handed out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chapters", ["5,12", "9", "1-19"])
def test_no_link_of_what_is_handed_out_leads_nowhere(tmp_path: Path, chapters: str) -> None:
    assert main(["classroom", "init", str(tmp_path / "a"), "--chapters", chapters]) == 0
    there = {path.name for path in (tmp_path / "a" / STUDENT).iterdir()}
    linked = []
    for path in sorted((tmp_path / "a" / STUDENT).glob("*.ipynb")):
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]  # type: ignore[no-untyped-call]
        linked += re.findall(r"\]\(([\w.-]+\.(?:ipynb|md))", "\n".join(cells))
    assert set(linked) <= there
    assert bool(linked) == (chapters != "9")


def test_what_a_cell_finds_imported_is_said_for_each_exercise(tmp_path: Path) -> None:
    assert main(["classroom", "init", str(tmp_path / "a"), "--chapters", "4,15", "--exercises-only"]) == 0
    texts = [(tmp_path / "a" / STUDENT / "README.md").read_text(encoding="utf-8")]
    texts += [nbformat.read(path, 4).cells[0].source for path in sorted((tmp_path / "a" / STUDENT).glob("*.ipynb"))]
    assert [("in 4.4 also `re`" in text, "in 15.3 also `copy` and `io`" in text) for text in texts] == [
        (True, True),
        (True, False),
        (False, True),
    ]
    assert [("4.4 中还有 `re`" in text, "15.3 中还有 `copy`、`io`" in text) for text in texts] == [
        (True, True),
        (True, False),
        (False, True),
    ]
    for key, exercise in exercises().items():
        names = observe(
            Request("", exercise.setup, expressions=("[n for n, v in globals().items() if type(v) is type(torch)]",))
        )
        (there,) = names.values.values()
        assert "torch" in there
        said = {"np", "torch", "nn", "F", *imports(exercise)}
        assert {name for name in there if not name.startswith("_")} <= said, key


def test_the_progress_file_is_asked_for_where_there_are_questions(tmp_path: Path) -> None:
    for name, kind in (("whole", []), ("short", ["--exercises-only"])):
        assert main(["classroom", "init", str(tmp_path / name), "--chapters", "12", *kind]) == 0
        text = (tmp_path / name / STUDENT / "README.md").read_text(encoding="utf-8")
        assert text.count(progress.NAME) == (2 if name == "whole" else 0)
        assert "its README" not in text


def test_a_student_reads_how_to_install_and_open(tmp_path: Path) -> None:
    assert main(["classroom", "init", str(tmp_path / "a"), "--chapters", "12", "--exercises-only"]) == 0
    text = (tmp_path / "a" / STUDENT / "README.md").read_text(encoding="utf-8")
    assert f"\n    {INSTALL}\n" in text
    assert INSTALL in (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    assert "`.venv\\Scripts`" in text


def test_otter_installs_the_package_from_where_the_teacher_says(tmp_path: Path) -> None:
    words = [
        "classroom",
        "init",
        str(tmp_path / "c"),
        "--exercises",
        "12.2",
        "--otter",
        "--package",
        "git+https://example.org/x: y",
    ]
    assert main(words) == 0
    first = nbformat.read(tmp_path / "c" / "pitfalls" / "12-inplace-errors.ipynb", as_version=4).cells[0].source  # type: ignore[no-untyped-call]
    assert first.endswith('requirements:\n  - "git+https://example.org/x: y"')


# --- hosting ---------------------------------------------------------------------------------------------------------


def test_the_hosting_sections_examples_are_well_formed() -> None:
    page = (Path(report.__file__).parents[1] / "docs" / "classroom.md").read_text(encoding="utf-8")
    hosting = page[page.index("## Hosting a class") :]
    (link,) = re.findall(r"^https://hub\S+git-pull\S+$", hosting, re.MULTILINE)
    query = dict(parse_qsl(urlsplit(link).query, strict_parsing=True))
    assert query["repo"].startswith("https://")
    assert query["urlpath"].startswith(f"lab/tree/{query['repo'].rpartition('/')[2]}/student/")
    assert query["urlpath"].rpartition("/")[2] in {chapter.file for chapter in CHAPTERS}
    (configuration,) = re.findall(r"```python\n(.*?)```", hosting, re.DOTALL)
    compile(configuration, "jupyterhub_config.py", "exec")
    places = set(re.findall(r"\b[\w-]+\.example\.org|your-registry|OWNER/REPOSITORY", unquote(hosting)))
    explained = hosting[: hosting.index("What was tried")]
    assert all(place in explained for place in places)


def test_no_task_and_no_hint_leads_to_a_section_that_was_not_handed_out() -> None:
    texts = {
        (key, text)
        for key, each in exercises().items()
        for hint in (*each.hints, each.task)
        for text in (hint.en, hint.zh)
    }
    assert [
        (key, text) for key, text in texts if re.search(r"\b[Ss]ection \d|第 ?\d+ ?节|the picture of|看图", text)
    ] == []


def test_what_the_exercise_itself_raises_says_that_it_is_the_exercise() -> None:
    source = "def nesterov(w, grad_of, lr, mu, steps):\n    torch.optim.SGD([w], lr=lr)\n    return w\n"
    outcome = known(exercises()["15.2"], source)
    assert (outcome.status, outcome.detail) == (
        "error",
        "RuntimeError: torch.optim is taken away in this exercise: write the step by hand",
    )
    raised = {
        text
        for each in exercises().values()
        for text in re.findall(r'raise \w+\(f?"([^"]+)"', each.setup + each.inputs)
    }
    assert raised == {outcome.detail.partition(": ")[2], "it still trains after {len(losses)} epochs"}
