"""Modules that are defined or called in the wrong way: no return, a pair instead of a tensor, no
``super().__init__()``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.syntax import called, operand, torch_name
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.remedies.function_gradients import class_called, method
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import Given, T

PAIRS = {"LSTM", "GRU", "RNN", "MultiheadAttention"}
"""Layers whose result is a pair."""


def nothing_from(refused: Refused) -> tuple[ast.expr, Function] | None:
    """Return an expression on the failed line that calls, or holds the result of, a function of the program without a
    return value, and that function; None if there is none.
    """
    program = refused.story.program
    node = program.at(refused.span) if program.tree is not None else None
    statement = program.statement(node)
    for each in ast.walk(statement) if statement is not None and not hasattr(statement, "body") else ():
        if isinstance(each, ast.Call | ast.Name) and isinstance(getattr(each, "ctx", ast.Load()), ast.Load):
            for found in origins(program, each):
                function = _called_function(program, found) if isinstance(found, ast.Call) else None
                if function is not None and not _returns(program, function):
                    return each, function
    return None


def _called_function(program: Program, call: ast.Call) -> Function | None:
    """The function of the program that a call runs: a top-level function, or the ``forward`` of the module that is
    called; None if it is neither.
    """
    plain = [
        n
        for n in program.nodes
        if isinstance(n, Function) and n.name == called(call) and isinstance(call.func, ast.Name)
    ]
    if len(plain) == 1 and isinstance(program.parents.get(plain[0]), ast.Module):
        return plain[0]
    for made in origins(program, call.func):
        owner = class_called(program, called(made)) if isinstance(made, ast.Call) else None
        forward = method(owner, "forward")
        if forward is not None:
            return forward
    return None


def _returns(program: Program, function: Function) -> bool:
    own = (n for n in ast.walk(function) if isinstance(n, ast.Return | ast.Yield) and program.function(n) is function)
    return any(n.value is not None or isinstance(n, ast.Yield) for n in own)


def given_nothing(refused: Refused) -> Given | None:
    """Return the argument on the failed line that is None because a function of the program returns nothing, with only
    its source and its type (``NoneType``) filled in; None if there is no such function.
    """
    found = nothing_from(refused)
    return Given("", refused.story.program.segment(found[0]), "NoneType") if found is not None else None


def without_return(error: Error) -> Remedy | None:
    """Return the remedy for a function without a return value, with a fix that returns the name that its last statement
    assigns, or its last expression.

    Without a fix for other last statements. None if the line uses no such function.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    found = nothing_from(refused)
    if found is None:
        return None
    expression, function = found
    place = program.place(function.body[-1])
    where, here = at_line(story, place), at_line(story, refused.span)
    text = program.segment(expression)
    said = T(
        en=f"`{function.name}` ends on {where.en} without a `return`, so `{text}` on {here.en} is None.",
        zh=f"`{function.name}` 在{where.zh}结束时没有 `return`，所以{here.zh}的 `{text}` 是 None。",
    )
    accepts = T(en=f"a `return` at the end of `{function.name}`", zh=f"`{function.name}` 末尾的 `return`")
    related = (
        Related(
            "made",
            place,
            None,
            T(en="the last line of the function, without a return", zh="函数的最后一行，没有 return"),
        ),
    )
    return Remedy(unique(program.text, list(_returned(program, function))), said, accepts, place, None, related)


def _returned(program: Program, function: Function) -> Iterator[Fix | None]:
    last = function.body[-1]
    if isinstance(last, ast.Expr) and not isinstance(last.value, ast.Constant):
        text = f"return {program.segment(last.value)}"
        yield Fix(
            T(en=f"Return the result: `{text}`", zh=f"返回结果：`{text}`"),
            program.replace((last, text)),
            meaning="later",
        )
    target = (
        last.targets[0] if isinstance(last, ast.Assign) else last.target if isinstance(last, ast.AugAssign) else None
    )
    if isinstance(target, ast.Name):
        text = f"return {target.id}"
        yield Fix(
            T(en=f"Return the result: `{text}`", zh=f"返回结果：`{text}`"),
            program.insert_after(last, text),
            meaning="later",
        )


