"""PL444: an ``einsum`` sums two operands over two different letters, each separately, where one letter for both was
intended.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.trace import Event, T

BOTH = 2


@dataclass(frozen=True, slots=True)
class EinsumSumsApart:
    """``event`` is an ``einsum`` (``Event``) that sums its two operands over two different letters, each separately,
    where one letter for both was intended.

    ``one`` and ``other`` are the labels of the operands. ``pairs`` are pairs of such letters, the first of operand
    ``one``, the second of ``other``; the dimensions of the first pair have the size ``length``.
    """

    event: Event
    one: str
    other: str
    pairs: tuple[tuple[str, str], ...]
    length: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose ``einsum`` of two operands sums a dimension of one and a dimension of the
    other, of equal size above 1, under two different letters.

    Only with ``->`` and without ``...``.
    """
    reported = set()
    for event in story.calls("einsum"):
        place = story.span(event.step)
        found = _apart(story, event) if place not in reported and event.error is None and event.results else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _apart(story: Story, event: Event) -> EinsumSumsApart | None:
    """Return the data of the finding with the pairs of letters, of equal size, that only one operand each has, and not
    the result.

    None if there are no such pairs, without ``->``, with ``...``, or with other than two operands.
    """
    given, arrow, result = event.operands[0].text.strip("'\"").replace(" ", "").partition("->")
    terms, labels = given.split(","), [o.label for o in event.operands[1:]]
    if not arrow or "." in given or len(terms) != BOTH or len(labels) != BOTH or None in labels:
        return None
    alone = [
        [letter for letter in term if letter not in result and letter not in rest]
        for term, rest in (terms, terms[::-1])
    ]
    shapes = [story.shape(label, event.step) or () for label in labels]
    if any(len(shape) != len(term) for shape, term in zip(shapes, terms, strict=True)):
        return None
    sizes = [
        {letter: shape[term.index(letter)] for letter in letters}
        for shape, term, letters in zip(shapes, terms, alone, strict=True)
    ]
    pairs: list[tuple[str, str]] = []
    for letter, length in sizes[0].items():
        second = next((each for each, other in sizes[1].items() if other == length > 1), None)
        if second is not None:
            pairs.append((letter, second))
            del sizes[1][second]
    return (
        EinsumSumsApart(event, str(labels[0]), str(labels[1]), tuple(pairs), sizes[0][pairs[0][0]]) if pairs else None
    )


def _finding(story: Story, found: EinsumSumsApart) -> Finding:
    event = found.event
    here, (letter, second) = at_line(story, story.span(event.step)), found.pairs[0]
    one, other = (expression(story, label, event.step) for label in (found.one, found.other))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} sums {one.en} over `{letter}` and {other.en} over `{second}`, each by itself, and "
            f"multiplies the two sums: no element of one axis of {found.length} meets its counterpart.",
            zh=f"{here.zh}把 {one.zh} 沿 `{letter}`、{other.zh} 沿 `{second}` 各自求和，再把两个和相乘：长度为 "
            f"{found.length} 的两个轴上，没有元素与对应的元素相遇。",
        ),
        T(
            en="Elements are multiplied where two operands share a letter, and summed over letters that the result "
            "lacks. A letter that one operand has alone is summed before anything meets it. For a product of pairs "
            "both operands need the same letter.",
            zh="两个操作数有共同的字母时，对应元素相乘；结果里没有的字母则求和。只有一个操作数才有的字母，在遇到任何东"
            "西之前就已求和。要逐对相乘，两个操作数必须用同一个字母。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("letters", letter + second, story.by(event.step))],
    )


def _fixes(story: Story, found: EinsumSumsApart) -> tuple[Fix, ...]:
    """At most one fix: it writes the first operand's letter for both letters of each pair; empty unless the equation is
    a string literal in the call.
    """
    program = story.program
    call = program.at(story.span(found.event.step)) if program.tree is not None else None
    said = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if not isinstance(said, ast.Constant) or not isinstance(said.value, str):
        return ()
    given, _, result = said.value.partition("->")
    one, _, other = given.partition(",")
    for letter, second in found.pairs:
        other = other.replace(second, letter)
    text = program.segment(said).replace(said.value, f"{one},{other}->{result}")
    title = T(en=f"One letter for both: `{text}`", zh=f"两者用同一个字母：`{text}`")
    return unique(program.text, [Fix(title, program.replace((said, text)), meaning="later")])


RULE = Rule(
    code="PL444",
    name="einsum-sums-apart",
    severity="warning",
    title=T(
        en="An einsum sums two axes apart, which were to be multiplied in pairs",
        zh="einsum 把本应逐对相乘的两个轴分别求和",
    ),
    what=T(
        en="A program wants the product of two vectors for each row, and gives the two axes different letters: "
        "`bi,bj->b`. That sums each vector by itself and multiplies the sums, which is another number of the same "
        "shape. Give both axes one letter: `bi,bi->b`.",
        zh="程序想为每一行算出两个向量的内积，却给两个轴写了不同的字母：`bi,bj->b`。这样会先把每个向量各自求和，再把两"
        "个和相乘，得到形状相同的另一个数。请给两个轴写同一个字母：`bi,bi->b`。",
    ),
    why=T(
        en="`einsum` runs over all values of all letters, multiplies the elements there, and adds up what the result "
        "does not name. In `bi,bj->b` the letters `i` and `j` run independently, so every element of the first meets "
        "every element of the second: `(a.sum(1) * b.sum(1))`. In `bi,bi->b` they run together. Torch cannot tell "
        "which of the two was meant: both are products.",
        zh="`einsum` 让所有字母取遍所有值，把对应位置上的数相乘，再把结果里没有的字母加起来。在 `bi,bj->b` 中，`i` 和 "
        "`j` 各走各的，于是前者的每个元素与后者的每个元素相遇：`(a.sum(1) * b.sum(1))`。在 `bi,bi->b` 中，它们一起走。"
        "torch 无法知道要的是哪一种：两者都是乘积。",
    ),
    bad="""import torch

a = torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]])
b = torch.tensor([[1.0, 0.0, -1.0], [2.0, 2.0, 1.0]])
print(torch.einsum("bi,bj->b", a, b))  # PL444
""",
    good="""import torch

a = torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]])
b = torch.tensor([[1.0, 0.0, -1.0], [2.0, 2.0, 1.0]])
print(torch.einsum("bi,bi->b", a, b))
""",
    find=find,
    traps=(
        Trap(
            "bi,bj->b",
            "bj,bi->b",
            T(en="The letters exchanged: each still has one operand.", zh="交换字母：每个字母仍只属于一个操作数。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.einsum.html",),
)
