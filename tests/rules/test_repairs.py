"""Candidate repairs are exact edits of the source: what is not meant to change does not change."""

from __future__ import annotations

import ast

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.reordering import moves, second_forwards
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, apply, merge, split_lines
from pitfall_lab.rules.kit.syntax import root
from pitfall_lab.rules.kit.writing_repairs import copies_before, flags, new_value
from pitfall_lab.trace import Event, Span
from pitfall_lab.verify import trace_program

NEW_VALUES = {
    "h += x": "h = h + x",
    "h *= a + b  # ten": "h = h * (a + b)  # ten",
    "h -= -1": "h = h - (-1)",
    "self.h @= w": "self.h = self.h @ w",
    "h **= 2; y = 1": "h = h ** 2; y = 1",
    "h.mul_(10)": "h = h * 10",
    "h.sub_(a - b)": "h = h - (a - b)",
    "h.data.mul_(10)": "h = h * 10",
    "h.data += 1": "h = h + 1",
    "h.relu_()": "h = h.relu()",
    "h.add_(x, alpha=2)": "h = h.add(x, alpha=2)",
    "h.add_(x).mul_(2)": "h = h.add(x).mul(2)",
    "h.clamp_(min=0)": "h = h.clamp(min=0)",
    "self.h.relu_()": "self.h = self.h.relu()",
    "torch.relu_(h)": "h = torch.relu(h)",
    "F.relu_(h)": "h = F.relu(h)",
    "torch.nn.functional.relu_(h)": "h = torch.nn.functional.relu(h)",
    "F.relu(h, inplace=True)": "h = F.relu(h)",
    "F.leaky_relu(h, 0.1, inplace=True)": "h = F.leaky_relu(h, 0.1)",
    "torch.add(h, 1, out=h)": "h = torch.add(h, 1)",
    "y = f(h.relu_())": "y = f(h.relu())",
    "y = F.relu(h, inplace=True) + 1": "y = F.relu(h) + 1",
    "h.zero_()": "h = torch.zeros_like(h)",
    "h.fill_(3)": "h = torch.full_like(h, 3)",
    "变量.mul_(10)  # 乘十 🙂": "变量 = 变量 * 10  # 乘十 🙂",
    "s = '🙂'; h.mul_(10)": "s = '🙂'; h = h * 10",
}


def last_statement(program: Program) -> ast.stmt:
    return (
        next(s for s in program.tree.body[1:] if "h" in program.segment(s) or "变量" in program.segment(s))
        if program.tree
        else ast.Pass()
    )


@pytest.mark.parametrize(("before", "after"), NEW_VALUES.items())
def test_a_write_becomes_a_new_value(before: str, after: str) -> None:
    program = Program(f"import torch\n{before}\n")
    statement = last_statement(program)
    node = statement.value if isinstance(statement, ast.Expr) else statement
    fix = new_value(program, node, statement)
    assert fix is not None
    assert apply(program.text, fix.edits) == f"import torch\n{after}\n"


@pytest.mark.parametrize(
    "text", ["h.copy_(x)", "h[0].mul_(2)", "h.view(-1).add_(1)", "h.normal_()", "h[0] = 1", "f(h)", "y = h.zero_()"]
)
def test_what_has_no_equal_on_a_new_tensor_is_left_to_other_repairs(text: str) -> None:
    program = Program(f"import torch\n{text}\n")
    statement = last_statement(program)
    node = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else statement
    assert new_value(program, node, statement) is None


COPIES = {
    "h[0] = v": ["h = h.clone()\nh[0] = v"],
    "h[0] += v  # add": ["h = h.clone()\nh[0] += v  # add"],
    "self.h[:, 1].zero_()": ["self.h = self.h.clone()\nself.h[:, 1].zero_()"],
    "h.view(-1)[0] = 1": ["h = h.clone()\nh.view(-1)[0] = 1"],
    "h.data[0] = 1": ["h = h.clone()\nh[0] = 1"],
    "if c: h[0] = 1": ["if c: h = h.clone(); h[0] = 1"],
    "for i in range(3):\n    h[i] = 0": [
        "h = h.clone()\nfor i in range(3):\n    h[i] = 0",
        "for i in range(3):\n    h = h.clone()\n    h[i] = 0",
    ],
    "for k, h in rows:\n    h[0] = 1": [
        "for k, h in rows:\n    h = h.clone()\n    h[0] = 1"
    ],  # before the loop there is no h
}


