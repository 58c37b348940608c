"""What is found is decided by what ran: other names, a function around everything, or a helper for a
loop's body change nothing in it.
"""

from __future__ import annotations

import ast

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find, rule
from pitfall_lab.rules.kit.expected_marks import plain
from tests.turns import todays

BY_SIGNALS = ("PL676", "PL678", "PL680", "PL682", "PL684", "PL436", "PL668", "PL670", "PL672", "PL674", "PL734",
              "PL738", "PL936", "PL956", "PL401", "PL408", "PL409", "PL410", "PL411", "PL412", "PL414", "PL416",
              "PL418", "PL420", "PL422", "PL513", "PL514", "PL516", "PL518", "PL520", "PL601", "PL603", "PL610",
              "PL611", "PL612", "PL613", "PL614", "PL615", "PL616", "PL617", "PL618", "PL619", "PL621", "PL623",
              "PL625", "PL627", "PL629", "PL709", "PL710", "PL711", "PL713", "PL714", "PL715", "PL716", "PL806",
              "PL820", "PL960", "PL962", "PL964", "PL974", "PL972", "PL970", "PL968", "PL966", "PL590", "PL950",
              "PL952", "PL954", "PL662", "PL664", "PL807", "PL808", "PL901", "PL903", "PL904", "PL905", "PL906",
              "PL907", "PL908", "PL909", "PL910", "PL912", "PL424", "PL522", "PL622", "PL624", "PL626", "PL760",
              "PL762", "PL718", "PL914", "PL916", "PL636", "PL732", "PL814", "PL816", "PL818", "PL940", "PL942",
              "PL944", "PL430", "PL432", "PL434", "PL450", "PL452", "PL650", "PL652", "PL654", "PL656", "PL658",
              "PL524", "PL946", "PL928", "PL930", "PL932", "PL934",
              "PL426", "PL428", "PL628", "PL630", "PL632", "PL720", "PL722", "PL810", "PL918", "PL920", "PL922",
              "PL926", "PL770", "PL772", "PL774", "PL948", "PL776", "PL666", "PL976", "PL978", "PL984", "PL466",
               "PL526", "PL550", "PL744", "PL986", "PL996", "PL929", "PL761", "PL839", "PL841",
               "PL843", "PL975", "PL945", "PL955", "PL473", "PL667", "PL817", "PL847", "PL957", "PL993",
               "PL997", "PL646", "PL981", "PL991", "PL941", "PL852", "PL858", "PL998", "PL736")  # fmt: skip


class Renamed(ast.NodeTransformer):
    """Every name that the program itself gives gets another one."""

    def __init__(self, tree: ast.Module) -> None:
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        arguments = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} - {"self"}
        functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.new = {name: f"q{number}" for number, name in enumerate(sorted(stored | arguments | functions))}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.new.get(node.id, node.id), node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(self.new.get(node.arg, node.arg)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.new.get(node.name, node.name)
        return self.generic_visit(node)


def renamed(text: str) -> str:
    tree = ast.parse(text)
    return ast.unparse(Renamed(tree).visit(tree))


def in_a_function(text: str) -> str:
    tree = ast.parse(text)
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    rest = [n for n in tree.body if n not in imports]
    main = ast.FunctionDef("main", ast.arguments([], [], None, [], [], None, []), rest, [], type_params=[])
    call = ast.Expr(ast.Call(ast.Name("main", ast.Load()), [], []))
    return ast.unparse(ast.fix_missing_locations(ast.Module([*imports, main, call], [])))


def with_helpers(text: str) -> str:
    """The body of each loop at the top level in a function of its own; to inline that function is the way back."""
    tree, body = ast.parse(text), list[ast.stmt]()
    for node in tree.body:
        if isinstance(node, ast.For | ast.While) and not any(
            isinstance(n, ast.Break | ast.Continue | ast.Yield) for n in ast.walk(node)
        ):
            stored = {
                n.id
                for each in node.body
                for n in ast.walk(each)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            inside = [ast.Global(sorted(stored))] if stored else []
            name = f"one_round_{len(body)}"
            body.append(
                ast.FunctionDef(
                    name, ast.arguments([], [], None, [], [], None, []), [*inside, *node.body], [], type_params=[]
                )
            )
            node.body = [ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))]
        body.append(node)
    return ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))


def lines_found(shop: Workshop, text: str) -> list[tuple[str, str]]:
    """The codes of the findings, each with the text of its line."""
    trace = shop.trace(Subject(text, "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    return sorted(
        (f.rule, text.split("\n")[f.span.line - 1].strip())
        for f in find(trace)
        if f.span is not None and (f.severity != "info" or f.rule in BY_SIGNALS)
    )


def found(shop: Workshop, text: str) -> list[tuple[str, int]]:
    """The codes of the findings, each with the number of its line among those that are the program's own."""
    own = [
        n for n, line in enumerate(text.split("\n"), 1) if line.strip() and not line.startswith(("def main", "main()"))
    ]
    trace = shop.trace(Subject(text, "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    return sorted(
        (f.rule, own.index(f.span.line))
        for f in find(trace)
        if f.span is not None and (f.severity != "info" or f.rule in BY_SIGNALS)
    )


@pytest.mark.parametrize("code", todays(BY_SIGNALS, of=10))
def test_other_names_and_a_function_around_it_change_nothing_in_what_is_found(code: str, shop: Workshop) -> None:
    text = ast.unparse(ast.parse(plain(rule(code).bad)))
    usual = found(shop, text)
    assert [each for each, _ in usual] == [code]
    assert found(shop, renamed(text)) == usual
    assert found(shop, in_a_function(text)) == usual


LOOPS = [
    code for code in BY_SIGNALS if with_helpers(plain(rule(code).bad)) != ast.unparse(ast.parse(plain(rule(code).bad)))
]


def test_most_of_these_programs_have_a_loop() -> None:
    assert len(LOOPS) > len(BY_SIGNALS) / 2


@pytest.mark.parametrize("code", todays(LOOPS, of=10))
def test_a_helper_for_the_body_of_a_loop_changes_nothing_in_what_is_found(code: str, shop: Workshop) -> None:
    text = ast.unparse(ast.parse(plain(rule(code).bad)))
    assert lines_found(shop, with_helpers(text)) == lines_found(shop, text) != []
