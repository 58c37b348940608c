"""The last lines of ``pitfall-lab grade``: what was done with each file and folder that was there, and what the teacher
has to do. :func:`tell` prints them.

Nothing is left out silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pitfall_lab.classroom.assignment import NAME, Assignment
from pitfall_lab.classroom.ledger import NAME as OVERRIDES
from pitfall_lab.classroom.ledger import LedgerLine, Override, called, counted, in_all
from pitfall_lab.classroom.register import say
from pitfall_lab.classroom.roster import NAME as ROSTER
from pitfall_lab.classroom.roster import SHOWN, Person, listed, shown
from pitfall_lab.classroom.spreadsheet import plain
from pitfall_lab.classroom.submissions import Submission
from pitfall_lab.classroom.whose import Directory, attempted, form

_CURE_OF_TIMES = (
    "a file that you repaired or copied keeps its time with `cp -p` or `touch -r`; the column received of "
    f"{ROSTER} replaces it."
)


def tell(
    grades: Path,
    entries: Sequence[LedgerLine],
    found: Sequence[Submission],
    skipped: Sequence[str],
    directory: Directory,
    *,
    fenced: bool,
) -> None:
    """Print how many submissions have which verdict, and each matter that the teacher has to look at.

    ``grades`` is the path of the table, ``entries`` are its lines, ``found`` the submissions, ``skipped`` the names of
    files that are none, and ``directory`` says whose each submission is. ``fenced``: the kernel kept the submissions
    from the teacher's files.
    """
    handed = [entry for entry in entries if not entry.row.absent]
    counts = Counter(entry.row.verdict for entry in handed).most_common()
    kept = "" if fenced else " Nothing kept the submissions from your files."
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts)
    say(f"{len(handed)} submission{'s' * (len(handed) != 1)}: {said}. The table is in {grades}.{kept}")
    names = called(entries)
    if stopped := [
        names[entry.row.student] for entry in handed if entry.row.was_stopped and entry.row.verdict != "stopped"
    ]:
        say(
            f"Cells were stopped, too, of: {listed(stopped)}. Their verdict is what matters more; the "
            "notes say which cells."
        )
    if skipped:
        say(f"Not read, since these are no submissions: {listed(skipped)}.")
    for line in (*_unread(entries), *_late(entries, found), *_people(entries, found, directory)):
        say(line)


def tell_again(
    entries: Sequence[LedgerLine], before: Mapping[str, Mapping[str, str]], files: Mapping[str, Sequence[str]]
) -> None:
    """Print a line for each submission that was graded again with ``--only``: its points, its earlier points, its
    notes.

    ``entries`` are the lines of these submissions, ``before`` the lines of the old table by student, and ``files`` the
    names of each submission's files by student. A second line is printed where a submission is later than in the old
    table, since the teacher may have repaired or copied a file; not where the roster says when it was received.
    """
    names = called(entries)
    for entry in entries:
        student = entry.row.student
        old = before.get(plain(student))
        was = "not in the table before" if old is None else f"before it had {old['points'] or 'no mark'}"
        why = f" ({'; '.join(note.en for note in entry.notes)})" if entry.notes else ""
        theirs = files.get(student, (student,))
        stems = {Path(name).stem for name in theirs if Path(name).suffix}
        once = ", ".join(name for name in theirs if name not in stems)
        say(f"Graded again: {shown(names[student])} ({once}): {in_all(entry)}, {was}{why}.")
        if old and entry.late > float(old.get("late_days") or 0) and entry.person.received is None:
            say(f"{shown(names[student])} is later than before, {_source(entry, theirs)}: {_CURE_OF_TIMES}")


def _unread(entries: Sequence[LedgerLine]) -> Iterable[str]:
    """Lines on what could not be read: for each reason the submissions, then those without a mark, then files left
    unread.

    The last two are one line each, and each line is left out where nothing belongs in it.
    """
    reasons: dict[str, list[str]] = {}
    names = called(entries)
    for entry in entries:
        if entry.row.problem is not None:
            reasons.setdefault(entry.row.problem.en, []).append(names[entry.row.student])
    for reason, theirs in reasons.items():
        yield f"Could not be read: {listed(theirs)}: {reason}."
    if open_ := [names[entry.row.student] for entry in entries if not entry.row.absent and not entry.is_decided]:
        yield (
            f"Without a mark, since it could not be read or not all be graded: {listed(open_)}. Put what can be read "
            "in its place (ask for the notebook as JupyterLab saves it), or take a file away where nothing in it "
            f"counts, and grade with --resume; or give a mark in {OVERRIDES}."
        )
    if beside := [
        f"{names[entry.row.student]}: {', '.join(entry.row.beside)}" for entry in entries if entry.row.beside
    ]:
        yield f"Beside notebooks, and not read, since these are none: {listed(beside)}."


def _late(entries: Sequence[LedgerLine], found: Sequence[Submission]) -> Iterable[str]:
    """Lines on late submissions: who was late, what it cost, by which times it was decided, and where Canvas disagrees.

    A line is also given for those whose time of receipt is from the roster. Copying and downloading change the times of
    files, so the sources of the times are named.
    """
    files = {submission.student: submission.parts or (submission.student,) for submission in found}
    names = called(entries)
    if late := [entry for entry in entries if entry.late]:
        charged = [names[entry.row.student] for entry in late if entry.deducted > 0]
        whom = len(charged) if len(charged) == len(late) else listed(charged)
        cost = f"points deducted from {whom}" if charged else "nothing deducted"
        sources = Counter(_source(entry, files.get(entry.row.student, ())) for entry in late)
        times = (
            sources.popitem()[0]
            if len(sources) == 1
            else ", ".join(f"{count} {source}" for source, count in sources.items())
        )
        who = listed([names[entry.row.student] for entry in late])
        yield f"Late: {who}; {cost}; {times}. The column received of {ROSTER} replaces these times."
    if said := [names[entry.row.student] for entry in entries if entry.timed and entry.person.received is not None]:
        yield f"When it came is as {ROSTER} says: {listed(said)}."
    other = [entry for entry in entries if _canvas_differs(entry, files.get(entry.row.student, ()))]
    if missed := [names[entry.row.student] for entry in other if not entry.late]:
        yield f"Canvas calls late who is not late here: {listed(missed)}. The notes in the table say so."
    if only_here := [names[entry.row.student] for entry in other if entry.late]:
        yield f"Late here, and not called late by Canvas: {listed(only_here)}."


def _source(entry: LedgerLine, names: Sequence[str]) -> str:
    """Half a sentence on the times by which it was decided whether a submission is late.

    These are the roster's, those in the file names of Blackboard, or the files' own. ``names`` are the submission's
    files.
    """
    if entry.person.received is not None:
        return f"as {ROSTER} says"
    is_named = entry.row.received is not None and attempted(names) == entry.row.received
    return "by the times in Blackboard's names" if is_named else "by the files' own times"


def _canvas_differs(entry: LedgerLine, names: Sequence[str]) -> bool:
    """Whether the names that Canvas gave the files call a submission late where ``entry`` does not, or the reverse.

    False if no name has Canvas' form, if the roster has extra days or a time of receipt for the student, or if the
    submission has no known time.
    """
    forms = [said for name in names if (said := form(name)) and said.system == "canvas"]
    own = entry.person.extra_days or entry.person.received is not None
    return bool(forms) and not own and entry.timed and any(said.late for said in forms) != bool(entry.late)


def _people(entries: Sequence[LedgerLine], found: Sequence[Submission], directory: Directory) -> Iterable[str]:
    names = called(entries)
    if several := [names[submission.student] for submission in found if submission.parts]:
        yield (
            f"Several files of one person, read as one submission: {listed(several)}. The notes in the table say which."
        )
    unclear: dict[tuple[Person, ...], list[str]] = {}
    for entry in entries:
        if not entry.listed:
            unclear.setdefault(tuple(directory.candidates(entry.row.student)), []).append(entry.row.student)
    cure = f"write what the submission is called into the column student of {ROSTER}, and grade with --resume."
    if strangers := unclear.pop((), []):
        yield (
            f"Not in the roster, and so in no table for another system: {listed(strangers)}. Who has "
            f"another name there: {cure}"
        )
    for people, theirs in unclear.items():
        fits = " or ".join(
            f"{plain(person.name or person.student)} ({plain(person.ident or person.student)})"
            for person in people[:SHOWN]
        )
        yield f"Not clear whose, and so in no table for another system: {listed(theirs)}. It may be of {fits}: {cure}"
    absent = [entry for entry in entries if entry.row.absent]
    if strangers and (wrong := [entry.row.student for entry in absent if _has_own_word(entry.person)]):
        yield f"In the column student of {ROSTER}, and no submission is called so: {listed(wrong)}."
    if without := [names[entry.row.student] for entry in absent if not entry.has_mark and not entry.maybe]:
        yield f"Handed in nothing, and have no mark: {listed(without)}."
    if in_part := [names[entry.row.student] for entry in entries if entry.in_part]:
        yield f"Have marks of yours for some exercises only, so that the others count 0: {listed(in_part)}."
    if marked := [names[entry.row.student] for entry in absent if entry.has_mark]:
        yield f"Handed in nothing, and have a mark of yours: {listed(marked)}."


def _has_own_word(person: Person) -> bool:
    """Whether the roster's column ``student`` has a text for this person that is neither the id, the login nor the
    address.
    """
    return person.student not in {person.ident, person.login, person.email}


def warn(assignment: Assignment, overrides: Sequence[Override]) -> None:
    """Print how the deadline was read, and warnings about what is allowed in the teacher's files but may be a mistake:
    a penalty without a deadline, exercises without points, marks (``overrides``) above what an exercise is worth.
    """
    if assignment.due is not None:
        say(f"The deadline is {assignment.clock(assignment.due)}.")
    elif assignment.late_penalty or assignment.late_days:
        say(f"{NAME} has late_penalty or late_days and no deadline (due), so nobody is late.")
    if assignment.points and (without := [key for key in assignment.keys if key not in assignment.points]):
        say(f"[points] has no line for {listed(without)}: each counts 1.")
    most = sum(assignment.worth(key) for key in assignment.keys)
    for each in overrides:
        worth = assignment.worth(each.key) if each.key else most
        if each.points > worth:
            say(
                f"{OVERRIDES} gives {shown(each.student)} {counted(each.points)} for {each.key or 'all'}, "
                f"which is worth {worth:g}."
            )
