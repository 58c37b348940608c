"""Whatever torch refuses is explained: ``python -m tests.refusals``.

Torch's own operator database has, for its operators, calls that they have to refuse (``error_inputs``). Each becomes a
program of one line, ``out = torch.roll(input, arg1, dims=dims)``, which is recorded and diagnosed in this process. The
table says how many are explained, and in how many the explanation names an argument of the call. ``--list N`` prints N
of them, drawn by ``--seed``, as a reader gets them.

Needed besides torch: ``pip install expecttest``.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pitfall_lab.check.terminal import Style, finding_text
from pitfall_lab.rules import Finding, find
from pitfall_lab.trace import Failure, Language
from pitfall_lab.verify.program import trace_program


@dataclass(frozen=True)
class Refusal:
    """One call that torch refused, and what was said of it."""

    operator: str
    program: str
    failure: Failure
    finding: Finding | None

    @property
    def argument(self) -> str | None:
        """The name of the parameter that the explanation names."""
        return self.finding.fact("argument") if self.finding is not None else None

    @property
    def by_family(self) -> bool:
        """Whether a rule or a family of errors explains it, and not the general sentence that quotes torch."""
        return self.finding is not None and self.finding.rule not in ("PLE90", "PLE00")

    @property
    def names_an_argument(self) -> bool:
        """Whether the explanation says which argument is wrong. A rule of its own names its tensors in other ways."""
        return self.finding is not None and (self.argument is not None or not self.finding.rule.startswith("PLE"))


def calls() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The operator, the program and the names in it, for every call in torch's database that has to be refused."""
    from torch.testing._internal.common_methods_invocations import op_db

    for operator in op_db:
        if operator.error_inputs_func is None:
            continue
        for each in operator.error_inputs("cpu"):
            sample = each.sample_input
            names: dict[str, Any] = {
                "input": sample.input,
                **{f"arg{n}": value for n, value in enumerate(sample.args, 1)},
            }
            given = [*names, *(f"{key}={key}_" for key in sample.kwargs)]
            names |= {f"{key}_": value for key, value in sample.kwargs.items()}
            name = _written(operator)
            yield (
                operator.name,
                f"import torch\n\nout = {name}({', '.join(given)})\n",
                {**names, "operator": operator.op},
            )


def _written(operator: Any) -> str:
    """How a program writes the operator: ``torch.nn.functional.conv2d``; ``operator`` where it has no such name."""
    at: Any = torch
    for part in operator.name.split("."):
        at = getattr(at, part, None)
    return f"torch.{operator.name}" if at is operator.op else "operator"


def refusals(only: range | None = None) -> Iterator[Refusal]:
    """Every call of the database that torch refuses, with what is said of it; ``only`` some, by their place."""
    for place, (operator, program, names) in enumerate(calls()):
        if only is not None and place not in only:
            continue
        trace = trace_program(
            program, namespace={"__name__": "__main__", "__builtins__": __builtins__, **names}, values=False
        )
        failure = trace.outcome.failure
        if failure is not None:
            found = [finding for finding in find(trace) if finding.severity == "error"]
            yield Refusal(operator, program, failure, found[0] if found else None)


def table(every: list[Refusal]) -> str:
    """The figures."""
    total = len(every)
    rows = [
        ("refused calls of the operator database", total),
        ("explained", sum(one.finding is not None for one in every)),
        ("… by a rule or a family of errors", sum(one.by_family for one in every)),
        ("the argument named", sum(one.names_an_argument for one in every)),
    ]
    lines = [
        "| what | calls | share |",
        "|---|---|---|",
        *(f"| {what} | {n} | {n / max(total, 1):.1%} |" for what, n in rows),
    ]
    codes = Counter(one.finding.rule if one.finding is not None else "none" for one in every)
    return "\n".join([*lines, "", "By rule: " + ", ".join(f"{code} {n}" for code, n in sorted(codes.items()))])


def main() -> int:
    """Print the table; 0 when every refusal is explained and the argument is named in 95 of 100."""
    parser = argparse.ArgumentParser(prog="python -m tests.refusals", description=__doc__)
    parser.add_argument("--list", type=int, default=0, metavar="N", help="print N explanations as a reader gets them")
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn")
    parser.add_argument("--unnamed", action="store_true", help="print those that name no argument")
    parser.add_argument("--lang", choices=("en", "zh"), default="en")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    every = list(refusals())
    shown = random.Random(options.seed).sample(every, min(options.list, len(every)))
    if options.unnamed:
        shown += [one for one in every if not one.names_an_argument]
    for one in shown:
        print(text(one, options.lang))
    print(table(every))
    good = all(one.finding is not None for one in every) and sum(one.names_an_argument for one in every) >= 0.95 * len(
        every
    )
    return int(not good)


def text(one: Refusal, language: Language = "en") -> str:
    """One refusal as a reader gets it."""
    said = (
        finding_text(f"<{one.operator}>", one.program, one.finding, Style(language))
        if one.finding is not None
        else "nothing\n"
    )
    return f"{said}\n{'-' * 100}\n"


if __name__ == "__main__":
    sys.exit(main())