def pair(error: Error) -> Remedy | None:
    """Return the remedy for the pair of results of a recurrent or attention layer that is passed where one tensor is
    expected, with the fix ``out, _ = rnn(x)``, or ``rnn(x)[0]`` if the call is itself the argument.

    None if no argument of the call is such a pair.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    call = refused.call
    for argument in call.args if call is not None else ():
        for made in origins(program, argument):
            kinds = (
                [called(o) for o in origins(program, made.func) if isinstance(o, ast.Call)]
                if isinstance(made, ast.Call)
                else []
            )
            if not isinstance(made, ast.Call) or not set(kinds) & PAIRS:
                continue
            statement = program.statement(made)
            place = program.place(made)
            where, here, name = at_line(story, place), at_line(story, refused.span), program.segment(argument)
            layer = program.segment(made.func)
            said = T(
                en=f"`{layer}` on {where.en} returns a pair, output and state, and {here.en} gives all of it "
                f"(`{name}`) to a layer that takes one tensor.",
                zh=f"{where.zh}的 `{layer}` 返回一对结果（输出和状态），而{here.zh}把它整个（`{name}`）交给了"
                "只接受一个张量的层。",
            )
            accepts = T(
                en=f"the first of the two: `{name}, _ = {layer}(…)`", zh=f"两者中的第一个：`{name}, _ = {layer}(…)`"
            )
            fixes: list[Fix | None] = []
            plain = isinstance(statement, ast.Assign) and statement.value is made and len(statement.targets) == 1
            if plain and isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                target = statement.targets[0]
                title = T(en=f"Unpack the pair: `{target.id}, _ = …`", zh=f"拆开这一对：`{target.id}, _ = …`")
                fixes.append(Fix(title, program.replace((target, f"{target.id}, _")), meaning="later"))
            elif made is argument:
                title = T(
                    en=f"Take the first of the two: `{program.segment(made)}[0]`",
                    zh=f"取两者中的第一个：`{program.segment(made)}[0]`",
                )
                fixes.append(Fix(title, program.replace((made, f"{program.segment(made)}[0]")), meaning="later"))
            related = (
                Related("made", place, None, T(en="output and state are returned here", zh="在这里返回输出和状态")),
            )
            return Remedy(unique(program.text, fixes), said, accepts, place, None, related)
    return None


def first_line(error: Error) -> Remedy | None:
    """Return the remedy for a module whose ``__init__`` does not call ``super().__init__()``, with a fix that calls it
    first.

    None if the failed line is not in an ``__init__``, or if that calls ``super().__init__()`` anywhere.
    """
    program = error.refused.story.program
    node = program.at(error.refused.span)
    function = program.function(node) if node is not None else None
    while function is not None and function.name != "__init__":
        function = program.function(function)
    if function is None:
        return None
    begin = next(
        (s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))),
        function.body[0],
    )
    calls = [s for s in function.body if isinstance(s, ast.Expr) and program.segment(s) == "super().__init__()"]
    title = T(en="Begin with `super().__init__()`", zh="以 `super().__init__()` 开头")
    if calls:
        return None
    return Remedy((Fix(title, program.insert_before(begin, "super().__init__()"), meaning="later"),))


def loss_class(refused: Refused) -> Given | None:
    """Return the loss class that the failed line calls with two or more arguments, as an argument with only its source
    and its type filled in; None if the line calls none.
    """
    call = refused.call
    named = call is not None and called(call).endswith("Loss") and called(call)[:1].isupper() and len(call.args) > 1
    return Given("", refused.story.program.segment(call.func), "type") if call is not None and named else None


def loss_object(error: Error) -> Remedy | None:
    """Return the remedy for a loss class that is called with tensors, with a fix that creates an object of the class
    and calls that; None for other calls.
    """
    refused, program = error.refused, error.refused.story.program
    call = refused.call
    if call is None or loss_class(refused) is None:
        return None
    name = program.segment(call.func)
    end = program.place(call.func)
    here = type(end)(end.end_line, end.end_column, end.end_line, end.end_column)
    said = T(
        en=f"{refused.words('en')['Line']} gives the tensors to the class `{name}`, whose arguments are settings such "
        f"as class weights; the object that it makes takes the tensors: `{name}()(…)`.",
        zh=f"{refused.words('zh')['Line']}把张量交给了类 `{name}`，而它的参数是类别权重之类的设置；接受张量的是它建立"
        f"的对象：`{name}()(…)`。",
    )
    accepts = T(
        en=f"an object of the class, called with the tensors: `{name}()(…)`", zh=f"用张量调用该类的对象：`{name}()(…)`"
    )
    title = T(en=f"Make the loss first, then call it: `{name}()(…)`", zh=f"先建立损失，再调用它：`{name}()(…)`")
    return Remedy((Fix(title, program.splice((here, "()")), meaning="later"),), said, accepts)


def spread(error: Error) -> Remedy | None:
    """Return the remedy for arguments that are passed to ``forward`` as one tuple, with a fix that passes them one by
    one.

    None if the call has more than one argument, or one that is not written as a tuple, a list, a name, an index or a
    call.
    """
    refused, program = error.refused, error.refused.story.program
    call = refused.call
    if call is None or len(call.args) != 1 or call.keywords:
        return None
    only = call.args[0]
    if isinstance(only, ast.Tuple | ast.List):
        text = ", ".join(program.segment(each) for each in only.elts)
    elif isinstance(only, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        text = f"*{operand(program, only)}"
    else:
        return None
    title = T(en=f"Give the arguments one by one: `{text}`", zh=f"逐个给出参数：`{text}`")
    return Remedy((Fix(title, program.replace((only, text)), meaning="later"),))


def as_parameter(error: Error) -> Remedy | None:
    """Return the remedy for a tensor that is assigned to a parameter, with a fix that wraps it in ``nn.Parameter(…)``.

    None if it requires grad (the tensors from which it was computed would get no gradient any more), or if the line is
    no assignment.
    """
    refused, program, torch = error.refused, error.refused.story.program, torch_name(error.refused.story.program)
    statement = program.statement_at(refused.span)
    if not isinstance(statement, ast.Assign) or (error.wrong is not None and error.wrong.requires_grad):
        return None
    nn = next(
        (
            a.asname or a.name
            for n in program.nodes
            if isinstance(n, ast.ImportFrom) and n.module == "torch"
            for a in n.names
            if a.name == "nn"
        ),
        None,
    )
    name = f"{nn}.Parameter" if nn else f"{torch}.nn.Parameter"
    text = f"{name}({program.segment(statement.value)})"
    where = at_line(refused.story, refused.span)
    said = T(
        en=f"{capital(where.en)} assigns a plain tensor to the parameter `{error.match[2]}`; a module keeps "
        "parameters there, which optimizers find.",
        zh=f"{where.zh}把普通张量赋给参数 `{error.match[2]}`；模块在那里保存的是参数，优化器才能找到。",
    )
    title = T(en=f"Make a parameter of it: `{text}`", zh=f"把它变成参数：`{text}`")
    return Remedy((Fix(title, program.replace((statement.value, text)), meaning="later"),), said)
