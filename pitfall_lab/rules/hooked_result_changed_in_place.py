"""PL345: a forward hook kept the result of a layer, and the next layer changed it in place."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.kit.wording import at_line, capital, numbers
from pitfall_lab.rules.kit.writing_repairs import flags
from pitfall_lab.rules.signals.operand_names import all_written_as
from pitfall_lab.rules.signals.shared_memory import changed_numbers
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LAYERS = (
    operations_that("dropout")
    | {"celu", "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu", "relu6", "rrelu", "selu",
       "silu", "threshold"}
)  # fmt: skip
"""Functions that have an ``inplace`` argument."""
NEVER_NEGATIVE = (
    spellings("abs")
    | spellings("relu", "sigmoid", in_place=True)
    | {"dropout", "exp", "max_pool2d", "relu6", "softmax", "softplus", "square"}
)
"""Calls whose results ``relu`` does not change."""
Variable = tuple[str, ast.AST | None]
ROUNDS = 8
"""The largest number of calls of one line that are looked at."""


@dataclass(frozen=True, slots=True)
class HookedResultChangedInPlace:
    """``write`` is the call (``Event``) that changed in place a result that a forward hook stores in a container by the
    statement ``hook``.

    ``read`` is the first later call on another line that reads the result from the container, and ``name`` the
    expression by which it does.
    """

    write: Event
    hook: ast.stmt
    name: str
    read: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a forward hook that stores a layer's result in a container, if the next layer
    changes the result in place and a later call reads it from the container.
    """
    hooks = list(_hooks(story)) if story.program.tree is not None else []
    looked = Counter[object]()
    reported = set()
    for event in story.calls(*LAYERS) if hooks else ():
        place = story.span(event.step)
        looked[place] += 1
        if looked[place] <= ROUNDS and _writes_over_its_input(story, event):
            found = _kept(story, event, hooks)
            if found is not None and found.hook not in reported:
                reported.add(found.hook)
                yield _finding(story, found)


def _writes_over_its_input(story: Story, event: Event) -> bool:
    """Whether the call returned its input after changing numbers in it; unknown numbers count as changed, unless the
    call is ``relu`` and a call of :data:`NEVER_NEGATIVE` had computed them.
    """
    label = event.operands[0].label if event.operands else None
    if event.error is not None or label is None or event.results != (label,) or not event.writes:
        return False
    record = story.tensor(label, event.step) or {}
    maker = story.event(record.get("born"))
    if event.name == "relu" and maker is not None and maker.name in NEVER_NEGATIVE:
        return False
    return record.get("storage") in event.writes and changed_numbers(story, str(record.get("storage")), event.step)


def _kept(story: Story, write: Event, hooks: list[tuple[ast.stmt, Variable]]) -> HookedResultChangedInPlace | None:
    """Return the data of the finding for the first call on another line that reads the changed tensor from a hook's
    container; None if there is none.
    """
    label = write.operands[0].label
    for use in story.uses(label):
        if (
            use.step <= write.step
            or use.error is not None
            or not use.results
            or story.span(use.step) == story.span(write.step)
        ):
            continue
        for expression in all_written_as(story, use, label):
            roots = _roots(story, expression)
            hook = next((line for line, container in hooks if container in roots), None)
            if hook is not None:
                return HookedResultChangedInPlace(write, hook, story.program.segment(expression), use)
    return None


def _hooks(story: Story) -> Iterator[tuple[ast.stmt, Variable]]:
    """Yield the statements of forward hooks that store a module's result without a copy, each with the container.

    Only for hooks whose modules the program shows, if none of these is a layer that may itself work in place.
    """
    program = story.program
    for call in (
        n for n in program.nodes if isinstance(n, ast.Call) and called(n) == "register_forward_hook" and n.args
    ):
        kinds = {called(each).lower() for each in _modules(story, call) if isinstance(each, ast.Call)}
        if not kinds or kinds & {name.replace("_", "") for name in LAYERS}:
            continue
        for function in _functions(story, call.args[0]):
            result = function.args.args[-1].arg if len(function.args.args) > 2 else None
            for node in ast.walk(function):
                kept = _container(node, result)
                if kept is not None and (statement := program.statement(node)) is not None:
                    yield from ((statement, each) for each in _variables(story, kept))


