"""Whose a submission is: the one place that decides it, from what a file or folder is called and from the roster.
:meth:`Directory.person` returns the person, or None.

The names that learning management systems give to what they hand out:

- Moodle: ``Ada Lovelace_123_assignsubmission_file_`` (the number is the participant's), ``Team 3-Ada
  Lovelace_123_…`` with groups;
- Canvas: ``lovelaceada_77_912_week-3.ipynb``, ``lovelaceada_LATE_77_912_week-3.ipynb`` (the name, the
  numbers of the user and the file);
- Blackboard: ``Week 3_adal_attempt_2026-11-20-12-00-00_week-3.ipynb`` (the login, and when),
  with a ``.txt`` for each attempt.

Canvas' number decides where the roster has Canvas' own column of them, and some of them come with the name that they
have there. Otherwise these numbers are no ids of the roster. They are taken as such only between people of one name,
and only where each other number of that system is the id of a person of the name that it comes with. Two numbers with
one name are two people. A name that fits several people fits none of them: a mark is never given by a guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pitfall_lab.classroom.roster import Person
from pitfall_lab.trace import T

_MOODLE = re.compile(r"(?P<who>.+?)_(?P<number>[0-9]{1,12})_assignsubmission_[a-z]+(?:_.*)?", re.DOTALL)
_CANVAS = re.compile(
    r"(?P<who>(?=[^_]*[^\W\d_])[^_]+)_(?P<late>LATE_)?(?P<number>[0-9]{1,20})_(?P<attempt>[0-9]{1,20})_.+", re.DOTALL
)
_BLACKBOARD = re.compile(r"(?P<who>.+?)_attempt_(?P<attempt>[0-9]{4}(?:-[0-9]{2}){5})(?P<file>_.*)?", re.DOTALL)
_IN_MOODLE = re.compile(r"(?<=.)_[0-9]{1,12}_assignsubmission_(?=[a-z])", re.DOTALL)
_IN_BLACKBOARD = re.compile(r"(?<=.)_attempt_[0-9]{4}(?:-[0-9]{2}){5}", re.DOTALL)
_ENDING = re.compile(r"(?:\.ipynb|\.zip)?(?: ?\([0-9]{1,3}\))?(?:\.ipynb|\.zip)?\Z", re.IGNORECASE)
_DOCUMENT = re.compile(
    r"\.(?:pdf|py|txt|md|rst|rtf|docx?|odt|pages|html?|url|webloc|json|zip|rar|7z|tar|tgz|gz|bz2|xz|ta"
    r"r\.gz|png|jpe?g|heic)\Z",
    re.IGNORECASE,
)
"""The endings of what is handed in instead of a notebook."""
_COPY_OF = re.compile(r"(?:kopie von|copie de|copia d[ei]|cópia de) +", re.IGNORECASE)
"""What Colab and Drive put before the name of a copy; *Copy of* is among the words beside a name."""
_COPY = re.compile(r" ?\(([0-9]{1,3})\)(?=\.[^.]*\Z|\Z)")
_DUPLICATE = re.compile(r"-Copy([0-9]{1,3})(?=\.[^.]*\Z|\Z)")
_LETTERS = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "ŧ": "t", "ŋ": "n"}
)
_SPELLED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
_UNCLEAR = "unclear"
"""Of two systems' forms, or one system's form twice, one is in what the student called the file, or is called: who
does so could else hand in in another's name.
"""
GROUPED = 2
"""From this number of names with a group before a person's name (and at least half of Moodle's
names) they are taken for groups.
"""
FEW = 3
"""From this number of people with several numbers it is not taken for chance."""
_BETWEEN = re.compile(r"[\s_,.+()\[\]-]+")
_YEAR = re.compile("(?:19|20)[0-9]{2}")
_OTHER_WORDS = (
    "final copy of new old week hw homework assignment exercise exercises sheet notebook quiz test task lab solution "
    "solutions answer answers submission chapter version corrected fixed my the 作业 最终 最终版 副本 答案"
)
_BESIDE = frozenset(_OTHER_WORDS.split())
"""What students write next to their name; every other word could belong to another person's name."""
MOST_WORDS, LONG = 12, 4
"""A name of more words is not searched; an id is found beside such words where it has so many signs,
with a digit, and is no year.
"""
SHORT = 2
"""An id of so few digits is found at the beginning of a name only: ``week_3`` is no id."""


