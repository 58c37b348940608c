"""Every page of the documentation is reached from the README, and every link inside the repository leads somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "pitfall_lab" / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / ".github" / "CONTRIBUTING.md",
    ROOT / "pitfall_lab" / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
]


@cache
def prose(path: Path) -> str:
    """A page without its programs: `a[0](b)` in code is no link."""
    text = re.sub(r"^\s*```.*?^\s*```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda m: re.sub(r"[\[\]()]", "", m[0]), text)


def links(path: Path) -> list[tuple[Path, str]]:
    """Where a page points to inside the repository, each as file and anchor."""
    targets = [t for t in re.findall(r"\]\(([^)\s]+)\)", prose(path)) if not re.match(r"[a-z]+:", t)]
    return [
        ((path.parent / t.partition("#")[0]).resolve() if t.partition("#")[0] else path, t.partition("#")[2])
        for t in targets
    ]


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_what_the_pages_point_to_is_there() -> None:
    faults = []
    for page, target, anchor in [(each, *link) for each in PAGES for link in links(each)]:
        if not target.exists():
            faults.append(f"{page}: {target}")
        elif anchor and anchor not in anchors(target):
            faults.append(f"{page}: {target}#{anchor}")
    assert faults == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [target for target, _ in links(page) if target.suffix == ".md" and target.exists()]
            # a link to a folder shows what is in it
            waiting += [inside for target, _ in links(page) if target.is_dir() for inside in target.glob("*.md")]
    assert [page.relative_to(ROOT).as_posix() for page in PAGES if page not in reached] == []
