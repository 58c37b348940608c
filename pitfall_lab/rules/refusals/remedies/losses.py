"""The remedy for a loss of probabilities that is given scores (logits): use the loss of scores instead."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.text_origins import made_by
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.refusals.remedies.edits import imported, renamed
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

FUNCTION, WITH_LOGITS = "binary_cross_entropy", "binary_cross_entropy_with_logits"
LAYER, LAYER_WITH_LOGITS = "BCELoss", "BCEWithLogitsLoss"


def of_scores(error: Error) -> Remedy | None:
    """Return the remedy for a loss of probabilities (``BCELoss``, ``binary_cross_entropy``) that is given scores, with
    a fix that uses the loss of scores where it is called or created.

    None if the call is not such a loss, if the source does not show exactly one creation of the loss, or if the wrong
    argument is not the input (but the target).
    """
    refused, wrong = error.refused, error.wrong
    story, program = refused.story, refused.story.program
    node = program.at(refused.span)
    if wrong is None or wrong.name != "input" or not isinstance(node, ast.Call) or program.tree is None:
        return None
    if called(node) == FUNCTION:
        title = T(en=f"Take the loss for scores: `{WITH_LOGITS}`", zh=f"改用针对分数的损失：`{WITH_LOGITS}`")
        return Remedy((Fix(title, imported(program, renamed(program, node, WITH_LOGITS), node, WITH_LOGITS)),))
    made = made_by(program, node.func, LAYER)
    if len(made) != 1:
        return None
    place, here = program.place(made[0]), at_line(story, refused.span)
    where, name, low, high = at_line(story, place), refused.name(wrong), number(wrong.low), number(wrong.high)
    said = T(
        en=f"{capital(where.en)} makes a loss for probabilities, `{LAYER}`, but {here.en} gives it {name.en}, whose "
        f"numbers go from {low} to {high}.",
        zh=f"{where.zh}建立的 `{LAYER}` 是针对概率的损失，而{here.zh}交给它的 {name.zh}，数从 {low} 到 {high}。",
    )
    title = T(en=f"Take the loss for scores: `{LAYER_WITH_LOGITS}`", zh=f"改用针对分数的损失：`{LAYER_WITH_LOGITS}`")
    fix = Fix(title, imported(program, renamed(program, made[0], LAYER_WITH_LOGITS), made[0], LAYER_WITH_LOGITS))
    related = (Related("made", place, None, T(en="the loss is made here", zh="损失在这里建立")),)
    return Remedy((fix,), said, None, place, None, related)
