"""The remedy for an in-place write to the output of a layer with a full backward hook."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.kit.writing_repairs import flags, new_value
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T


def hooked_output(error: Error) -> Remedy | None:
    """Return the remedy for a layer that writes its input in place although the layer before has a full backward hook,
    with fixes that remove ``inplace=True`` or replace the line's own write by a new tensor; None if neither is
    possible.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    node, statement = program.at(refused.span), program.statement_at(refused.span)
    if node is None or statement is None:
        return None
    fixes = [*flags(program, node, story.event(refused.step)), new_value(program, node, statement)]
    hooks = [
        n for n in program.nodes if isinstance(n, ast.Call) and called(n).startswith("register_full_backward_hook")
    ]
    found = [fix for fix in fixes if fix is not None]
    if not hooks or not found:
        return Remedy(unique(program.text, found)) if found else None
    return _said(error, hooks, found)


def _said(error: Error, hooks: list[ast.Call], found: list[Fix]) -> Remedy:
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    line = found[0].edits[-1].line
    writer = program.statement_on(line)
    written = next(
        (n for n in program.nodes if isinstance(n, ast.Call) and n.lineno <= line <= (n.end_lineno or 0)
         and any(k.arg == "inplace" for k in n.keywords)), None
    )  # fmt: skip
    spot = written if written is not None else writer
    place = program.place(spot) if spot is not None else refused.span
    where, hook = at_line(story, place), at_line(story, program.place(hooks[0]))
    here = at_line(story, refused.span)
    said = T(
        en=f"{capital(where.en)} writes in place what the layer before gave it, and {hook.en} puts a full backward "
        f"hook on that layer: on {here.en} torch refuses to change the output that the hook watches.",
        zh=f"{where.zh}就地改写前一层的输出，而{hook.zh}在那一层上注册了完整的反向钩子：到了{here.zh}，torch 拒绝"
        "修改钩子所监视的输出。",
    )
    related = tuple(
        Related(
            "used",
            program.place(each),
            None,
            T(en="a full backward hook is registered here", zh="在这里注册了完整的反向钩子"),
        )
        for each in hooks[:3]
    )
    return Remedy(unique(program.text, found), said, None, place, None, related)