def _modules(story: Story, registration: ast.Call) -> Iterator[ast.expr]:
    """Yield the expressions that created the module on which a hook is registered: ``nn.Conv2d(…)`` for ``net[0]``,
    ``self.first`` or ``net.get_submodule("0")``; nothing if one of several names is not resolved.
    """
    program, function = story.program, registration.func
    receiver = function.value if isinstance(function, ast.Attribute) else None
    if (named := _named(story, receiver)) is not None:
        yield from named
    elif (
        isinstance(receiver, ast.Subscript)
        and isinstance(receiver.slice, ast.Constant)
        and isinstance(receiver.slice.value, int)
    ):
        yield from _entries(story, receiver.value, receiver.slice.value)
    elif isinstance(receiver, ast.Name):
        yield from _tested(story, receiver, registration)
        for made in origins(program, receiver):
            named = _named(story, made)
            yield from named if named is not None else [made] if isinstance(made, ast.Call) else []
    elif isinstance(receiver, ast.Attribute):
        for node in (n for n in program.nodes if isinstance(n, ast.Assign)):
            if any(isinstance(t, ast.Attribute) and t.attr == receiver.attr for t in node.targets):
                yield node.value


def _named(story: Story, node: ast.expr | None) -> list[ast.expr] | None:
    """Return the expressions that created the modules which ``model.get_submodule(name)`` or
    ``dict(model.named_modules())[name]`` may be; empty if one of them is not known, None if ``node`` is no such
    look-up.
    """
    model: ast.expr | None = None
    if isinstance(node, ast.Call) and called(node) == "get_submodule" and isinstance(node.func, ast.Attribute):
        model, name = node.func.value, next(iter(node.args), None)
    elif isinstance(node, ast.Subscript):
        model, name = _named_modules(story, node.value), node.slice
    if model is None:
        return None
    names = list(_texts(story, name))
    found = [next(_submodules(story, model, each.split(".")), None) if each else None for each in names]
    return [each for each in found if each is not None] if None not in found else []


def _named_modules(story: Story, table: ast.expr) -> ast.expr | None:
    """Return the expression ``model`` of ``dict(model.named_modules())``, also with ``named_children``; None for
    another expression.
    """
    for made in origins(story.program, table):
        inner = made.args[0] if isinstance(made, ast.Call) and called(made) == "dict" and made.args else None
        if isinstance(inner, ast.Call) and called(inner) in ("named_modules", "named_children"):
            return inner.func.value if isinstance(inner.func, ast.Attribute) else None
    return None


def _texts(story: Story, node: ast.expr | None) -> Iterator[str]:
    """Yield the strings that an expression may be: a literal, or the literals of the loop whose variable it is; an
    empty string for each possible value that is not known.
    """
    for made in origins(story.program, node):
        if isinstance(made, ast.Constant):
            yield made.value if isinstance(made.value, str) else ""
            continue
        looped = _iterated(story, made) if isinstance(made, ast.Name) else []
        for each in (each for iterable in looped for each in origins(story.program, iterable)):
            several = each.elts if isinstance(each, ast.List | ast.Tuple | ast.Set) else []
            several = [key for key in each.keys if key] if isinstance(each, ast.Dict) else several
            yield from (
                one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else "" for one in several
            )
            if not several:
                yield ""
        if not looped:
            yield ""


