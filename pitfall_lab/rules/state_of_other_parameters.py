"""PL688: an optimizer was given the state of an optimizer that had its parameters in another order, or others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import Event, MisplacedAverages, OptimizerStep, T

ORDERS = {"reversed", "sorted"}
"""Functions of Python that put the groups, or what they are made of, into another order."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that loads into an optimizer a state whose averages belong to other parameters.

    An error if the next step raised, as the shapes differ; a warning if only the order differs and a step used the
    state.
    """
    reported = set()
    for misplaced in story.trace.beside.misplaced:
        stepped = next(
            (
                each
                for each in story.trace.optimizer_steps
                if each.made == misplaced.optimizer and each.step >= misplaced.step
            ),
            None,
        )
        raised = _raised(story, stepped) if stepped is not None else None
        shown = raised is not None or misplaced.loaded == misplaced.shape
        if stepped is not None and shown and misplaced.span not in reported:
            reported.add(misplaced.span)
            yield _finding(story, misplaced, stepped, raised)


def _raised(story: Story, stepped: OptimizerStep) -> Event | None:
    """The first call of this step for which torch raised an error; None if the step ended without one."""
    for event in story.events[stepped.step :]:
        if story.span(event.step) != stepped.span:
            return None
        if event.error is not None and event.kind == "call":
            return event
    return None


def _finding(story: Story, misplaced: MisplacedAverages, stepped: OptimizerStep, raised: Event | None) -> Finding:
    optimizer = story.trace.optimizers[misplaced.optimizer]
    here, made, there = (at_line(story, span) for span in (misplaced.span, optimizer.span, stepped.span))
    name = called(story, misplaced.parameter, None, None) if misplaced.parameter is not None else None
    own = T(en=f", {name.en},", zh=f"（{name.zh}）") if name is not None else T(en="", zh="")
    loaded, shape = ("×".join(map(str, each)) or "0-d" for each in (misplaced.loaded, misplaced.shape))
    entry, number = misplaced.entry, misplaced.number + 1
    if misplaced.names:
        saved, held = misplaced.names
        said = T(
            en=f"{capital(here.en)} loads a state whose parameters came in another order: the `{entry}` of `{saved}` "
            f"goes to `{held}`, number {number} of the `{optimizer.optimizer}` of {made.en}.",
            zh=f"{here.zh}加载的状态里，参数是另一种顺序：`{saved}` 的 `{entry}` 给了 `{held}`，即{made.zh}的 "
            f"`{optimizer.optimizer}` 的第 {number} 个。",
        )
        then = T(
            en=f"The names are not looked at, and the shapes agree, so the update of {there.en} uses the averages of "
            "one parameter for another, without an error.",
            zh=f"名字不会被检查，而形状又相同，所以{there.zh}的更新把一个参数的平均值用在了另一个上，并不报错。",
        )
    else:
        said = T(
            en=f"{capital(here.en)} loads the state of other parameters into the `{optimizer.optimizer}` of {made.en}: "
            f"its `{entry}` number {number} has the shape {loaded}, and parameter number {number}{own.en} the shape "
            f"{shape}.",
            zh=f"{here.zh}把别的参数的状态加载到{made.zh}的 `{optimizer.optimizer}`：第 {number} 个 `{entry}` 的形状是 "
            f"{loaded}，而第 {number} 个参数{own.zh}的形状是 {shape}。",
        )
        then = T(
            en=f"The update of {there.en} then computes with both, and torch refuses that.",
            zh=f"随后{there.zh}的更新要用两者一起计算，于是 torch 拒绝。",
        )
    order = ""
    if misplaced.groups:
        order = ", ".join(str(place + 1) for place in misplaced.groups)
    groups = T(
        en=f" The groups of the state are, in its order, the groups {order} of this optimizer." if order else "",
        zh=f"状态里的各组依次是这个优化器的第 {order} 组。" if order else "",
    )
    return RULE.finding(
        misplaced.span,
        misplaced.step,
        said,
        T(
            en="A state has an entry for each parameter by its number, counted through all groups. `load_state_dict` "
            f"compares how many groups and parameters there are, and nothing else: {misplaced.count} of the "
            f"{misplaced.of} loaded entries belong to another parameter.{groups.en} {then.en}",
            zh="状态按编号为每个参数各有一项，编号贯穿所有的组。`load_state_dict` 只比较组数和参数的个数，别的都不看："
            f"加载的 {misplaced.of} 项中有 {misplaced.count} 项属于别的参数。{groups.zh}{then.zh}",
        ),
        related=[
            Related("made", optimizer.span, optimizer.step, T(en="its parameters are given here", zh="参数在这里给出")),
            Related(
                "step",
                stepped.span,
                raised.step if raised is not None else stepped.step,
                T(en="torch raises here", zh="torch 在这里报错")
                if raised is not None
                else T(en="the state is used here", zh="状态在这里被使用"),
            ),
        ],
        fixes=_fixes(story, misplaced),
        facts=[
            Fact("loaded", misplaced.loaded),
            Fact("shape", misplaced.shape),
            Fact("misplaced", misplaced.count),
            Fact("groups", misplaced.groups),
        ],
        severity="error" if raised is not None else "warning",
    )


def _fixes(story: Story, misplaced: MisplacedAverages) -> tuple[Fix, ...]:
    """Fixes that give the groups in the order of the state; the last one removes the loading instead. Empty if neither
    is possible.
    """
    program, call = story.program, call_of(story, story.trace.optimizers[misplaced.optimizer].span)
    fixes: list[Fix] = []
    title = T(en="Give the parameters in the order of the saved state", zh="按保存的状态里的顺序给出参数")
    given = next(iter([*call.args, *(k.value for k in call.keywords if k.arg == "params")]), None) if call else None
    makers = [given, *origins(program, given)] if given is not None else []
    for maker in makers:
        if isinstance(maker, ast.List | ast.Tuple) and len(maker.elts) == len(misplaced.groups):
            places = zip(maker.elts, misplaced.groups, strict=True)
            changes = [(one, program.segment(maker.elts[place])) for one, place in places]
            fixes.append(Fix(title, program.replace(*changes), meaning="later"))
    sorts = [n for each in makers for n in ast.walk(each) if isinstance(n, ast.Call) and call_name(n) in ORDERS]
    fixes += [
        Fix(title, program.replace((sort, program.segment(sort.args[0]))), meaning="later")
        for sort in sorts
        if sort.args
    ]
    statement = program.statement(call_of(story, misplaced.span))
    if isinstance(statement, ast.Expr) and program.stands_alone(statement):
        begin = T(en="Begin with a new state", zh="从新的状态开始")
        fixes.append(Fix(begin, program.delete(statement), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL688",
    name="state-of-other-parameters",
    severity="error",
    title=T(
        en="A loaded optimizer state belongs to other parameters",
        zh="加载的优化器状态属于别的参数",
    ),
    what=T(
        en="A program saves what an optimizer has collected in a training, and gives it to a new optimizer that has "
        "the same parameters in another order. The averages go by the number of the parameter, so each gets those of "
        "another. If the shapes differ, the next step fails with a message that names two sizes only; if not, nothing "
        "is said. Make the new optimizer with its parameters in the order of the saved one.",
        zh="程序保存了优化器在训练中积累的内容，再交给一个参数相同、但顺序不同的新优化器。平均值按参数的编号分配，于是每"
        "个参数得到的都是别人的。如果形状不同，下一步就会失败，而错误信息只提到两个大小；如果形状相同，就什么提示也没"
        "有。请按保存时的顺序给出新优化器的参数。",
    ),
    why=T(
        en="`opt.state_dict()` numbers the parameters of all groups in the order in which they were given, and keeps "
        "the averages (`exp_avg`, `momentum_buffer`, …) under these numbers: an optimizer has the tensors, and no "
        "names. `load_state_dict` compares the numbers of groups and of parameters in each, and assigns by position. "
        "Names given with `named_parameters()` are saved and not compared. A sorted dictionary, a list of groups in "
        "another order, or a layer that the module now makes earlier is enough.",
        zh="`opt.state_dict()` 按给出的顺序为所有组的参数编号，并用这些编号保存平均值（`exp_avg`、`momentum_buffer` "
        "等）：优化器里有张量，没有名字。`load_state_dict` 比较组数和每组的参数个数，然后按位置赋值。用 "
        "`named_parameters()` 给出的名字会被保存，但不会被比较。字典被排了序、组的列表换了顺序，或者模块现在更早地创建"
        "某一层，都足以造成这种情况。",
    ),
    advice=T(
        en="give the optimizer of {made} its groups and parameters in the order in which the saved one had them, or do "
        "not load the state on {line}.",
        zh="让{made}的优化器按保存时的顺序得到各组和参数，或者不要在{line}加载这个状态。",
    ),
    bad="""import torch

