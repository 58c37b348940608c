"""``pitfall-lab saves exp``: what an operation saves for backward and which later write breaks it, found
out on the torch that is here.
"""

# ruff: noqa: PLC0415 - the command starts fast: what few calls need is imported by them

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from pitfall_lab.cli import Refusal
from pitfall_lab.reference.operations import Wording, brief, plain
from pitfall_lab.trace import Language, T

if TYPE_CHECKING:
    from pitfall_lab.verify.experiments.catalogue import Operation
    from pitfall_lab.verify.experiments.saved_tensors import Condition, Study

OPERANDS = (
    "a, b: (2, 3); c: (3,); w: (3, 2); s: (3, 3); h = a * 1; p: plain (2, 3); n: integers; i: indices; m: a "
    "mask; img: (2, 4, 4, 6)"
)

_MODELLED = T(en="modelled: the shadow engine agrees with what follows", zh="已建模:影子引擎与以下各项一致")
_DIFFERS = T(
    en="modelled, and the shadow engine DIFFERS (a fault of ours): {what}",
    zh="已建模,但影子引擎与 torch 不一致(我们的错误):{what}",
)
_MIRRORED = T(
    en="mirrored: the shadow engine has no model ({why}); torch's nodes are taken over",
    zh="镜像:影子引擎没有模型({why}),直接采用 torch 的节点",
)
_GIVES = T(en="gives", zh="结果")
_SAVES = T(en="saves", zh="保存")
_NODE = T(en="{name}: {saves}", zh="{name}:{saves}")
_NO_NODE = T(
    en="nothing: no node is made, so nothing is needed for backward", zh="无:没有反向节点,反向传播不需要任何东西"
)
_BREAKS = T(en="breaks", zh="会破坏")
_BREAKING = T(en="a later write to {what}", zh="之后写入 {what}")
_NEVER = T(en="no later write breaks its backward", zh="之后的任何写入都不会破坏它的反向传播")
_ALONE = T(
    en="its backward raises by itself, with nothing overwritten{when}: {error}",
    zh="什么都不改,它的反向传播也会报错{when}:{error}",
)
_REFUSES = T(en="refuses", zh="拒绝")
_REFUSED = T(
    en="after a write to {what} the next use raises: {error}", zh="写入 {what} 之后,下一次使用就会报错:{error}"
)
_ALLOWS = T(en="allows", zh="允许")
_ALLOWED = T(en="any later write to {what}", zh="之后任意写入 {what}")
_TRY = T(en="Try it:", zh="试一试:")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pitfall-lab saves``."""
    parser.add_argument(
        "what",
        metavar="OPERATION",
        nargs="+",
        help=f"a name (exp, mul_, F.layer_norm) or an expression ('torch.cdist(a, b)') over {OPERANDS}",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--lang", "--language", dest="language", choices=("en", "zh"), default="en", help="the language of the report"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the rows of the operations: 0, or 1 when the shadow engine differs from torch in one of them."""
    found = [pair for word in arguments.what for pair in looked_up(word)]
    if arguments.json:
        print(json.dumps(document(found), ensure_ascii=False, indent=2))
    else:
        print("\n".join(text(title, study, arguments.language) for title, study in found), end="")
    return 1 if any(study.differences for _, study in found) else 0


def looked_up(word: str) -> list[tuple[str, Study]]:
    """The studies of an operation or expression, each with its title; raises
    :class:`~pitfall_lab.cli.Refusal` if there are none.

    A study is the result of the experiments on what one call saves.
    """
    from pitfall_lab.verify.experiments import catalogue
    from pitfall_lab.verify.experiments.saved_tensors import CannotRun, study

    if not all(part.isidentifier() for part in word.split(".")):
        try:
            compile(word, "<expression>", "eval")
            return [(word, study(word))]
        except SyntaxError as error:
            raise Refusal(f"{word!r} is no name and no Python expression: {error.msg}.") from None
        except CannotRun as error:
            raise Refusal(f"{word!r} cannot be run: {error}. It may use {OPERANDS}.") from None
    operations = catalogue.find(word)
    if not operations:
        if catalogue.is_module(word):
            raise Refusal(
                f"{word} is a module: write an expression that makes and calls one, as in: pitfall-lab saves "
                "'torch.nn.Linear(3, 2)(a)'."
            )
        names = catalogue.near(word)
        hint = f" Did you mean {' or '.join(brief(name) for name in names)}?" if names else ""
        raise Refusal(
            f"torch has no operation {word!r}.{hint} An expression works too: pitfall-lab saves 'torch.cdist(a, b)'."
        )
    studies = [(titled(operation), found) for operation in operations for found in operation.studies()]
    if not studies:
        name = brief(operations[0].names[0])
        raise Refusal(
            f"No simple call of {name} that gives a tensor is known. Write one, as in: pitfall-lab saves "
            "'torch.cdist(a, b)'."
        )
    return studies