def _submodules(story: Story, model: ast.expr, path: list[str]) -> Iterator[ast.expr]:
    """Yield the expressions that created the submodule with the names ``path`` in ``model``; nothing if the program
    does not show them.
    """
    program = story.program
    if not path:
        yield from (made for made in origins(program, model) if isinstance(made, ast.Call))
        return
    parts = list(_entries(story, model, int(path[0]))) if path[0].isdigit() else []
    kinds = {called(made) for made in origins(program, model) if isinstance(made, ast.Call)}
    if isinstance(model, ast.Name) and model.id == "self":
        kinds |= {each.name for each in program.ancestors(model) if isinstance(each, ast.ClassDef)}
    for node in (n for n in program.nodes if isinstance(n, ast.Assign)):
        owner = next((each for each in program.ancestors(node) if isinstance(each, ast.ClassDef)), None)
        if owner is not None and owner.name in kinds:
            parts += _given_to(node, path[0])
    for part in parts:
        yield from _submodules(story, part, path[1:])


def _given_to(node: ast.Assign, name: str) -> list[ast.expr]:
    """Return the values that an assignment gives to an attribute ``name`` of any object; empty if there are none."""
    found = []
    for target in node.targets:
        both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        pairs = (
            zip(target.elts, node.value.elts, strict=False)  # type: ignore[attr-defined]
            if both
            else [(target, node.value)]
        )
        found += [value for one, value in pairs if isinstance(one, ast.Attribute) and one.attr == name]
    return found


def _entries(story: Story, container: ast.expr, index: int) -> Iterator[ast.expr]:
    """Yield the expression of the module at ``index`` of an ``nn.Sequential(…)`` or ``nn.ModuleList([…])``; nothing if
    the program does not show it.
    """
    for made in origins(story.program, container):
        if isinstance(made, ast.Call) and called(made) in ("Sequential", "ModuleList"):
            layers = made.args[0].elts if made.args and isinstance(made.args[0], ast.List) else made.args
            if -len(layers) <= index < len(layers) and not any(isinstance(each, ast.Starred) for each in layers):
                yield layers[index]


def _tested(story: Story, name: ast.Name, registration: ast.Call) -> Iterator[ast.expr]:
    """Yield, for each class with which an ``isinstance`` call in the function that registers the hook tests the
    variable, a call of that class.
    """
    program = story.program
    for test in (
        n for n in program.nodes if isinstance(n, ast.Call) and called(n) == "isinstance" and len(n.args) == 2
    ):
        tested, kinds = test.args
        if (
            isinstance(tested, ast.Name)
            and tested.id == name.id
            and program.function(test) is program.function(registration)
        ):
            yield from (ast.Call(kind, [], []) for kind in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]))


def _functions(story: Story, given: ast.expr) -> Iterator[ast.FunctionDef]:
    """Yield the functions of the program that the argument ``given`` may be: by name or, if ``given`` is a call, those
    defined in the called function.
    """
    program = story.program
    made = called(given) if isinstance(given, ast.Call) else None
    wanted = given.id if isinstance(given, ast.Name) else given.attr if isinstance(given, ast.Attribute) else None
    visible = {None, *(f for f in program.ancestors(given) if isinstance(f, ast.FunctionDef))}
    for node in (n for n in program.nodes if isinstance(n, ast.FunctionDef)):
        around = program.parents.get(node)
        if (
            made is not None
            and isinstance(around, ast.FunctionDef)
            and around.name == made
            and program.function(around) in visible
        ) or (
            made is None
            and node.name == wanted
            and (isinstance(given, ast.Attribute) or program.function(node) in visible)
        ):
            yield node


def _container(node: ast.AST, result: str | None) -> ast.expr | None:
    """Return the container in which a node stores the variable ``result`` itself, by assignment or ``append``; None if
    it does something else.
    """
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == result:
        target = node.targets[0]
        return (
            target.value if isinstance(target, ast.Subscript) else target if isinstance(target, ast.Attribute) else None
        )
    if (
        isinstance(node, ast.Call)
        and called(node) == "append"
        and isinstance(node.func, ast.Attribute)
        and len(node.args) == 1
    ):
        return node.func.value if isinstance(node.args[0], ast.Name) and node.args[0].id == result else None
    return None


