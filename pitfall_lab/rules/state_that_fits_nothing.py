"""PL627: load_state_dict with strict=False found no key of the module in the state, or few of many that
differ by their names alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import flat_targets, is_entry, is_name, is_true, operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import Loading, T

PREFIXES = ("module.", "_orig_mod.", "model.")
"""What wrappers (DataParallel, torch.compile, a class around the module) put before the names of parameters."""


SHOWN = 3
FEWEST = 3
"""So many parameters with a counterpart of the same shape under another name are no chance."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``load_state_dict`` of which (almost) nothing went into the parameters, because the
    names differ, if any call follows it.

    Only with a written ``strict`` that is not ``True``; not if another line loads the same module, unless most of the
    parameters have their counterparts under other names.
    """
    reported = set()
    for number, loading in enumerate(story.trace.beside.loadings):
        call = call_of(story, loading.span)
        if call is None or call in reported or not loading.parameters or not _is_lenient(call):
            continue
        if _loaded(story, number, call) and not _mostly_apart(loading):
            continue
        if any(event.step >= loading.step for event in story.calls()):
            reported.add(call)
            yield _finding(story, loading, call)


def _mostly_apart(loading: Loading) -> bool:
    """Whether at least ``FEWEST`` parameters were not loaded although a tensor of the same shape has another name in
    the state, and these are more than half of all parameters and more than were loaded.
    """
    return (
        len(loading.apart) >= FEWEST
        and 2 * len(loading.apart) > loading.parameters
        and len(loading.apart) > loading.fit
    )


def _is_lenient(call: ast.Call) -> bool:
    """Whether ``strict`` is given and not as ``True``, so that keys that do not fit raise no error, and ``assign`` is
    not given.
    """
    given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "strict")]
    assigns = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "assign")]
    return bool(given) and not is_true(given[0]) and not assigns


def _loaded(story: Story, number: int, call: ast.Call) -> bool:
    """Whether this call wrote a parameter, or another call loads the same module again."""
    loadings = story.trace.beside.loadings
    this, place = loadings[number], story.program.place(call)
    until = next((each.step for each in loadings[number + 1 :] if each.span == this.span), len(story.events))
    copied = any(event.span == place for event in story.calls("copy_") if this.step <= event.step < until)
    return copied or any(set(each.holds) & set(this.holds) for each in loadings if each.span != this.span)


def _finding(story: Story, loading: Loading, call: ast.Call) -> Finding:
    program = story.program
    place = program.place(call)
    here = at_line(story, place)
    name = program.segment(call.func.value) if isinstance(call.func, ast.Attribute) else loading.module
    if loading.apart:
        return _in_part(story, loading, call, name)
    return RULE.finding(
        place,
        loading.step,
        T(
            en=f"{capital(here.en)} loads nothing: none of the {loading.parameters} parameters of `{name}` was found "
            "in the state, and with `strict=False` that is no error.",
            zh=f"{here.zh}什么也没有加载：`{name}` 的 {loading.parameters} 个参数在状态里一个也没有找到，而有了 "
            "`strict=False`，这不算错误。",
        ),
        T(
            en="A state is a dictionary from names to tensors, and a name must be the same, letter by letter. "
            "What a wrapper saved has a prefix (`module.`, `_orig_mod.`). The parameters keep the random numbers "
            "that they were made with.",
            zh="状态是从名字到张量的字典，名字必须逐字相同。包装过的模型保存的名字带有前缀（`module.`、"
            "`_orig_mod.`）。这里的参数仍是创建时的随机数。",
        ),
        related=[],
        fixes=_fixes(story, call, PREFIXES),
        facts=[Fact("parameters", loading.parameters)],
    )


def _in_part(story: Story, loading: Loading, call: ast.Call, name: str) -> Finding:
    """The finding about a state of which a few names fit, and many others would with other names."""
    place = story.program.place(call)
    here = at_line(story, place)
    shown = (
        ", ".join(f"`{own}`" for own, _ in loading.apart[:SHOWN]),
        ", ".join(f"`{other}`" for _, other in loading.apart[:SHOWN]),
    )
    return RULE.finding(
        place,
        loading.step,
        T(
            en=f"{capital(here.en)} loads {loading.fit} of the {loading.parameters} parameters of `{name}`: "
            f"{len(loading.apart)} others have another name in the state, and with `strict=False` that is no error.",
            zh=f"{here.zh}只加载了 `{name}` 的 {loading.parameters} 个参数中的 {loading.fit} 个：另有 "
            f"{len(loading.apart)} 个在状态里叫别的名字，而有了 `strict=False`，这不算错误。",
        ),
        T(
            en=f"The module has {shown[0]}, the state has {shown[1]}, of the same shapes. A name must be the same, "
            "letter by letter. These parameters keep the random numbers that they were made with.",
            zh=f"模块里有 {shown[0]}，状态里有 {shown[1]}，形状相同。名字必须逐字相同。这些参数仍是创建时的随机数。",
        ),
        related=[],
        fixes=_fixes(story, call, _prefixes(loading), strict=loading.fit == 0),
        facts=[Fact("parameters", loading.parameters), Fact("fit", loading.fit)],
    )


def _prefixes(loading: Loading) -> tuple[str, ...]:
    """The prefix that the names in the state have before those of the module, in a tuple; empty if it is not the same
    for all parameters that are found under another name.
    """
    found = {other.removesuffix(own) if other.endswith(own) else "" for own, other in loading.apart}
    return tuple(found) if len(found) == 1 and "" not in found else ()


def _fixes(story: Story, call: ast.Call, prefixes: tuple[str, ...], *, strict: bool = True) -> tuple[Fix, ...]:
    """Fixes that load the names without the prefix that a wrapper put before them.

    If ``strict`` was given by name, the first fixes also set it to True and those that keep it follow; if it is False
    here, where some names fit already, they all keep it. Empty if the state is no plain name.
    """
    program, state = story.program, call.args[0] if call.args else None
    words = [k for k in call.keywords if k.arg == "strict"] if strict else []
    if state is None or not (is_name(state) or is_entry(state)):
        return ()
    text = operand(program, state)

    def without(start: str, some: str = "") -> str:
        return f'{{name.removeprefix("{start}"): value for name, value in {text}.items(){some}}}'

    bare = [(_bare(prefix), without(prefix)) for prefix in prefixes]
    candidates = [(title, new, words) for title, new in bare]
    if strict and prefixes:
        for part in _parts(program, call):
            title = T(en=f"Take the names of the part `{part}`", zh=f"取部件 `{part}` 的名字")
            candidates.append((title, without(f"{part}.", f' if name.startswith("{part}.")'), words))
    if words:  # what the state was saved without, a head perhaps, is no error then
        candidates += [(title, new, []) for title, new in bare]
    return unique(
        program.text,
        [
            Fix(title, program.replace((state, new), *((k.value, "True") for k in exact)), meaning="later")
            for title, new, exact in candidates
        ],
    )


def _bare(prefix: str) -> T:
    return T(en=f"Take the prefix `{prefix}` off the names", zh=f"去掉名字的前缀 `{prefix}`")


def _parts(program: Program, call: ast.Call) -> list[str]:
    """The attributes that modules of the program set, at most ``SHOWN``; those named like the loaded module first."""
    names = dict.fromkeys(
        target.attr
        for node in program.nodes
        if isinstance(node, ast.Assign)
        for target in flat_targets(node.targets[0])
        if isinstance(target, ast.Attribute) and is_name(target.value) and program.segment(target.value) == "self"
    )
    own = program.segment(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return sorted(names, key=lambda each: each not in own)[:SHOWN]


RULE = Rule(
    code="PL627",
    name="state-that-fits-nothing",
    severity="warning",
    title=T(en="A loaded state had no name in common with the module", zh="加载的状态与模块没有一个相同的名字"),
    what=T(
        en="A program loads saved weights with `strict=False`, and not one name of the saved weights fits. Nothing is "
        "loaded and nothing is said: the model keeps the random numbers that it was made with.",
        zh="程序用 `strict=False` 加载保存的权重，而这些权重的名字一个也对不上。什么都没有加载，也没有任何提示：模"
        "型仍是创建时的随机数。",
    ),
    why=T(
        en="`load_state_dict` looks up each parameter of the module by its name and copies what it finds. "
        "`strict=False` turns the error about names that are missing or left over into a return value, `missing_keys` "
        "and `unexpected_keys`, which hardly any program reads. It is meant for states that fit in part, such as a "
        "backbone without its head.",
        zh="`load_state_dict` 按名字查找模块的每个参数，找到就复制。`strict=False` 把“缺少或多出的名字”从错误变成"
        "返回值 `missing_keys` 和 `unexpected_keys`，而几乎没有程序去读它。它是为只有一部分相符的状态准备的，例如"
        "不带头部的骨干网络。",
    ),
    advice=T(
        en="compare the names in the state with the model's own, which {line} lists without `strict=False`, and "
        "take the prefix off.",
        zh="把状态里的名称与模型自己的名称对照（{line}去掉 `strict=False` 就会列出），并去掉前缀。",
    ),
    bad="""import torch

torch.manual_seed(0)
trained = torch.nn.DataParallel(torch.nn.Linear(2, 1))
state = trained.state_dict()
model = torch.nn.Linear(2, 1)
model.load_state_dict(state, strict=False)  # PL627
x = torch.ones(1, 2)
with torch.no_grad():
    print(model(x), trained.module(x))
""",
    good="""import torch

torch.manual_seed(0)
trained = torch.nn.DataParallel(torch.nn.Linear(2, 1))
state = trained.state_dict()
model = torch.nn.Linear(2, 1)
model.load_state_dict({name.removeprefix("module."): value for name, value in state.items()}, strict=True)
x = torch.ones(1, 2)
with torch.no_grad():
    print(model(x), trained.module(x))
""",
    find=find,
    traps=(
        Trap(
            "state = trained.state_dict()\n",
            "state = {name: value.clone() for name, value in trained.state_dict().items()}\n",
            T(
                en="Copies of the numbers have the same names, which still do not fit.",
                zh="数值的副本名字不变，仍然对不上。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict",),
)