def titled(operation: Operation) -> str:
    """The names of an operation, in full."""
    return ", ".join(name.removesuffix(".__get__") for name in operation.names)


def text(title: str, study: Study, language: Language = "en") -> str:
    """Return the results of the experiments on one expression as text."""
    from pitfall_lab.check.terminal import columns
    from pitfall_lab.verify.experiments.saved_tensors import demonstration

    say = Wording(language, plain)
    if study.missing is not None:
        model = _MIRRORED.say(language).format(why=study.missing)
    elif study.differences:
        model = _DIFFERS.say(language).format(what="; ".join(study.differences))
    else:
        model = _MODELLED.say(language)
    rows = [(_GIVES, say.result(study))] if study.main.results or study.main.bumps else []
    rows += [(_SAVES, _NODE.say(language).format(name=name, saves=saves)) for name, saves in say.nodes(study)] or [
        (_SAVES, _NO_NODE.say(language))
    ]
    if alone := study.alone():
        rows.append((_BREAKS, _ALONE.say(language).format(when=say.when(alone[1]), error=alone[0])))
    if breaking := study.breaking():
        rows.append((_BREAKS, _BREAKING.say(language).format(what=say.rows(breaking))))
    elif study.main.nodes and not study.refused() and not alone:
        rows.append((_BREAKS, _NEVER.say(language)))
    if refused := study.refused():
        error = next(e for t in study.trials for name, _ in refused if (e := t.writes.get(name)))
        rows.append((_REFUSES, _REFUSED.say(language).format(what=say.rows(refused), error=error)))
    if breaking and (harmless := study.harmless()):
        rows.append((_ALLOWS, _ALLOWED.say(language).format(what=", ".join(dict.fromkeys(harmless)))))
    lines = [title, *([] if title == study.code else [f"  {study.code}"]), f"  {model}"]
    lines += [f"  {head.say(language)}{' ' * (8 - columns(head.say(language)))}{body}" for head, body in rows]
    shown = demonstration(study)
    if shown is not None:
        program, error = shown
        lines += [
            "",
            f"  {_TRY.say(language)}",
            "",
            *(f"    {line}".rstrip() for line in program.splitlines()),
            f"    # RuntimeError: {error.partition(' Hint:')[0]}",
        ]
    return "\n".join(lines) + "\n"


def document(found: list[tuple[str, Study]]) -> dict[str, Any]:
    """Return the results of the experiments on one expression as plain data."""
    from pitfall_lab.verify.experiments.catalogue import VERSION

    return {"torch": VERSION, "operations": [_as_data(title, study) for title, study in found]}


def _as_data(title: str, study: Study) -> dict[str, Any]:
    from pitfall_lab.verify.experiments.saved_tensors import demonstration

    shown = demonstration(study)
    return {
        "names": title.split(", ") if title != study.code else [],
        "call": study.code,
        "modelled": study.missing is None,
        "reason": study.missing,
        "differences": list(study.differences),
        "results": study.main.results,
        "versions": study.main.bumps,
        "nodes": [{"name": name, "saves": [_conditioned(what, c) for what, c in rows]} for name, rows in study.saved()],
        "breaks": [_conditioned(what, c) for what, c in study.breaking()],
        "refuses": [_conditioned(what, c) for what, c in study.refused()],
        "allows": study.harmless(),
        "raises_by_itself": (alone := study.alone())
        and {"error": alone[0], "requires_grad": _conditioned("", alone[1])["requires_grad"]},
        "program": shown and shown[0],
        "error": shown and shown[1],
    }


def _conditioned(what: str, condition: Condition) -> dict[str, Any]:
    when = (
        None
        if condition.unclear
        else {"all" if condition.together else "any": list(condition.names)}
        if condition.names
        else {}
    )
    return {"tensor": what, "requires_grad": when}