def _variable(story: Story, node: ast.expr) -> Variable:
    """Return the source text of a container with the function whose variable it is (None at the top level); for an
    attribute, ``.name`` and None.
    """
    if isinstance(node, ast.Attribute):
        return f".{node.attr}", None
    functions = [f for f in story.program.ancestors(node) if isinstance(f, ast.FunctionDef)]
    text = story.program.segment(node)
    stores = (
        n for n in story.program.nodes if isinstance(n, ast.Name) and n.id == text and isinstance(n.ctx, ast.Store)
    )
    owners = {story.program.function(n) for n in stores}
    return text, next((f for f in functions if f in owners), None)


def _variables(story: Story, node: ast.expr) -> Iterator[Variable]:
    """Yield the container as :func:`_variable` returns it, and, for a variable, each display ``{}`` or ``[]`` that it
    may be, perhaps returned by a function of the program.
    """
    yield _variable(story, node)
    if isinstance(node, ast.Name):
        yield from (("", made) for made in origins(story.program, node) if isinstance(made, ast.Dict | ast.List))


def _roots(story: Story, expression: ast.expr) -> set[Variable]:
    """Return the variables of ``expression`` and of the containers that it reads an entry of, also by the variable of a
    loop over them or over a ``zip``.
    """
    found = set[Variable]()
    pending, deep = [expression], 0
    while pending and (deep := deep + 1) < 20:
        here = pending.pop()
        found.update(_variables(story, here))
        if isinstance(here, ast.Subscript | ast.Attribute):
            pending.append(here.value)
        elif (
            isinstance(here, ast.Call)
            and isinstance(here.func, ast.Attribute)
            and here.func.attr in ("items", "values")
        ):
            pending.append(here.func.value)
        elif isinstance(here, ast.Name):
            pending += _iterated(story, here)
    return found


