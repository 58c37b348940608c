"""PL634: the functions of a LambdaLR were made in a loop and all read a variable of it when they are called:
every group follows the last.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Scheduler, T

Loop = ast.For | ast.While | ast.comprehension


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each lambda in a loop that makes several functions for one scheduler (``LambdaLR``), all of
    which read a variable that each round of the loop sets.
    """
    told = set()
    for scheduler in story.trace.beside.schedulers:
        for node in (n for n in story.program.nodes if isinstance(n, ast.Lambda) and scheduler.shared):
            variables = _late(story, node, scheduler)
            if variables and node not in told:
                told.add(node)
                yield _finding(story, scheduler, node, variables)


def _late(story: Story, node: ast.Lambda, scheduler: Scheduler) -> list[str]:
    """The variables, sorted, that a lambda reads when it is called, that loops around it set in each round, and that
    the scheduler's functions share.
    """
    own = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
    read = {n.id for n in ast.walk(node.body) if isinstance(n, ast.Name)} - own
    bound = {name for loop in _loops(story, node) for name in _set_by(loop)}
    return sorted(read & bound & set(scheduler.shared))


def _set_by(loop: Loop) -> set[str]:
    """The variables that change in each round of a loop: its own, those that its body computes from them, and those
    that it updates by ``+=`` or the like.
    """
    own = [] if isinstance(loop, ast.While) else _names(loop.target)
    changing = {each.id for each in own}
    body = [] if isinstance(loop, ast.comprehension) else [n for each in loop.body for n in ast.walk(each)]
    changing |= {n.target.id for n in body if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
    for node in body:
        if isinstance(node, ast.Assign) and any(each.id in changing for each in _names(node.value)):
            names = [each for target in node.targets for each in _names(target)]
            changing |= {each.id for each in names if isinstance(each.ctx, ast.Store)}
    return changing


def _names(node: ast.AST) -> list[ast.Name]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Name)]


def _loops(story: Story, node: ast.AST) -> Iterator[Loop]:
    for around in story.program.ancestors(node):
        if isinstance(around, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            yield from around.generators
        elif isinstance(around, ast.For | ast.While):
            yield around
        elif isinstance(around, ast.FunctionDef | ast.Lambda):
            return


def _finding(story: Story, scheduler: Scheduler, node: ast.Lambda, variables: list[str]) -> Finding:
    span = story.program.place(node)
    here, there = at_line(story, span), at_line(story, scheduler.span)
    name = variables[0]
    return RULE.finding(
        span,
        scheduler.step,
        T(
            en=f"{capital(here.en)} makes a function in each round, and all of them read `{name}` when they are "
            f"called: every group of the {scheduler.scheduler} follows the last value.",
            zh=f"{here.zh}在每一轮都创建一个函数，而它们都在被调用时才读取 `{name}`：{scheduler.scheduler} 的每一"
            "组用的都是最后一个值。",
        ),
        T(
            en="A function looks up the variables around it at the moment of the call. The loop is over then, and "
            f"`{name}` has its last value for all of the functions that {there.en} uses. `lambda …, {name}={name}: …` "
            "keeps the value of each round.",
            zh=f"函数在被调用的那一刻才查找它外面的变量。那时循环已经结束，对{there.zh}使用的所有函数来说，`{name}` 都"
            f"是最后一个值。`lambda …, {name}={name}: …` 会保留每一轮的值。",
        ),
        related=[
            Related("used", scheduler.span, scheduler.step, T(en="all of them are called here", zh="它们在这里被调用"))
        ],
        fixes=_fixes(story, node, variables),
        facts=[Fact("variables", variables)],
    )


def _fixes(story: Story, node: ast.Lambda, variables: list[str]) -> tuple[Fix, ...]:
    program = story.program
    given = ", ".join(
        [program.segment(node).removeprefix("lambda").split(":", 1)[0].strip(), *(f"{v}={v}" for v in variables)]
    )
    new = f"lambda {given.strip(', ')}: {program.segment(node.body)}"
    title = T(en=f"Keep the value of each round: `{new}`", zh=f"保留每一轮的值：`{new}`")
    plain = not node.args.defaults and node.args.vararg is None and node.args.kwarg is None
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")]) if plain else ()


RULE = Rule(
    code="PL634",
    name="schedules-share-a-variable",
    severity="warning",
    title=T(en="The schedules of several groups read one loop variable", zh="几个参数组的调度函数读取同一个循环变量"),
    what=T(
        en="A program makes a function for each group of parameters in a loop, and each should use its own number. "
        "All of them use the last one, because a function looks up a variable only when it is called. Write `lambda "
        "epoch, rate=rate: …`.",
        zh="程序在循环中为每组参数创建一个函数，本应各用各的数。结果它们都用了最后一个，因为函数在被调用时才查找变量。"
        "请写成 `lambda epoch, rate=rate: …`。",
    ),
    why=T(
        en="This is Python's rule and not torch's: a closure holds the variable, not its value. `LambdaLR` "
        "calls its functions at every `step()`, long after the loop has ended. A default argument is "
        "evaluated when the function is made.",
        zh="这是 Python 的规则，不是 torch 的：闭包持有的是变量，而不是它的值。`LambdaLR` 在每次 `step()` 时才调用这些"
        "函数，那时循环早已结束。默认参数则在创建函数时求值。",
    ),
    bad="""import torch

body, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
opt = torch.optim.SGD([{"params": body.parameters()}, {"params": head.parameters()}], lr=1.0)
rules = [lambda epoch: rate**epoch for rate in (0.9, 0.1)]  # PL634
schedule = torch.optim.lr_scheduler.LambdaLR(opt, rules)  # used
x = torch.ones(4, 2)
for _ in range(2):
    opt.zero_grad()
    head(body(x)).square().mean().backward()
    opt.step()
    schedule.step()
    print(schedule.get_last_lr())
""",
    good="""import torch

body, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
opt = torch.optim.SGD([{"params": body.parameters()}, {"params": head.parameters()}], lr=1.0)
rules = [lambda epoch, rate=rate: rate**epoch for rate in (0.9, 0.1)]
schedule = torch.optim.lr_scheduler.LambdaLR(opt, rules)
x = torch.ones(4, 2)
for _ in range(2):
    opt.zero_grad()
    head(body(x)).square().mean().backward()
    opt.step()
    schedule.step()
    print(schedule.get_last_lr())
""",
    find=find,
    traps=(
        Trap(
            "for rate in (0.9, 0.1)]",
            "for rate in (0.1, 0.9)]",
            T(
                en="In another order another value is the last one, for all groups.",
                zh="换一个次序，只是换了所有组共用的最后一个值。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LambdaLR.html",),
)
