"""Lists of operations' names outside their entries: a fact about operations is in the entries, and
:mod:`pitfall_lab.trace.operation_facts` gives it by name; what a module chooses for its own purpose says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pitfall_lab.shadow.entry_facts import facts
from pitfall_lab.shadow.ops import ENTRIES

PACKAGE = Path(__file__).resolve().parent.parent / "pitfall_lab"
ROOMS = ("rules", "observe", "verify", "check", "panel", "trace", "notebook", "reference", "commands", "widgets")
"""Where lists are looked at. ``shadow`` has the entries; of the others, lists in the lessons are exercises' own."""
SAID = facts()
KNOWN = {full.rpartition(".")[2] for full in ENTRIES}
FEWEST = 3
"""So many names of operations make a list, if they are at least half of it."""
WHOLE = ("convolution", "difference_loss", "matrix_product", "recurrent")
"""Traits whose operations are not to be listed anew. In a list of matrix products, say, ``torch.spmm`` may be left out:
of a trait, only the names that a program writes count.
"""
RARE = {"spmm"}
IN_TEXT = {"panel/cuts.py", "panel/rewrites.py"}
"""Modules that look for names in the text of cells, where a name is not a recorded call."""


def sequences(tree: ast.AST) -> Iterator[tuple[ast.expr, list[str]]]:
    """The displays of sets, tuples, lists and the keys of dicts that are lists of operations, with their texts.

    >>> [texts for _, texts in sequences(ast.parse('X = {"add", "mul", "sub"}'))]
    [['add', 'mul', 'sub']]
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.Tuple | ast.List | ast.Dict):
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            texts = [n.value for n in parts if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            known = sum(text.rpartition(".")[2] in KNOWN for text in texts)
            if known >= FEWEST and 2 * known >= len(texts):
                yield node, texts


def spelled_anew(texts: list[str]) -> list[str]:
    """What a list says of operations that their entries say already.

    >>> spelled_anew(["mul", "multiply", "view"])
    ['spellings("mul")']
    >>> spelled_anew(["lstm", "gru", "rnn_tanh", "rnn_relu"])
    ['operations_that("recurrent")']
    >>> spelled_anew(["mul", "add", "view"])
    []
    """
    said, given = SAID, set(texts)
    names = [
        f'spellings("{operation}")'
        for operation, found in said["spelled"].items()
        if given & set(found["same"]) and len(given & {*found["same"], *found["in_place"]}) > 1
    ]
    whole = [
        f'operations_that("{trait}")'
        for trait in WHOLE
        if {name for name in said["traits"][trait] if not name.startswith("__")} - RARE <= given
    ]
    return names + whole


def unexplained(source: str) -> list[str]:
    """The constants of a module that are lists of operations, without a docstring below them or a comment.

    >>> unexplained('X = {"add", "mul", "sub"}')
    ['X']
    >>> unexplained('X = {"add", "mul", "sub"}\\n\\"\\"\\"Sums and factors.\\"\\"\\"')
    []
    """
    lines, body, found = source.splitlines(), ast.parse(source).body, []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or not any(sequences(node.value)):
            continue
        above = lines[node.lineno - 2] if node.lineno > 1 else ""
        has_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if not has_text and not above.startswith("# "):
            found.append(ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target))
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_no_list_says_what_the_entries_say(room: str) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        if path.relative_to(PACKAGE).as_posix() in IN_TEXT:
            continue
        for node, texts in sequences(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Dict):  # a dict says more of each name
                assert not (said := spelled_anew(texts)), f"{path}:{node.lineno}: use {', '.join(said)}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_list_of_operations_says_what_it_is_for(room: str) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        assert not (found := unexplained(path.read_text(encoding="utf-8"))), f"{path}: {', '.join(found)}"


def test_the_lists_are_seen() -> None:
    modules = [path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")]
    lists = [texts for path in modules for _, texts in sequences(ast.parse(path.read_text(encoding="utf-8")))]
    assert len(lists) > 400