def _iterated(story: Story, name: ast.Name) -> list[ast.expr]:
    """Return a list with the iterable of the loop around ``name`` whose variable it is; empty if there is no such
    loop.
    """
    for around in story.program.ancestors(name):
        loops: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(around, ast.For):
            loops = [(around.target, around.iter)]
        elif isinstance(around, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            loops = [(each.target, each.iter) for each in around.generators]
        for target, iterable in loops:
            names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
            if name.id in names:
                if isinstance(iterable, ast.Call) and called(iterable) == "zip" and len(iterable.args) == len(names):
                    return [iterable.args[names.index(name.id)]]
                return [iterable]
    return []


def _finding(story: Story, found: HookedResultChangedInPlace) -> Finding:
    write, span = found.write, story.span(found.write.step)
    record = story.tensor(write.operands[0].label, write.step) or {}
    storage = record.get("storage")
    before, after = ((story.record("storages", storage, at) or {}).get("cells") for at in (write.step - 1, write.step))
    here, there, line = (
        at_line(story, each) for each in (span, story.span(found.read.step), story.program.place(found.hook))
    )
    shown = T(
        en=f" Its memory goes from {numbers(before)} to {numbers(after)}."
        if before is not None and after is not None
        else "",
        zh=f"它的内存从 {numbers(before)} 变成 {numbers(after)}。" if before is not None and after is not None else "",
    )
    return RULE.finding(
        span,
        write.step,
        T(
            en=f"{capital(here.en)} runs `{write.name}` in place on the very result that the hook on {line.en} keeps: "
            f"{there.en} uses the changed numbers.",
            zh=f"{here.zh}就地运行 `{write.name}`，改变的正是{line.zh}的钩子保存的结果：{there.zh}用到的是改变后的数。",
        ),
        T(
            en="A hook is given the layer's result itself, not a copy. The next layer has `inplace=True` and writes "
            f"over it.{shown.en} The gradient is right for what was computed, so nothing is raised.",
            zh=f"钩子得到的是该层的结果本身，而不是副本。下一层带有 `inplace=True`，把自己的结果写在上面。{shown.zh}对"
            "于实际算出的东西，梯度是正确的，所以不会报错。",
        ),
        related=[
            Related(
                "kept",
                story.program.place(found.hook),
                max(0, write.step - 1),
                T(en="the hook keeps it here", zh="钩子在这里保存它"),
            ),
            story.related("changed", write.step, T(en="its memory is written here", zh="它的内存在这里被写入")),
            story.related(
                "read", found.read.step, T(en=f"`{found.name}` is used here", zh=f"`{found.name}` 在这里被使用")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("storage", storage, story.by(write.step))],
    )


def _fixes(story: Story, found: HookedResultChangedInPlace) -> tuple[Fix, ...]:
    """Fixes by which the hook stores a copy of its last argument, or by which the layer creates a new tensor (without
    ``inplace=True``, for example).
    """
    program = story.program
    made: list[Fix] = []
    for value in ast.walk(found.hook):
        function = program.function(value)
        if (
            isinstance(value, ast.Name)
            and isinstance(function, ast.FunctionDef)
            and value.id == function.args.args[-1].arg
        ):
            new = f"{value.id}.clone()"
            made.append(
                Fix(
                    T(en=f"Keep a copy: `{new}`", zh=f"保留副本：`{new}`"),
                    program.replace((value, new)),
                    meaning="later",
                )
            )
    node = program.at(story.span(found.write.step))
    dropped = (fix for fix in flags(program, node, found.write) if fix is not None) if node is not None else ()
    made += [Fix(fix.title, fix.edits, meaning="later") for fix in dropped]
    return unique(program.text, made)


RULE = Rule(
    code="PL345",
    name="hooked-result-changed-in-place",
    severity="warning",
    title=T(en="A hook keeps a result that the next layer overwrites", zh="钩子保存的结果被下一层覆盖"),
    what=T(
        en="A program reads features out of a network: a forward hook keeps the result of each convolution. The next "
        "layer is `nn.ReLU(inplace=True)` and writes over that result, so what was kept are the features after the "
        "activation. Keep a copy.",
        zh="程序要从网络中取出特征：用前向钩子保存每个卷积的结果。下一层是 `nn.ReLU(inplace=True)`，它写在这个结果上，"
        "所以保存下来的是激活之后的特征。请保留一份副本。",
    ),
    why=T(
        en="The argument of a hook, an entry of a dictionary and the input of the next layer are one tensor; none of "
        "them copies numbers. A layer with `inplace=True` writes over its input to save memory, and every reference "
        "then shows the new numbers. Autograd raises only where a backward needs the old ones, and the output of a "
        "convolution is not needed.",
        zh="钩子的参数、字典中的一项和下一层的输入是同一个张量，没有一个会复制其中的数。带 `inplace=True` 的层为了节省"
        "内存写在输入上，此后所有引用看到的都是新的数。只有反向传播需要旧的数时自动求导才报错，而卷积的输出并不需要。",
    ),
    advice=T(
        en="keep a copy on {kept}: `.clone()`.",
        zh="在{kept}保留副本：`.clone()`。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
features = []


def keep(module, inputs, output):
    features.append(output)  # kept


net[0].register_forward_hook(keep)
out = net(torch.ones(4, 2))  # PL345 changed
loss = out.mean() + features[0].square().mean()  # read
loss.backward()
print(net[0].bias.grad)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
features = []


def keep(module, inputs, output):
    features.append(output.clone())


net[0].register_forward_hook(keep)
out = net(torch.ones(4, 2))
loss = out.mean() + features[0].square().mean()
loss.backward()
print(net[0].bias.grad)
""",
    find=find,
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook",),
)