@pytest.mark.parametrize(("before", "after"), COPIES.items())
def test_a_part_is_written_into_a_copy(before: str, after: list[str]) -> None:
    program = Program(f"import torch\n{before}\n")
    assert program.tree
    statement = next(s for s in ast.walk(program.tree) if isinstance(s, (ast.Assign, ast.AugAssign, ast.Expr)))
    fixes = unique(program.text, copies_before(program, statement))
    assert [apply(program.text, fix.edits) for fix in fixes] == [f"import torch\n{text}\n" for text in after]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nn.ReLU(inplace=True)", "nn.ReLU()"),
        ("nn.ReLU(True)", "nn.ReLU()"),
        ("nn.Dropout(0.5, True)", "nn.Dropout(0.5)"),
        ("nn.LeakyReLU(inplace=True, negative_slope=0.2)", "nn.LeakyReLU(negative_slope=0.2)"),
        ("nn.ELU(alpha=1.0,\n    inplace=True)", "nn.ELU(alpha=1.0)"),
    ],
)
def test_a_module_loses_its_inplace_flag_where_it_was_built(before: str, after: str) -> None:
    program = Program(f"act = {before}\ny = act(x)\n")
    call = program.tree.body[1].value  # type: ignore[union-attr]
    (fix,) = flags(program, call, Event(0, "call", "torch.relu_"))
    assert fix is not None
    assert apply(program.text, fix.edits) == f"act = {after}\ny = act(x)\n"


def test_the_flag_of_the_module_that_wrote_comes_first() -> None:
    program = Program("a = nn.Dropout(0.1, inplace=True)\nb = nn.ReLU(inplace=True)\ny = b(x)\n")
    first = flags(program, program.tree.body[2].value, Event(0, "call", "torch.relu_"))[0]  # type: ignore[union-attr]
    assert first is not None
    assert first.edits[0].line == 2


def test_a_step_moves_after_the_backward_that_needs_the_old_values() -> None:
    program = Program("def f():\n    a.backward()\n    opt.step()  # now\n    b.backward()\n    done()\n")
    body = program.tree.body[0].body  # type: ignore[union-attr]
    (fix,) = moves(program, body[1], body[2])
    assert fix is not None
    assert (
        apply(program.text, fix.edits)
        == "def f():\n    a.backward()\n    b.backward()\n    opt.step()  # now\n    done()\n"
    )


def test_the_forward_pass_is_run_again_from_the_line_that_saved() -> None:
    text = (
        "z = noise()\nfake = g(z)\nscore = d(fake)\nh(score).backward()\nopt.step()\nloss = f(score)\nloss.backward()\n"
    )
    program = Program(text)
    body = program.tree.body  # type: ignore[union-attr]
    fix = second_forwards(program, body[4], body[6], [body[2]])[0]
    assert fix is not None
    assert apply(text, fix.edits) == text.replace("opt.step()\n", "opt.step()\nscore = d(fake)\n")


@pytest.mark.parametrize(
    ("between", "moves_down"),
    [
        ("", True),
        ("first.backward()\n", True),
        ("log = score\n", False),  # needed before the step
        ("(first + score).backward()\n", False),
        ("fake = g(fake)\n", False),  # it would read another value there
        ("score = 0\n", False),
    ],
)
def test_a_forward_pass_that_nothing_needs_before_the_step_is_moved_below_it(between: str, moves_down: bool) -> None:
    text = f"score = d(fake)\n{between}opt.step()\nscore.backward()\n"
    program = Program(text)
    body = program.tree.body  # type: ignore[union-attr]
    fix = second_forwards(program, body[-2], body[-1], [body[0]])[0]
    assert fix is not None
    moved, repeated = text.removeprefix("score = d(fake)\n"), text
    below = (moved if moves_down else repeated).replace("opt.step()\n", "opt.step()\nscore = d(fake)\n")
    assert apply(text, fix.edits) == below


def test_edits_made_one_after_the_other_in_their_order_fit() -> None:
    program = Program("a\nb\nc\nd\n")
    edits = merge(program.insert_before(program.tree.body[0], "z"), program.delete(program.tree.body[2]))  # type: ignore[union-attr]
    assert edits is not None
    lines = split_lines(program.text)
    for edit in edits:
        lines[edit.line - 1 : edit.end_line] = split_lines(edit.text)
    assert "".join(lines) == "z\na\nb\nd\n" == apply(program.text, edits)


def test_edits_of_the_same_line_are_not_merged() -> None:
    program = Program("a\nb\n")
    first = program.tree.body[0]  # type: ignore[union-attr]
    assert merge(program.insert_before(first, "z"), program.delete(first)) is None


@pytest.mark.parametrize(
    "text", ["import torch\r\nh = 1\r\nh += 1\r\n", "import torch\nh = 1\nh += 1", "x = '\x0c'\nh = 1\nh += 1\n"]
)
def test_line_ends_and_form_feeds_do_not_shift_edits(text: str) -> None:
    program = Program(text)
    statement = program.tree.body[2]  # type: ignore[union-attr]
    fix = new_value(program, statement, statement)
    assert fix is not None
    result = apply(text, fix.edits)
    assert result.rstrip("\r\n").endswith("h = h + 1")
    assert result.startswith(text[: text.index("h +=")])


def test_a_text_that_is_not_python_gets_no_edit() -> None:
    program = Program("%matplotlib inline\nh += 1\n")
    assert program.tree is None
    assert program.at(Span(2, 0, 2, 6)) is None


def test_the_root_of_a_chain_of_views_is_its_name() -> None:
    for text in ("h.view(-1)[0]", "h.data", "h[0].t().add_(1)", "h.detach().numpy()"):
        assert ast.unparse(root(ast.parse(text, mode="eval").body)) == "h"


