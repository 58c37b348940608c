"""Parameters of a distribution that are out of range, and the functions that bring them into it."""

from __future__ import annotations

import ast
import re

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import called, operand, torch_name
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

POSITIONS = {
    "scale": 1,
    "rate": 0,
    "probs": 0,
    "concentration": 0,
    "concentration1": 0,
    "concentration0": 1,
    "covariance_matrix": 1,
    "df": 0,
}
LATER = {"Gamma": {"rate": 1}, "Uniform": {"high": 1}}
WORDS = {
    "GreaterThan": T("greater than 0", "大于 0"),
    "GreaterThanEq": T("at least 0", "不小于 0"),
    "Simplex": T("shares of 1", "和为 1 的份额"),
    "Interval": T("between 0 and 1", "在 0 和 1 之间"),
    "Real": T("finite", "有限的数"),
    "IndependentConstraint": T("finite", "有限的数"),
    "PositiveDefinite": T("positive definite", "正定的"),
}


def in_range(error: Error) -> Remedy | None:
    """Return the remedy for a parameter of a distribution that is out of range, with fixes that make it positive
    (``softplus``, ``exp``), or pass ``probs`` as ``logits``.

    Without a fix for other constraints. None if the line does not show the parameter, or if the program has no name for
    torch.
    """
    refused, program = error.refused, error.refused.story.program
    call, torch = refused.call, torch_name(error.refused.story.program)
    parameter = re.match(r"Expected parameter (\w+)", refused.message)
    constraint = re.search(r"constraint (\w+)", refused.message)
    if call is None or torch is None or parameter is None or constraint is None:
        return None
    name, kind = parameter[1], constraint[1]
    value = _argument(call, name)
    wanted = WORDS.get(kind, T(f"`{kind}`", f"`{kind}`"))
    if value is None:
        return None
    text, family = program.segment(value), called(call)
    said = T(
        en=f"{refused.words('en')['Line']} makes a `{family}` with `{text}` as `{name}`, which has to be {wanted.en}, "
        "and some of its numbers are not.",
        zh=f"{refused.words('zh')['Line']}用 `{text}` 作为 `{name}` 建立 `{family}`，它必须"
        f"是{wanted.zh}，而其中有些数不是。",
    )
    accepts = T(en=f"`{name}`: {wanted.en}", zh=f"`{name}`：{wanted.zh}")
    return Remedy(unique(program.text, _fixes(program, (call, value), (name, kind), torch)), said, accepts)


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    at = LATER.get(called(call), {}).get(name, POSITIONS.get(name))
    given = next((k.value for k in call.keywords if k.arg == name), None)
    return given or (call.args[at] if at is not None and at < len(call.args) else None)


def _fixes(program: Program, place: tuple[ast.Call, ast.expr], about: tuple[str, str], torch: str) -> list[Fix | None]:
    call, value = place
    name, kind = about
    text = program.segment(value)
    fixes: list[Fix | None] = []
    if kind.startswith("GreaterThan"):
        fixes += [
            Fix(
                T(en=f"Make it positive: `{new}`", zh=f"让它为正：`{new}`"),
                program.replace((value, new)),
                meaning="later",
            )
            for new in (f"{torch}.nn.functional.softplus({text})", f"{operand(program, value)}.exp()")
        ]
    elif name == "probs":
        keyword = next((k for k in call.keywords if k.arg == "probs"), None)
        place_of = program.place(keyword) if keyword is not None else program.place(value)
        title = T(en="Give them as scores: `logits=`", zh="作为分数给出：`logits=`")
        fixes.append(Fix(title, program.splice((place_of, f"logits={text}")), meaning="later"))
    return fixes
