"""Gradebooks that import a file by the rules that three systems document, or that their importers' sources have.

Each takes the file's bytes and returns sentences on what it refuses; a line that is refused changes nothing.
"""

from __future__ import annotations

import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Book(ABC):
    """Marks and feedback by the student's key (``known`` columns name it) and the item, and the items' most points."""

    items: dict[str, float]
    marks: dict[str, dict[str, float | None]]
    feedback: dict[str, dict[str, str]] = field(default_factory=dict)

    @abstractmethod
    def read(self, raw: bytes) -> list[str]:
        """Import a file and return what was refused."""

    def _give(self, student: str, item: str, text: str) -> list[str]:
        """Give a mark; an empty cell takes the mark away."""
        if not text.strip():
            self.marks[student][item] = None
            return []
        if not re.fullmatch(r"-?\d+(\.\d+)?", text.strip()):
            return [f"{text!r} is no number"]
        if float(text) > self.items[item]:
            return [f"{text} is more than {self.items[item]:g}"]
        self.marks[student][item] = float(text)
        return []


def of(system: str, students: Iterable[str], items: dict[str, float]) -> Book:
    """A gradebook in which each student has 9 in each item: more than can be had, so it is seen whether it stays."""
    kind = {"moodle": Moodle, "canvas": Canvas, "blackboard": Blackboard}[system]
    known = list(students)
    return kind(items, {each: dict.fromkeys(items, 9.0) for each in known}, {each: {} for each in known})


class Moodle(Book):
    """https://docs.moodle.org/405/en/Grade_import: the teacher maps columns; here as the docs of this package say to.

    “Map from” and “Map to” are the ID number; the item's column to the item; “NAME (feedback)” to its feedback. An
    empty “Map from” belongs to the student of the line above (grade/import/csv/classes/load_data.php).
    """

    def read(self, raw: bytes) -> list[str]:
        """Import, with the mapping that the page describes."""
        head, *lines = csv.reader(io.StringIO(raw.decode("utf-8"), newline=""))
        if "ID number" not in head:
            return ["no column to map from"]
        refused, student, key = [], "", head.index("ID number")
        for line in lines:
            if len(line) != len(head):
                refused.append(f"{line} has another number of cells")
                continue
            student = line[key] or student
            if student not in self.marks:
                refused.append(f"no user {student!r}")
                continue
            for item in self.items:
                refused += self._give(student, item, line[head.index(item)])
                if (column := f"{item} (feedback)") in head and line[head.index(column)]:
                    self.feedback[student][item] = line[head.index(column)]
        return refused


class Canvas(Book):
    """https://community.canvaslms.com, “How do I import grades in the Gradebook?”, and lib/gradebook_importer.rb:

    the columns Student, ID, SIS User ID, SIS Login ID, Section in this order; of a student the first of the three
    that is filled in; “Name (number)” is an assignment that is there, another name a new one, out of its points.
    """

    HEAD = (r"Student", r"ID", r"SIS\s+User\s+ID", r"SIS\s+Login\s+ID", r"Section")

    def read(self, raw: bytes) -> list[str]:
        """Import; the students' keys are SIS User IDs."""
        head, *lines = csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""))
        if len(head) < len(self.HEAD) or any(
            not re.fullmatch(rule, title.strip()) for rule, title in zip(self.HEAD, head, strict=False)
        ):
            return ["the columns are not those of a gradebook"]
        possible = lines.pop(0) if lines and "Points Possible" in lines[0][0] else None
        refused = []
        for n, title in list(enumerate(head))[len(self.HEAD) :]:
            if title in self.items:
                if possible and float(possible[n]) != self.items[title]:
                    refused.append(f"{title} is out of {self.items[title]:g}")
                continue
            if re.fullmatch(r".+ \(\d+\)", title):
                refused.append(f"there is no assignment {title}")
                continue
            if possible is None:
                refused.append(f"it is not said out of what {title} is")
                continue
            self.items[title] = float(possible[n])
        for line in [] if refused else lines:
            student = next((line[n] for n in (1, 2, 3) if line[n]), line[0])
            if student not in self.marks:
                refused.append(f"no student {student!r}")
                continue
            for n, title in list(enumerate(head))[len(self.HEAD) :]:
                refused += self._give(student, title, line[n])
        return refused


class Blackboard(Book):
    """“Uploading or Downloading Grade Center Items for Working Offline”, of Blackboard's help for instructors:

    every cell of a comma-delimited file in quotation marks; the user name is the student's identifier; the number of
    “Name |number” is the column's, whatever the name, and a name without a number is a new column.
    """

    def read(self, raw: bytes) -> list[str]:
        """Import; the students' keys are Usernames."""
        text = raw.decode("utf-8")
        quoted = re.compile(r'"(?:[^"]|"")*"(,"(?:[^"]|"")*")*')
        if any(not quoted.fullmatch(line) for line in text.splitlines()):
            return ["a cell has no quotation marks"]
        head, *lines = csv.reader(io.StringIO(text, newline=""))
        if "Username" not in head:
            return ["no column Username"]
        refused: list[str] = []
        columns: dict[int, str] = {}
        numbers = {item.rpartition("|")[2]: item for item in self.items if "|" in item}
        for n, title in list(enumerate(head))[4:]:
            _, mark, number = title.rpartition("|")
            most = re.search(r"\[Total Pts: ([\d.]+) Score\]", title)
            if mark and number not in numbers:
                refused.append(f"no column has the number {number}")
            elif mark:
                columns[n] = numbers[number]
            else:
                known = next((item for item in self.items if item == title.partition(" [")[0]), None)
                columns[n] = known or title
                self.items.setdefault(columns[n], float(most[1]) if most else 0.0)
        for line in [] if refused else lines:
            student = line[head.index("Username")]
            if student not in self.marks:
                refused.append(f"no user {student!r}")
                continue
            for n, item in columns.items():
                refused += self._give(student, item, line[n])
        return refused