@dataclass(frozen=True, slots=True)
class DownloadName:
    """What the name of a downloaded file says: which ``system`` made it, and whose file it is (``who``: name or login).

    ``number`` is the id that Moodle or Canvas gives the student (empty for Blackboard). ``attempt`` orders one
    student's files: Canvas' number of the file, or the date and time in Blackboard's name; empty for Moodle. ``note``:
    the file is the text that Blackboard adds to each attempt, not one of the student's. ``late``: Canvas marks it late.
    """

    system: str
    who: str
    number: str = ""
    attempt: tuple[int, ...] = ()
    note: bool = False
    late: bool = False


def form(name: str) -> DownloadName | None:
    """What a file's name says if it has the form of a system's downloads; None if it has none of these forms.

    If it fits several forms, ``system`` is ``"unclear"`` and ``who`` is empty.

    >>> form("lovelaceada_LATE_77_912_week-3")
    DownloadName(system='canvas', who='lovelaceada', number='77', attempt=(912,), note=False, late=True)
    """
    forms = []
    if found := _MOODLE.fullmatch(name):
        forms += [DownloadName("moodle", found["who"], found["number"])] * _times(_IN_MOODLE, name)
    if found := _BLACKBOARD.match(name):
        note = found["file"] is None and name[found.end() :].lower() == ".txt"
        attempt = tuple(map(int, found["attempt"].split("-")))
        forms += [DownloadName("blackboard", found["who"], attempt=attempt, note=note)] * _times(_IN_BLACKBOARD, name)
    if found := _CANVAS.fullmatch(name):
        forms.append(
            DownloadName("canvas", found["who"], found["number"], (int(found["attempt"]),), late=bool(found["late"]))
        )
    return forms[0] if len(forms) == 1 else DownloadName(_UNCLEAR, "") if forms else None


def _times(mark: re.Pattern[str], name: str) -> int:
    """How often a name contains the mark that a system appends to a student's name.

    It is more than once if what the student wrote contains the mark, too.
    """
    return len(mark.findall(name))


def attempted(names: Iterable[str]) -> float | None:
    """The latest time in Blackboard's file names, in seconds since 1970, read as local time of this machine.

    None if ``names`` is empty, or if one of them is not of Blackboard's form or has no possible time.
    """
    times = []
    for name in names:
        said = form(name)
        if said is None or said.system != "blackboard":
            return None
        try:
            times.append(datetime(*said.attempt[:6]).astimezone().timestamp())  # type: ignore[arg-type]
        except (ValueError, OverflowError, OSError):
            return None
    return max(times, default=None)


def tells_order(name: str) -> bool:
    """Whether a name (or a path in a zip) says by itself which attempt or download a file is: it has a number of the
    attempt, or one of a copy (``a (1)``).
    """
    return any(bool((said := form(part)) and said.attempt) or bool(_COPY.search(part)) for part in name.split("/"))


def in_order(files: Sequence[tuple[str, float]]) -> list[int]:
    """The indices of ``files`` (name, when written), oldest first: by the number of the attempt in a system's name,
    then by time; ``a (1)`` is newer than ``a``.

    JupyterLab's ``a-Copy1`` is newer than ``a`` only where both were written at the same time: it may be what was put
    aside.
    """
    forms = [form(name) for name, _ in files]
    order = sorted(
        range(len(files)),
        key=lambda n: (said.attempt if (said := forms[n]) else (), files[n][1], _duplicate(files[n][0])),
    )
    copies: dict[tuple[object, str], list[int]] = {}
    for place, n in enumerate(order):
        copies.setdefault((said.attempt if (said := forms[n]) else (), _COPY.sub("", files[n][0])), []).append(place)
    for places in copies.values():
        ranked = sorted(
            (order[place] for place in places),
            key=lambda n: int(found[1]) if (found := _COPY.search(files[n][0])) else 0,
        )
        for place, n in zip(places, ranked, strict=True):
            order[place] = n
    return order


def _duplicate(name: str) -> tuple[str, int]:
    """The file's name without JupyterLab's ``-Copy1``, and the number of the copy; 0 if it is no copy."""
    found = _DUPLICATE.search(name)
    return _DUPLICATE.sub("", name), int(found[1]) if found else 0


def exact(text: str) -> str:
    """A text for comparing: in one Unicode form (some systems write an accented letter as two characters), without a
    difference of case, with single spaces.
    """
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def folded(text: str) -> str:
    """A name without accents, spaces and signs, as file names often have it.

    >>> folded("Łukasz Żółć"), folded("O'Connor")
    ('lukaszzolc', 'oconnor')
    """
    plain = unicodedata.normalize("NFKD", text.casefold()).translate(_LETTERS)
    return "".join(sign for sign in plain if not unicodedata.combining(sign) and unicodedata.category(sign)[0] in "LNM")