def test_an_entry_of_a_dictionary_is_followed_by_its_key() -> None:
    program = Program(
        "p = d(x)\n"
        "losses = {}\n"
        'losses["d"] = f(p)\n'
        'losses["g"] = g(p)\n'
        'losses["d"].backward()\n'
        "opt.step()\n"
        'losses["g"].backward()\n'
    )
    body = program.tree.body  # type: ignore[union-attr]
    fix = second_forwards(program, body[5], body[6], [body[0]])[0]
    assert fix is not None
    assert 'opt.step()\np = d(x)\nlosses["g"] = g(p)\nlosses["g"].backward()\n' in apply(program.text, fix.edits)


def test_a_graph_built_before_a_loop_is_built_again_in_it() -> None:
    program = Program("loss = f(model(x))\nfor i in range(3):\n    loss.backward(retain_graph=True)\n    opt.step()\n")
    loop = program.tree.body[1]  # type: ignore[union-attr]
    fixes = second_forwards(program, loop.body[1], loop.body[0], [program.tree.body[0]])  # type: ignore[union-attr,attr-defined]
    assert [apply(program.text, fix.edits).split("\n")[2] for fix in fixes if fix] == [
        "    loss = f(model(x))",
        "    loss.backward(retain_graph=True)",
    ]


def test_a_place_counts_code_points_for_people_and_utf16_for_browsers() -> None:
    program = Program("名 = '🙂'; h = f(名)\n")
    place = program.place(program.tree.body[1])  # type: ignore[union-attr]
    assert (place.column, place.end_column) == (9, 17)
    assert place.utf16 == (10, 18)
    assert program.segment(program.tree.body[1]) == "h = f(名)"  # type: ignore[union-attr]


def test_of_a_chain_of_writes_the_whole_becomes_a_new_value() -> None:
    program = Program("import torch\nh.mul_(2).add_(x)\n")
    assert program.tree
    statement = program.tree.body[1]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    assert isinstance(statement.value.func, ast.Attribute)
    fix = new_value(program, statement.value.func.value, statement)
    assert fix is not None
    assert apply(program.text, fix.edits) == "import torch\nh = h.mul(2).add(x)\n"


# A name that is also part of another word of the line: only the expression itself may be replaced.
SHORT_NAMES = {
    "PL922": (
        """import torch
s = torch.tensor([[2.0, 1.0, 0.0]] * 4)
p = torch.softmax(s, dim=-1) / 0.1
print(torch.multinomial(p, 6, replacement=True))
""",
        "p = torch.softmax(s / 0.1, dim=-1)\n",
    ),
    "PL426": (
        """import torch
import torch.nn.functional as F
h = torch.randn(3, 2, requires_grad=True)
padding = torch.tensor([False, False, True])
s = h @ h.T
out = F.softmax(s, dim=-1).masked_fill(padding, 0.0) @ h
out.sum().backward()
print(out, h.grad)
""",
        'out = F.softmax(s.masked_fill(padding, float("-inf")), dim=-1) @ h\n',
    ),
    "PL615": (
        """import torch
from torch import nn
body = nn.Linear(2, 3)
x, y = torch.randn(4, 2), torch.randn(4, 1)
p = list(body.parameters())
opt = torch.optim.SGD(p, lr=0.1)
for _ in range(3):
    head = nn.Linear(3, 1)
    loss = nn.functional.mse_loss(head(torch.relu(body(x))), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
        "head = nn.Linear(3, 1)\nopt = torch.optim.SGD([*p, *head.parameters()], lr=0.1)\n",
    ),
}


@pytest.mark.parametrize("code", SHORT_NAMES)
def test_a_name_that_is_part_of_another_word_is_replaced_where_it_is_meant(code: str, shop: Workshop) -> None:
    source, repaired = SHORT_NAMES[code]
    subject = Subject(source, "program.py")
    trace = shop.trace(subject)
    (finding,) = tried(shop, subject, trace, [each for each in find(trace) if each.rule == code])
    assert repaired in apply(source, finding.fixes[0].edits)
    assert finding.fixes[0].verified


BUFFERS = """import numpy as np
import torch
one, other = np.ones((2, 3), np.float32)
def read(number):
    one[:], other[:] = number, 2 * number
    return torch.from_numpy(one), torch.from_numpy(other)
w = torch.ones(3, requires_grad=True)
x, y = read(1)
for number in (2, 3):
    loss = (w * x).sum() + (w.exp() * y).sum()
    following = read(number)
    loss.backward()
    x, y = following
"""


def test_two_buffers_that_one_line_hands_out_are_copied_together():
    trace = trace_program(BUFFERS)
    with Workshop() as shop:
        found = tried(shop, Subject(BUFFERS, "buffers.py"), trace, find(trace))
    [fix, *_] = [fix for finding in found if finding.rule == "PL301" for fix in finding.fixes if fix.verified]
    assert fix.title.en.endswith("`torch.from_numpy(one)` and `torch.from_numpy(other)` have memory of their own")
    assert "return torch.from_numpy(one).clone(), torch.from_numpy(other).clone()" in apply(BUFFERS, fix.edits)
