"""The two pages for errors that have no page of their own: PLE90 for other errors that torch raises, PLE00 for errors
that torch did not raise.
"""

from __future__ import annotations

from pitfall_lab.rules.kit.finding import Finding, Related
from pitfall_lab.rules.refusals.arguments import TENSORS, Refused, first_sentence, shape_text
from pitfall_lab.rules.refusals.family import Family
from pitfall_lab.trace import T

MOST_SHOWN = 6

GENERAL = Family(
    "PLE90",
    "refused-by-torch",
    T(en="torch refused a call", zh="torch 拒绝了一次调用"),
    T(
        en=(
            "Torch checks the arguments of a call before it computes anything. What it says names what it "
            "expected; the report names the arguments as the line writes them, with their shapes and types, and "
            "the lines that made them."
        ),
        zh="torch 在计算之前检查调用的参数。它的话说明它期望什么；报告按代码的写法给出各个参数，连同形状、"
        "类型以及产生它们的行。",
    ),
    (),
    "import torch\n\nsteps = torch.linspace(0, 1, -3)\nprint(steps)\n",
    "import torch\n\nsteps = torch.linspace(0, 1, 3)\nprint(steps)\n",
)

OWN = Family(
    "PLE00",
    "not-torchs",
    T(en="An error that torch did not raise", zh="不是 torch 抛出的错误"),
    T(
        en=(
            "The program, or other code that it calls, raised this error itself; no call of torch was refused. The "
            "tensors that the line could see are listed, since the reason is often in one of their shapes."
        ),
        zh=(
            "这个错误是程序自己、或它调用的其他代码抛出的，torch 没有拒绝任何调用。列出这一行能看到的张量，因为原"
            "因往往在它们的形状里。"
        ),
    ),
    (),
    (
        "import torch\n"
        "\n"
        "scores = torch.ones(3, 2)\n"
        "if scores.shape[1] != 3:\n"
        '    raise ValueError("three classes are needed")\n'
        "print(scores.sum())\n"
    ),
    (
        "import torch\n"
        "\n"
        "scores = torch.ones(2, 3)\n"
        "if scores.shape[1] != 3:\n"
        '    raise ValueError("three classes are needed")\n'
        "print(scores.sum())\n"
    ),
    severity="info",
)


def own(refused: Refused) -> Finding:
    """Return the note about an error that torch did not raise, which lists at most ``MOST_SHOWN`` tensors of the frame
    that raised it.
    """
    failure, words = refused.failure, {language: refused.words(language) for language in ("en", "zh")}
    said = first_sentence(failure.message)
    quote_en, quote_zh = (f": “{said}”", f"：“{said}”") if said else ("", "")
    by_en, by_zh = (
        ("the program itself", "程序自己")
        if failure.origin == "program"
        else ("code that the program calls", "程序调用的代码")
    )
    message = T(
        en=f"{words['en']['Line']}: `{failure.type}` was raised by {by_en}, not by torch{quote_en}.",
        zh=f"{words['zh']['Line']}：`{failure.type}` 是{by_zh}抛出的，不是 torch{quote_zh}。",
    )
    if failure.type == RecursionError.__name__:
        message = T(
            en=(
                f"{words['en']['Line']}: calls are nested deeper here than Python allows (`{failure.type}`), "
                "mostly because a function calls itself, directly or through others, without an end."
            ),
            zh=(
                f"{words['zh']['Line']}：这里调用的嵌套深度超过了 Python 允许的上限（`{failure.type}`），"
                "多半因为某个函数直接或间接地不断调用自己。"
            ),
        )
    shown = [g for g in refused.tensors if g.text or g.name][:MOST_SHOWN]
    listed = {
        language: "; ".join(f"`{g.text or g.name}`: {g.dtype}, {shape_text(g.shape, language)}" for g in shown)
        for language in ("en", "zh")
    }
    explanation = (
        T(
            en=f"No call of torch was refused. Tensors that were there: {listed['en']}.",
            zh=f"torch 没有拒绝任何调用。当时的张量：{listed['zh'].replace('; ', '；')}。",
        )
        if shown
        else T(
            en="No call of torch was refused, and there was no tensor under a name.",
            zh="torch 没有拒绝任何调用，当时也没有带名字的张量。",
        )
    )
    related = (Related("used", refused.span, None, T(en="raised here", zh="在这里抛出")),)
    return Finding(OWN.code, OWN.name, OWN.severity, refused.span, None, False, message, explanation, related)


__all__ = ["GENERAL", "OWN", "TENSORS", "own"]