def last_and_first(name: str) -> tuple[str, str]:
    """The last and the first name: split at the comma of “Müller, Max”; without a comma
    the last word is the last name.
    """
    if "," in name:
        last, _, first = name.partition(",")
    else:
        first, _, last = name.rpartition(" ")
    return last.strip(), first.strip()


def by_name(name: str) -> tuple[str, str]:
    """A key by which full names are sorted: the last name first, then the first name, without accents."""
    last, first = last_and_first(name)
    return folded(last), folded(first)


def _both(text: str) -> set[str]:
    """The two ways to write a name without accents: Müller is ``muller`` and ``mueller``; empty if no letter is
    left.
    """
    return {folded(text), folded(unicodedata.normalize("NFC", text.casefold()).translate(_SPELLED))} - {""}


def _turned(name: str) -> set[str]:
    """A name without accents, in each cyclic order of its words, since it is unknown with
    which word the last name begins.
    """
    words = re.split(r"[\s,]+", name.strip())[:12]
    return set().union(*(_both(" ".join(words[n:] + words[:n])) for n in range(len(words))))


def _words(name: str) -> list[str]:
    """The words of a name with their accents and in lower case, sorted."""
    return sorted(re.split(r"[\s,]+", exact(name)))


class Directory:
    """Whose each submission is, from the roster (``people``) and the names of all that was handed in (``names``)."""

    def __init__(self, people: Iterable[Person], names: Iterable[str] = ()) -> None:
        self._people = {person.student: person for person in people}
        self._files = {_ENDING.sub("", student): student for student in self._people}
        self._idents: dict[str, set[str]] = {}
        self._names: dict[str, set[str]] = {}
        self._folded: dict[str, set[str]] = {}
        self._whole: dict[str, set[str]] = {}
        for person in self._people.values():
            for index, words in (
                (self._idents, {exact(word) for word in (person.student, person.ident, person.login, person.email)}),
                (self._names, {exact(person.name)}),
                (self._folded, _turned(person.name) | _both(person.student) | _both(person.login)),
                (self._whole, _turned(person.name)),
            ):
                for word in words - {""}:
                    index.setdefault(word, set()).add(person.student)
        names = list(dict.fromkeys(names))
        self._forms = {name: said for name in names if (said := form(name))}
        self._groups = self._has_groups()
        self._canvas = {self._sender(said) for said in self._forms.values() if said.system == "canvas"}
        attempts = {said.who for said in self._forms.values() if said.system == "blackboard"}
        self._assignments = Counter(begin for who in attempts for begin in self._logins(who))
        self._telling = self._systems_with_ids()
        self._numbers = self._of_canvas()
        self._meant = {name: self._of(name) for name in names}
        self._twofold = self._of_two_people()

    def person(self, name: str) -> Person | None:
        """The entry of the roster whose submission has this name; None if it fits no entry, or several."""
        meant = self._meant[name] if name in self._meant else self._of(name)
        return self._people[next(iter(meant))] if len(meant) == 1 and name not in self._twofold else None

    def doubt(self, name: str) -> T | None:
        """Why a submission matches no student of the roster although its name seems to be there, as half a sentence.

        None if there is no such doubt.
        """
        if name in self._twofold:
            en = "two people of this name handed in, and the roster has one"
            return T(en=en, zh="有两人以此名提交，而名单中只有一人")
        if (said := self._forms.get(name)) and said.system == _UNCLEAR:
            en = "its name has the forms of two systems, or one system's form twice"
            return T(en=en, zh="其名称同时符合两种系统的格式，或两次含有同一系统的格式")
        if (
            said
            and said.system == "canvas"
            and self._numbers
            and not self._meant.get(name)
            and (named := self._by_name(said))
        ):
            ids = ", ".join(sorted(self._people[student].ident or student for student in named))
            return T(
                en=f"its name fits {ids} in the roster, and Canvas' number in it is another",
                zh=f"此名与名单中的 {ids} 相符，但 Canvas 编号不同",
            )
        if len(people := self.candidates(name)) > 1:
            ids = ", ".join(person.ident or person.student for person in people)
            return T(
                en=f"the name fits {len(people)} people in the roster ({ids})",
                zh=f"此名与名单中的 {len(people)} 人相符（{ids}）",
            )
        return None

    def candidates(self, name: str) -> list[Person]:
        """The people in the roster whom a submission's name fits, in the roster's order; empty for a name that was not
        handed in.
        """
        return [person for student, person in self._people.items() if student in self._meant.get(name, ())]

    def known(self, word: str) -> set[str]:
        """The people (their ``student``) whom ``word`` means: those who have it as id, login or address; if there are
        none, as name; if there are none, as name without accents.

        Of several people who have it without accents, those whose name has the same accents count: accents are not
        written by chance.
        """
        idents, names, plain = (
            self._idents.get(exact(word)),
            self._names.get(exact(word)),
            self._any(self._folded, _both(word)),
        )
        accented = {
            student for student in plain if not word.isascii() and _words(self._people[student].name) == _words(word)
        }
        return set(idents or names or accented or plain)

    def one_person(self, name: str) -> Hashable:
        """A key by which submissions of one person are recognised without the roster: it is equal for two names if by
        their form alone (such as Canvas' user number) they are from one person.

        A name without such a form is its own key.
        """
        said = self._forms.get(name)
        # a name such as week_3_12_ada has Canvas' form, too: all of a class would be one person
        alone = said is None or said.system == _UNCLEAR or (said.system == "canvas" and len(self._canvas) < 2)
        return name if said is None or alone else self._sender(said)

    @staticmethod
    def _sender(said: DownloadName) -> tuple[str, str, str]:
        return said.system, exact(said.who), said.number

    @staticmethod
    def _any(index: dict[str, set[str]], words: Iterable[str]) -> set[str]:
        return set().union(*(index.get(word, set()) for word in words))

    def _of(self, name: str) -> set[str]:
        """The people whom a submission's name fits, by their ``student``; empty if it fits none.

        If there are several, :meth:`person` assigns the submission to none of them.
        """
        said = form(name)
        bare = _ENDING.sub("", name)
        for whole in (name, bare, f"{said.who}_{said.number}" if said else ""):
            if whole in self._people:
                return {whole}
        for whole in (bare, _DOCUMENT.sub("", bare)):
            if whole in self._files:
                return {self._files[whole]}
        if said is None:
            # what is no notebook keeps its ending, which may be a part of a login, too; so is
            # "copy of" a part of the name
            forms = (bare, _DOCUMENT.sub("", bare), _COPY_OF.sub("", bare, count=1))
            return next((found for each in dict.fromkeys(forms) if (found := self._by_words(each))), set())
        if said.system == _UNCLEAR:
            return set()
        if said.system == "blackboard":
            return self._by_login(said.who)
        meant = self._by_name(said)
        if said.system == "canvas" and self._numbers:
            numbered = self._numbers.get(said.number, set())
            unnumbered = {student for student in meant if not self._people[student].number}
            return (numbered & meant) or (set() if numbered and meant else numbered or unnumbered)
        by_number = {student for student in meant if self._people[student].ident == said.number}
        return by_number if len(meant) > 1 and by_number and said.system in self._telling else meant

    def _of_canvas(self) -> dict[str, set[str]]:
        """The people by their Canvas numbers, as the roster has them.

        Empty if in no submission the Canvas number agrees with that of a person whom its name fits.
        """
        numbers: dict[str, set[str]] = {}
        for person in self._people.values():
            if person.number:
                numbers.setdefault(person.number, set()).add(person.student)
        forms = (said for said in self._forms.values() if said.system == "canvas")
        return numbers if any(numbers.get(said.number, set()) & self._by_name(said) for said in forms) else {}

    def _by_name(self, said: DownloadName) -> set[str]:
        """The people whom the name or login in a download's file name fits.

        Canvas removes accents from names, so for Canvas accents are ignored.
        """
        if said.system == "moodle" and (named := self._names.get(exact(said.who))):
            return set(named)  # a name that is another one's login has been chosen
        if said.system != "canvas":
            return self.known(said.who) or (self._in_group(said.who) if self._groups else set())
        return self._any(self._idents, {exact(said.who)}) | self._any(self._folded, _both(said.who))

    def _in_group(self, who: str) -> set[str]:
        """The people whom a Moodle name with a group fits: group, hyphen, person's name;
        both names may have hyphens.
        """
        parts = who.split("-")
        names = ("-".join(parts[n:]) for n in range(1, len(parts)))
        return next((found for name in names if (found := self._any(self._whole, _both(name)))), set())

    def _has_groups(self) -> bool:
        """Whether Moodle's file names have groups before the people's names.

        That needs two such names, and half of all: a single one may be a double name that is not in the roster.
        """
        senders = {said.who for said in self._forms.values() if said.system == "moodle"}
        grouped = [who for who in senders if not self.known(who) and self._in_group(who)]
        return len(grouped) >= GROUPED and 2 * len(grouped) >= len(senders)

    def _by_login(self, who: str) -> set[str]:
        """The people whose login ends a Blackboard name of the form assignment, underscore, login.

        Both parts may have underscores. If several logins fit, the one counts whose remaining assignment name is the
        most frequent among all submissions.
        """
        found = self._logins(who)
        most = max((self._assignments[begin] for begin in found), default=0)
        return set().union(*(people for begin, people in found.items() if self._assignments[begin] == most))

    def _logins(self, who: str) -> dict[str, set[str]]:
        """The people whose login may end a Blackboard name, by the part of the name before the login."""
        parts = who.split("_")
        places = range(min(1, len(parts) - 1), len(parts))
        found = {"_".join(parts[:n]): self._idents.get(exact("_".join(parts[n:])), set()) for n in places}
        return {begin: people for begin, people in found.items() if people}

    def _by_words(self, name: str) -> set[str]:
        """The people whom a name that has no system's form fits.

        First the whole name is tried, then the parts between its underscores, then a name or id beside ordinary words.
        """
        if found := self.known(name):
            return found
        first, *others = name.split("_")
        words = [first, *(word for word in others if not (word.isdigit() and len(word) <= SHORT))]
        idents = self._any(self._idents, map(exact, words))
        names = self._any(self._names, map(exact, words)) or self._any(
            self._folded, (each for word in words for each in _both(word))
        )
        return (idents & names) or (idents | names) or self._beside(name)

    def _beside(self, name: str) -> set[str]:
        """The people whose whole name or id is in a file name, if its other words are no names: ``Ada
        Lovelace - week 3 (final)``.
        """
        words = [word for word in _BETWEEN.split(name) if word]
        if len(words) > MOST_WORDS:
            return set()
        found = set()
        for start, end in ((n, m) for n in range(len(words)) for m in range(n + 1, len(words) + 1)):
            rest, meant = words[:start] + words[end:], words[start:end]
            if all(word.casefold() in _BESIDE or any(sign.isdigit() for sign in word) for word in rest):
                found |= self._named(meant)
        return found

    def _named(self, words: list[str]) -> set[str]:
        """The people whose whole name these words are, or whose id the one word is."""
        (word, *others) = words
        if not others and word.casefold() in _BESIDE:
            return set()
        named = self._any(self._whole, _both(" ".join(words)))
        is_id = not others and len(word) >= LONG and any(sign.isdigit() for sign in word) and not _YEAR.fullmatch(word)
        return named | (self._idents.get(exact(word), set()) if is_id else set())

    def _systems_with_ids(self) -> set[str]:
        """The systems whose numbers are ids of the roster: no number is unlike the ids of the people whom its name
        fits.
        """
        told = [(said, self._by_name(said)) for said in self._forms.values() if said.number]
        wrong = {
            said.system
            for said, meant in told
            if meant and said.number not in {self._people[student].ident for student in meant}
        }
        return {said.system for said, _ in told} - wrong

    def _of_two_people(self) -> set[str]:
        """The submissions' names that fit one person but come with different numbers of one system, so two people
        handed in.

        Moodle gives people new numbers for each of its assignments: if most people have several numbers in its names,
        these are several downloads, and Moodle's names are left out.
        """
        numbers: dict[tuple[str, str], dict[str, list[str]]] = {}
        for name, said in self._forms.items():
            sure = name in self._people or f"{said.who}_{said.number}" in self._people
            sure = sure or (said.system == "canvas" and said.number in self._numbers)
            if said.number and not sure and len(self._meant[name]) == 1:
                (student,) = self._meant[name]
                numbers.setdefault((said.system, student), {}).setdefault(said.number, []).append(name)
        several = {who: each for who, each in numbers.items() if len(each) > 1}
        of_moodle = [sum(system == "moodle" for system, _ in found) for found in (several, numbers)]
        downloads = of_moodle[0] >= FEW and 2 * of_moodle[0] > of_moodle[1]
        return {
            name
            for who, each in several.items()
            if not (downloads and who[0] == "moodle")
            for of in each.values()
            for name in of
        }
