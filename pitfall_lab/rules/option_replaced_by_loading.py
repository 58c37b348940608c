"""PL686: a state that was loaded into an optimizer replaced the learning rate, or another option, that it was made
with for a training of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import call_of, rate_facts
from pitfall_lab.trace import OptimizerMade, Restored, Span, T

RATE = "lr"
NOTHING, LONG = 1e-2, 20
"""A rate below this part of the given one, in so many steps, is no training that is meant to go on."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that loads a state into an optimizer that then steps, if the state replaces an
    option (the learning rate, for example) that the program chose, other than those of the optimizers before it.

    If the replaced option equals one that the training began with, the program is taken to resume that training, and
    nothing is reported, unless the loaded rate is next to nothing and stays so for many steps.
    """
    lost: dict[Span | None, list[Restored]] = {}
    others = {(each.span, each.optimizer) for each in story.trace.beside.misplaced}
    for restored in story.trace.beside.restored:
        if (restored.span, restored.optimizer) in others:
            continue  # the groups of the state belong to other groups, and their options too
        optimizer = story.trace.optimizers[restored.optimizer]
        if _is_lost(story, restored, optimizer) and _is_given(story, restored):
            lost.setdefault(restored.span, []).append(restored)
    for several in lost.values():
        same = [each for each in several if each.optimizer == several[0].optimizer]
        yield _finding(story, sorted(same, key=lambda each: each.name != RATE))


def _is_lost(story: Story, restored: Restored, optimizer: OptimizerMade) -> bool:
    """Whether the optimizer stepped with the loaded option, and the option that it was made with is not one with which
    the training began (:class:`.Restored`).

    If it is one, the loaded learning rate must be next to nothing in all of at least ``LONG`` steps without a
    scheduler.
    """
    rates = [rate for _, rate in optimizer.rates]
    if not optimizer.steps or (restored.name == RATE and (rates[:1] != [restored.loaded] or restored.given in rates)):
        return False
    first = {*restored.earlier, restored.began} - {None}
    if restored.given not in first:
        return bool(first)
    scheduled = any(each.optimizer == restored.optimizer for each in story.trace.beside.schedulers)
    stays = restored.name == RATE and rates == [restored.loaded] and optimizer.steps >= LONG and not scheduled
    return stays and restored.loaded <= NOTHING * restored.given


def _is_given(story: Story, restored: Restored) -> bool:
    """Whether the program itself chose the option: it is written in the call, or differs from the default of the
    class.
    """
    return _written(story, restored) is not None or restored.given != restored.usual


def _written(story: Story, restored: Restored) -> ast.expr | None:
    """The expression of the option in the call that made the optimizer; None if it is not written there."""
    call = call_of(story, story.trace.optimizers[restored.optimizer].span)
    if call is None:
        return None
    named = next((k.value for k in call.keywords if k.arg == restored.name), None)
    place = call.args[1] if named is None and restored.name == RATE and len(call.args) > 1 else named
    return None if isinstance(place, ast.Starred) else place


def _finding(story: Story, lost: list[Restored]) -> Finding:
    restored = lost[0]
    optimizer = story.trace.optimizers[restored.optimizer]
    here, there = at_line(story, restored.span), at_line(story, optimizer.span)
    name, given, loaded = restored.name, number(restored.given), number(restored.loaded)
    what = T(en="the learning rate", zh="学习率") if name == RATE else T(en=f"`{name}`", zh=f"`{name}`")
    began = (
        T(
            en=f" In the state it had come down from {number(restored.began)} by a schedule.",
            zh=f"在该状态里，它已由调度从 {number(restored.began)} 降了下来。",
        )
        if restored.began not in (None, restored.loaded)
        else T(en="", zh="")
    )
    more = [(each.name, number(each.given), number(each.loaded)) for each in lost[1:]]
    also = T(
        en="".join(f" So it is with `{each}`: {one} was given, {other} is used." for each, one, other in more),
        zh="".join(f"`{each}` 也是这样：给的是 {one}，用的是 {other}。" for each, one, other in more),
    )
    return RULE.finding(
        restored.span,
        restored.step,
        T(
            en=f"{capital(here.en)} replaces {what.en} {given} of the new `{optimizer.optimizer}` by the one in the "
            f"loaded state: its {optimizer.steps} steps {'begin with' if name == RATE else 'use'} {loaded}.",
            zh=f"{here.zh}用加载状态里的值 {loaded} 取代了新建的 `{optimizer.optimizer}` 的{what.zh} {given}：它的 "
            f"{optimizer.steps} 步从第一步起用的就是 {loaded}。",
        ),
        T(
            en=f"The state of an optimizer has all options of its groups (`lr`, `weight_decay`, …), besides the "
            f"averages that it keeps for each parameter, and `load_state_dict` takes both over. The {given} that "
            f"{there.en} gave is used in no step.{began.en}{also.en} Where a training goes on as it was, that is meant"
            "; here the optimizer was made with a value of its own. Set it again after the loading.",
            zh=f"优化器的状态除了为每个参数保存的平均值，还包含各参数组的全部选项（`lr`、`weight_decay` 等），"
            f"`load_state_dict` 把两者都取过来。{there.zh}给出的 {given} 没有用在任何一步。{began.zh}{also.zh}如果是接"
            "着原来的训练，这正是想要的；但这里新建优化器时另外给了一个值。请在加载之后重新设置。",
        ),
        related=[
            Related(
                "made", optimizer.span, optimizer.step,
                T(en=f"made with `{name}` {given} here", zh=f"在这里以 `{name}` {given} 创建"),
            )
        ],
        fixes=_fixes(story, lost),
        facts=[Fact("given", restored.given), Fact("loaded", restored.loaded), *rate_facts(optimizer)],
    )  # fmt: skip


def _fixes(story: Story, lost: list[Restored]) -> tuple[Fix, ...]:
    """At most one fix: it sets the options of all parameter groups after the loading; empty unless the loading is a
    statement of its own.
    """
    program, call = story.program, call_of(story, lost[0].span)
    statement = program.statement(call)
    if call is None or not isinstance(statement, ast.Expr) or not isinstance(call.func, ast.Attribute):
        return ()
    owner = operand(program, call.func.value)
    names = ", ".join(f"`{each.name}`" for each in lost)
    sets = [f'    group["{each.name}"] = {_text(story, each, statement)}' for each in lost]
    edits = program.insert_after(statement, f"for group in {owner}.param_groups:", *sets)
    title = T(en=f"Set {names} again after the loading", zh=f"在加载之后重新设置 {names}")
    return unique(program.text, [Fix(title, edits, meaning="later")])


def _text(story: Story, restored: Restored, statement: ast.stmt) -> str:
    """The source of an option if it is a constant, or a name in the same function as ``statement``; else its value as
    text.
    """
    written, made = _written(story, restored), call_of(story, story.trace.optimizers[restored.optimizer].span)
    here = made is not None and story.program.function(made) is story.program.function(statement)
    if isinstance(written, ast.Constant) or (isinstance(written, ast.Name) and here):
        return story.program.segment(written)
    return repr(restored.given)


RULE = Rule(
    code="PL686",
    name="option-replaced-by-loading",
    severity="warning",
    title=T(
        en="A loaded state replaced the learning rate that an optimizer was made with",
        zh="加载的状态取代了创建优化器时给出的学习率",
    ),
    what=T(
        en="A program makes a new optimizer with a learning rate for its next training and then loads the state of an "
        "earlier one into it. The state has the earlier learning rate, which a schedule may have brought down to "
        "almost nothing, and the new one is gone. Set the learning rate after the loading.",
        zh="程序为下一次训练创建了一个带新学习率的优化器，随后把先前优化器的状态加载进去。状态里带有先前的学习率，它可"
        "能已被调度降到几乎为零，而新的学习率就此丢失。请在加载之后设置学习率。",
    ),
    why=T(
        en="`opt.state_dict()` has two parts: `state`, the averages of each parameter, and `param_groups`, the options "
        "of each group. `load_state_dict` puts both in the place of the optimizer's own, so that a training that was "
        "interrupted goes on exactly as it was. Options given to the constructor count only until then, and nothing is "
        "said about those that differ.",
        zh="`opt.state_dict()` 有两部分：`state` 是每个参数的平均值，`param_groups` 是各组的选项。`load_state_dict` 用"
        "它们取代优化器自己的两部分，使中断的训练能原样继续。给构造函数的选项只在此之前有效，而两者不同时不会有任何提"
        "示。",
    ),
    bad="""import torch

