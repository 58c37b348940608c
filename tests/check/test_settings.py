"""What is reported is chosen as linters' users expect: codes and prefixes, pyproject.toml, comments;
mistakes there get one sentence.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from pitfall_lab.check import Checked, Workshop, examine
from pitfall_lab.check import settings as settings_
from pitfall_lab.check.settings import Settings, codes, near
from pitfall_lab.cli import Refusal, main

BAD = "import torch\nx = torch.ones(3, requires_grad=True)\nh = torch.sigmoid(x)\nh.mul_(10)\nh.sum().backward()\n"
LEAF = "import torch\nw = torch.ones(2, requires_grad=True)\ntry:\n    w += 1{}\nexcept RuntimeError:\n    pass\n"


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    with Workshop() as workshop:
        yield workshop


@pytest.fixture(autouse=True)
def fresh() -> None:
    settings_._above.cache_clear()


def rules(shop: Workshop, folder: Path, text: str, settings: Settings | None = None) -> list[tuple[str, str]]:
    return [(f.rule, f.severity) for f in looked_at(shop, folder, text, settings).findings]


def looked_at(shop: Workshop, folder: Path, text: str, settings: Settings | None = None) -> Checked:
    path = folder / "program.py"
    path.write_text(text)
    return examine(path, shop, settings or Settings(), fixes=False)


@pytest.mark.parametrize(
    ("select", "ignore", "wanted"),
    [
        (("PL",), (), True),
        (("PL1",), (), True),
        (("PL2",), (), False),
        (("PL",), ("PL101",), False),
        (("PL101",), ("PL1",), True),
        (("PL1",), ("PL1",), False),
    ],
)
def test_the_longer_prefix_wins_and_ignore_wins_ties(
    select: tuple[str, ...], ignore: tuple[str, ...], wanted: bool
) -> None:
    assert Settings(select=select, ignore=ignore).wants("PL101", Path("x.py")) is wanted


def test_patterns_are_about_the_folder_of_the_settings(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, exclude=("old", "data/*.py"), per_file_ignores=(("tests/*", ("PL1",)),))
    assert settings.excludes(tmp_path / "old")
    assert settings.excludes(tmp_path / "a" / "old" / "x.py")
    assert settings.excludes(tmp_path / "data" / "x.py")
    assert not settings.excludes(tmp_path / "x.py")
    assert not settings.wants("PL101", tmp_path / "tests" / "x.py")
    assert settings.wants("PL101", tmp_path / "x.py")
    assert settings.wants("PL201", tmp_path / "tests" / "x.py")


def test_settings_come_from_the_nearest_pyproject_that_has_some(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.pitfall-lab]\n"
        'select = ["PL1", "loss-broadcast"]\n'
        'ignore = ["PL102"]\n'
        'exclude = ["old"]\n'
        "timeout = 5\n"
        "memory = 100\n"
        "[tool.pitfall-lab.per-file-ignores]\n"
        '"tests/*" = ["ALL"]\n'.replace('"PL102"', '"PL101"')
    )
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[project]\nname = "x"\n')
    found = near(inner / "x.py")
    assert found == Settings(
        tmp_path.resolve(), ("PL1", "PL401"), ("PL101",), ("old",), (("tests/*", ("PL",)),), 5.0, 100
    )


def test_the_settings_in_the_documentation_are_settings(tmp_path: Path) -> None:
    page = (Path(settings_.__file__).parents[2] / "pitfall_lab" / "docs" / "commands.md").read_text(encoding="utf-8")
    block = page.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "pyproject.toml").write_text(textwrap.dedent(block))
    assert near(tmp_path).select == ("PL1", "PL3", "PL401")


MISTAKES = {
    'select = ["PLX"]': "no rule has the code 'PLX'",
    'ignore = ["loss-broadcst"]': "Did you mean loss-broadcast?",
    "selct = []": "there is no setting 'selct'; did you mean 'select'?",
    'select = "PL1"': "expected a list of strings",
    "timeout = -1": "expected a number of seconds",
    "timeout = true": "expected a number of seconds",
    'memory = "much"': "expected a number of MiB",
    "per-file-ignores = []": "a table of patterns",
    "select = [": "cannot be read",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_in_the_settings_is_one_sentence_before_anything_runs(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.pitfall-lab]\n{line}\n")
    mark = tmp_path / "mark"
    (tmp_path / "x.py").write_text(f"open({str(mark)!r}, 'w')\n")
    assert main(["check", str(tmp_path / "x.py")]) == 2
    found = capsys.readouterr()
    assert MISTAKES[line] in found.err
    assert (found.out, len(found.err.splitlines()), mark.exists()) == ("", 1, False)


def test_unknown_codes_on_the_command_line_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.py").write_text("x = 1\n")
    assert main(["check", str(tmp_path / "x.py"), "--select", "PL1,nonsense"]) == 2
    assert "--select: no rule has the code 'nonsense'." in capsys.readouterr().err
    with pytest.raises(Refusal):
        codes([""], "--select")


def test_the_command_line_goes_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.pitfall-lab]\nignore = ["PL1"]\n')
    (tmp_path / "x.py").write_text(BAD)
    assert main(["check", str(tmp_path / "x.py"), "--json", "--no-fixes"]) == 0
    assert main(["check", str(tmp_path / "x.py"), "--json", "--no-fixes", "--ignore", "PL4"]) == 1
    assert capsys.readouterr().out.count('"PL101"') == 1


def test_a_comment_ignores_what_it_names_on_its_line(tmp_path: Path, shop: Workshop) -> None:
    for comment in (
        "# pitfall: ignore[PL201]",
        "# pitfall: ignore",
        "#pitfall:ignore[PL1, PL2] because",
        "# x # pitfall: ignore[PL201]",
    ):
        assert rules(shop, tmp_path, LEAF.format("  " + comment)) == []
    assert rules(shop, tmp_path, LEAF.format("  # pitfall: ignored")) == [("PL201", "info")]


def test_a_comment_that_ignores_nothing_is_a_note(tmp_path: Path, shop: Workshop) -> None:
    found = rules(shop, tmp_path, LEAF.format("  # pitfall: ignore[PL101]"))
    assert found == [("PL201", "info"), ("PL001", "info")]
    assert rules(shop, tmp_path, "x = 1  # pitfall: ignore\n") == [("PL001", "info")]
    checked = looked_at(shop, tmp_path, "x = 1  # pitfall: ignore[PL999]\n")
    assert "No rule has the code PL999" in checked.findings[0].message.en
    assert checked.exit_code == 0


def test_a_comment_is_not_called_useless_where_that_is_not_known(tmp_path: Path, shop: Workshop) -> None:
    text = "import torch\nx = 1  # pitfall: ignore[PL101]\n"
    assert rules(shop, tmp_path, text, Settings(select=("PL2",))) == []
    assert rules(shop, tmp_path, text, Settings(ignore=("PL001",))) == []
    assert rules(shop, tmp_path, text + "1 / 0\n") == [("PLE00", "info")]


def test_a_comment_in_a_text_is_no_comment(tmp_path: Path, shop: Workshop) -> None:
    assert rules(shop, tmp_path, LEAF.format('; s = "# pitfall: ignore"')) == [("PL201", "info")]


def test_a_statement_of_several_lines_may_carry_it_on_any_of_them(tmp_path: Path, shop: Workshop) -> None:
    text = LEAF.format("").replace("w += 1", "w.add_(\n        1,\n    )  # pitfall: ignore[PL201]")
    assert rules(shop, tmp_path, text) == []


def test_ignored_findings_leave_no_trace_in_the_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.py").write_text(LEAF.format("  # pitfall: ignore[PL201]"))
    assert main(["check", str(tmp_path / "x.py"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
