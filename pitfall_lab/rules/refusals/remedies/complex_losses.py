"""A backward from a complex number: the magnitude is taken where the loss is computed."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.syntax import is_name, operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import T


def magnitudes(error: Error) -> Remedy | None:
    """Return the remedy for a backward from a complex number, with fixes that take the magnitude of a complex operand,
    given by a name, in the statement that computes the loss.

    None if that statement is unknown; without a fix if it has no such operand.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    wrong = error.wrong
    born = (
        (story.tensor(wrong.label, refused.step) or {}).get("born")
        if wrong is not None and wrong.label is not None
        else None
    )
    statement = program.statement_at(story.span(born))
    if wrong is None or statement is None:
        return None
    inside = [e for e in story.within(statement) if born is not None and e.step <= born]
    made = {label for event in inside for label in event.results}
    fixes, place, name = [], story.span(born), refused.name(wrong)
    for event in inside:
        for label in (o.label for o in event.operands if o.label is not None and o.label not in made):
            node = written_as(story, event, label)
            if (
                str((story.tensor(label, event.step) or {}).get("dtype")).startswith("complex")
                and isinstance(node, ast.expr)
                and is_name(node)
            ):
                text = f"{operand(program, node)}.abs()"
                same = [
                    n
                    for n in ast.walk(statement)
                    if isinstance(n, ast.expr) and program.segment(n) == program.segment(node)
                ]
                title = T(en=f"Take the magnitude, a real number: `{text}`", zh=f"取模，它是实数：`{text}`")
                fixes.append(Fix(title, program.replace(*((n, text) for n in same)), meaning="later"))
    where, here = at_line(story, place), at_line(story, refused.span)
    said = T(
        en=f"{capital(where.en)} computes {name.en} as a complex number ({wrong.dtype}), and the backward on "
        f"{here.en} has to start from a real one: a complex number is neither larger nor smaller than another.",
        zh=f"{where.zh}算出的 {name.zh} 是复数（{wrong.dtype}），而{here.zh}的反向传播必须从实数开"
        "始：复数没有大小之分。",
    )
    related = (
        Related(
            "made",
            place,
            born,
            T(en=f"{name.en} is computed here: {wrong.dtype}", zh=f"{name.zh} 在这里算出：{wrong.dtype}"),
        ),
    )
    return Remedy(unique(program.text, fixes), said, None, place, born, related)