w = torch.tensor([4.0, -2.0], requires_grad=True)
first = torch.optim.SGD([w], lr=0.2, momentum=0.5)
decay = torch.optim.lr_scheduler.ExponentialLR(first, 0.3)
for step in range(8):
    loss = (w - 1).square().sum()
    first.zero_grad()
    loss.backward()
    first.step()
    decay.step()

opt = torch.optim.SGD([w], lr=0.05, momentum=0.5)  # made
opt.load_state_dict(first.state_dict())  # PL686
for step in range(20):
    loss = (w + 3).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(w, opt.param_groups[0]["lr"])
""",
    good="""import torch

w = torch.tensor([4.0, -2.0], requires_grad=True)
first = torch.optim.SGD([w], lr=0.2, momentum=0.5)
decay = torch.optim.lr_scheduler.ExponentialLR(first, 0.3)
for step in range(8):
    loss = (w - 1).square().sum()
    first.zero_grad()
    loss.backward()
    first.step()
    decay.step()

opt = torch.optim.SGD([w], lr=0.05, momentum=0.5)
opt.load_state_dict(first.state_dict())
for group in opt.param_groups:
    group["lr"] = 0.05
for step in range(20):
    loss = (w + 3).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(w, opt.param_groups[0]["lr"])
""",
    find=find,
    traps=(
        Trap(
            "opt.load_state_dict(first.state_dict())",
            'opt.defaults["lr"] = 0.05\nopt.load_state_dict(first.state_dict())',
            T(
                en="The defaults are read when a group is added; a step reads the group's own rate.",
                zh="默认值只在添加参数组时读取；每一步读取的是参数组自己的学习率。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html",),
)
