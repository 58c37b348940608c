"""Trainings of some hundred rounds (tests/check/long), each twice: as it is, and with a mistake planted.

A comment ``# planted: …`` below a line is what replaces this line in the second one.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "long"
PLANTED = "# planted: "


def right(text: str) -> str:
    """The program without the mistake."""
    return "\n".join(line for line in text.split("\n") if PLANTED not in line)


def planted(text: str) -> str:
    """The program with the mistake; its lines have the same numbers as in the right one."""
    lines: list[str] = []
    for line in text.split("\n"):
        if PLANTED in line:
            before = lines.pop()
            lines.append(before[: len(before) - len(before.lstrip())] + line.split(PLANTED)[1])
        else:
            lines.append(line)
    return "\n".join(lines)


PROGRAMS = {
    f"{file.stem}{suffix}": make(file.read_text(encoding="utf-8"))
    for file in sorted(FOLDER.glob("*.py"))
    for suffix, make in (("", right), ("_planted", planted))
}