a = torch.zeros(2, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
x = torch.tensor([1.0, 2.0, 3.0])
first = torch.optim.Adam([{"params": [a]}, {"params": [b]}], lr=0.1)
for _ in range(3):
    first.zero_grad()
    ((a.sum() - 1).square() + (b - x).square().sum()).backward()
    first.step()

opt = torch.optim.Adam([{"params": [b]}, {"params": [a]}], lr=0.1)  # made
opt.load_state_dict(first.state_dict())  # PL688
for _ in range(3):
    opt.zero_grad()
    ((a.sum() - 1).square() + (b - x).square().sum()).backward()
    opt.step()  # step
print(a, b)
""",
    good="""import torch

a = torch.zeros(2, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
x = torch.tensor([1.0, 2.0, 3.0])
first = torch.optim.Adam([{"params": [a]}, {"params": [b]}], lr=0.1)
for _ in range(3):
    first.zero_grad()
    ((a.sum() - 1).square() + (b - x).square().sum()).backward()
    first.step()

opt = torch.optim.Adam([{"params": [a]}, {"params": [b]}], lr=0.1)
opt.load_state_dict(first.state_dict())
for _ in range(3):
    opt.zero_grad()
    ((a.sum() - 1).square() + (b - x).square().sum()).backward()
    opt.step()
print(a, b)
""",
    find=find,
    traps=(
        Trap(
            "opt.load_state_dict(first.state_dict())",
            'opt.load_state_dict({**first.state_dict(), "param_groups": opt.state_dict()["param_groups"]})',
            T(
                en="The options are then those of the new optimizer; the averages still go by the number.",
                zh="这样选项是新优化器的，而平均值仍按编号分配。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html",),
)
