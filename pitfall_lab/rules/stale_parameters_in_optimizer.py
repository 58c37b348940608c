"""PL606: parameters were replaced after the optimizer had been given the old ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import Loop
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.optimizer_steps import Replaced, replaced
from pitfall_lab.trace import T

SETTERS = {"setattr", "__setattr__", "register_parameter", "register_module", "add_module"}
"""Calls that give an attribute of an object, named in a text, a value."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of the program that made parameters which get gradients and are never updated,
    because the optimizer holds the parameters that they replaced.

    Of several parameters of one line the first is reported.
    """
    if story.program.tree is None:
        return
    reported: set[object] = set()
    for found in replaced(story):
        statements = made_by(story, found.new)
        optimizer = story.program.statement_at(found.made.span)
        again = next(
            (s for s in statements if isinstance(optimizer, ast.Assign) and _replaces(story.program, s, optimizer)),
            None,
        )
        statement = again or next(iter(statements), None)
        place = (statement, found.made.span)
        if statement is not None and place not in reported and story.program.place(statement) not in reported:
            reported |= {place, story.program.place(statement)}
            behind = again or _behind(story.program, statements, optimizer)
            known = optimizer if behind is not None and isinstance(optimizer, ast.Assign) else None
            yield _finding(story, found, statement, known)


def _behind(program: Program, statements: list[ast.stmt], optimizer: ast.stmt | None) -> ast.stmt | None:
    """The statement below ``optimizer`` in its block that makes the new parameters, or calls what makes them; None if
    there is none.
    """
    if optimizer is None:
        return None
    block = program.block(optimizer)
    around = (each for s in statements for each in (s, *program.ancestors(s)) if isinstance(each, ast.stmt))
    return next((s for s in around if s in block and block.index(s) > block.index(optimizer)), None)


def made_by(story: Story, label: str) -> list[ast.stmt]:
    """Return the statements that created the parameter ``label``: those that assign an ``nn.Parameter(…)`` to its name,
    then the statement that created its storage and the calls around that, innermost first.
    """
    storage = (story.tensor(label) or {}).get("storage")
    born = min((r["born"] for _, r in story.tensors_on(storage) if r.get("born") is not None), default=None)
    named = (n for n in story.program.nodes if isinstance(n, ast.stmt) and _is_parameter(n) and _names(story, n, label))
    return [*named, *call_chain(story, story.line_event(born))]  # `nn.Parameter(…)` is first seen where it is used


def _bound(program: Program, statement: ast.stmt) -> tuple[list[str], ast.expr | None]:
    """The targets of an assignment and its value: ``net.w`` for ``net.w = …`` and for ``setattr(net, "w", …)``.

    A computed name in ``setattr`` gives ``net.``. For another statement no targets, and None.
    """
    if isinstance(statement, ast.Assign):
        return [
            program.segment(t) for t in statement.targets if isinstance(t, (ast.Name, ast.Attribute, ast.Subscript))
        ], statement.value
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or call_name(call) not in SETTERS or call.keywords:
        return [], None
    given = [*([call.func.value] if isinstance(call.func, ast.Attribute) else []), *call.args]
    if len(given) != 3:
        return [], None
    owner, name, value = given
    return [
        (
            f"{program.segment(owner)}."
            f"{name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ''}"
        )
    ], value


def _is_parameter(statement: ast.stmt) -> bool:
    """Whether the statement binds a new ``nn.Parameter(…)``."""
    value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    made = [value, *(value.args if isinstance(value, ast.Call) and call_name(value) in SETTERS else ())]
    return any(isinstance(each, ast.Call) and call_name(each) == "Parameter" for each in made)


def _names(story: Story, statement: ast.stmt, label: str) -> bool:
    name, targets = story.name(label, None) or "", _bound(story.program, statement)[0]
    own = any(
        target.startswith("self.") and name.endswith(target.removeprefix("self")) for target in targets
    )  # `self` has a name outside
    return own or any(name == target or (target.endswith(".") and name.startswith(target)) for target in targets)


def _given(program: Program, optimizer: ast.Assign) -> set[str]:
    """What an optimizer was made from: ``model`` of ``model.parameters()``, ``w`` of ``[w]``."""
    names: set[str] = set()
    first = optimizer.value.args[:1] if isinstance(optimizer.value, ast.Call) else []
    for node in (n for arg in first for n in ast.walk(arg)):
        if (
            isinstance(node, ast.Call)
            and call_name(node) in ("parameters", "named_parameters")
            and isinstance(node.func, ast.Attribute)
        ):
            names.add(program.segment(node.func.value))
        elif isinstance(node, (ast.List, ast.Tuple)):
            names |= {program.segment(e) for e in node.elts if isinstance(e, (ast.Name, ast.Attribute))}
    return names


def _replaces(program: Program, statement: ast.stmt, optimizer: ast.Assign) -> bool:
    """Whether ``statement`` assigns a new value to a name that ``optimizer`` was made from, later in the
    same block or in a loop there.
    """
    targets, _ = _bound(program, statement)
    loops = [a for a in program.ancestors(statement) if isinstance(a, Loop)]
    blocks = [
        program.block(each) for each in (statement, *loops)
    ]  # replaced once, or in every round of a loop behind the optimizer
    if not any(
        t == name or t.startswith((f"{name}.", f"{name}[")) for t in targets for name in _given(program, optimizer)
    ):
        return False
    return optimizer.lineno <= statement.lineno and any(program.block(optimizer) is block for block in blocks)


def _finding(story: Story, found: Replaced, statement: ast.stmt, optimizer: ast.Assign | None) -> Finding:
    program, label, added = story.program, found.new, found.added
    born, made = (story.tensor(label) or {}).get("born"), story.program.statement_at(found.made.span)
    name = called(story, label, None, added.step)
    place, kept = program.place(statement), program.place(made) if made is not None else found.made.span
    here, before = at_line(story, place), at_line(story, kept)
    held = program.segment(made.targets[0]) if isinstance(made, ast.Assign) else found.made.optimizer
    return RULE.finding(
        place,
        born,
        T(
            en=f"{capital(here.en)} makes a new {name.en}, but `{held}` was given the old one on {before.en}; "
            "the new never learns.",
            zh=f"{here.zh}新建了 {name.zh}，但 `{held}` 在{before.zh}拿到的是旧的：新的从未被更新。",
        ),
        T(
            en=f"An optimizer keeps the tensors themselves that it is given, not their names. After {here.en} "
            f"the name means another tensor. It gets gradients, but `{held}.step()` still updates the old "
            "one, which is not used any more. Make the optimizer when the model is complete, or write new "
            "values into the tensor that it has.",
            zh=f"优化器保存的是交给它的张量本身，而不是它们的名字。{here.zh}之后，这个名字指的是另一个张量。它有梯"
            f"度，但 `{held}.step()` 看的仍是旧的那个，而它已经没人用了。请在模型完成之后再创建优化器，或者把新值"
            "写进它手里的那个张量。",
        ),
        related=[
            Related(
                "kept",
                kept,
                None,
                T(en="the optimizer keeps the parameters of this moment", zh="优化器保存的是此刻的参数"),
            ),
            Related(
                "made", place, born, T(en="new parameters take their place in the program", zh="程序里换成了新的参数")
            ),
            story.related(
                "gradient",
                added.step,
                T(en="they get gradients, which no update uses", zh="它们得到梯度，却没有更新使用它们"),
            ),
            *_passed_over(story, added.step),
        ],
        fixes=_fixes(program, statement, optimizer) if optimizer is not None else (),
        facts=[Fact("tensor", label, story.by(added.step))],
    )


def _passed_over(story: Story, step: int) -> list[Related]:
    """The first optimizer step after ``step``, as a related line; empty if there is none."""
    text = T(en="this update passes them over", zh="这次更新略过了它们")
    return [
        Related("left out", update.span, update.step, text)
        for update in story.trace.optimizer_steps
        if update.step > step
    ][:1]


def _fixes(program: Program, statement: ast.stmt, optimizer: ast.Assign) -> tuple[Fix, ...]:
    if _is_parameter(statement):
        return unique(program.text, written_instead(program, statement))
    if not program.stands_alone(optimizer):
        return ()
    text, name = program.segment(optimizer), program.segment(optimizer.targets[0])
    title = T(en=f"Make `{name}` after the parameters it is for", zh=f"在参数就绪之后再创建 `{name}`")
    # behind the loop in which the parts are replaced, where it is not the training loop itself
    around = (each for each in program.ancestors(statement) if isinstance(each, ast.stmt))
    loop = next((each for each in around if program.block(each) is program.block(optimizer)), None)
    places = [place for place in (loop, statement) if place is not None]
    moved = [merge(program.delete(optimizer), program.insert_after(place, text)) for place in places]
    again = program.insert_after(statement, text)
    return unique(program.text, [Fix(title, edits, meaning="recompute") for edits in [*moved, again] if edits])


def written_instead(program: Program, statement: ast.stmt) -> list[Fix]:
    """Return fixes that write ``w.copy_(new)`` for ``w = nn.Parameter(new)``, without and with ``no_grad()``: the
    parameter stays the same object.

    Empty for any other statement, or if the name in ``setattr`` is computed.
    """
    targets, value = _bound(program, statement)
    if not _is_parameter(statement) or not isinstance(value, ast.Call) or not value.args or targets[0].endswith("."):
        return []
    target, torch = targets[0], torch_name(program)
    title = T(en=f"Write the new values into `{target}` itself", zh=f"把新值写进 `{target}` 本身")
    text = f"{target}.copy_({program.segment(value.args[0])})"
    changed = [program.replace((statement, text)), program.replace((statement, f"with {torch}.no_grad(): {text}"))]
    return [Fix(title, edits, meaning="recompute") for edits in changed]


RULE = Rule(
    code="PL606",
    name="stale-parameters-in-optimizer",
    severity="warning",
    title=T(en="The optimizer still holds parameters that were replaced", zh="优化器还拿着已被替换的参数"),
    what=T(
        en="A part of a model was replaced after the optimizer had been made, so the new part is never trained. Make "
        "the optimizer when the model is complete.",
        zh="优化器创建之后，模型的一部分被替换了，所以新的部分从未得到训练。请在模型完成之后再创建优化器。",
    ),
    why=T(
        en="`model.parameters()` returns the parameter tensors of this moment, and the optimizer puts them into its "
        "list. Assigning `model.head = nn.Linear(…)` later gives the model other tensors; the list does not change. "
        "`backward()` fills the `.grad` of the new ones, `step()` walks over the old ones, whose `.grad` is `None`, "
        "and leaves them alone. Nothing fails: the rest of the model keeps learning around a part that stays as it "
        "was made. What changes a parameter in place, such as `model.double()` or `load_state_dict()`, keeps the "
        "tensor, and the optimizer with it.",
        zh="`model.parameters()` 给出此刻的参数张量，优化器把它们放进自己的列表。之后赋值 `model.head = nn.Linear(…)` "
        "会让模型用上另外的张量，而列表不变。`backward()` 填的是新参数的 `.grad`，`step()` 走过的是旧参数，它们的 "
        "`.grad` 是 `None`，于是什么也不做。什么都不会报错：模型的其余部分继续学习，而这一部分一直保持刚创建的样子。就"
        "地修改参数的做法，例如 `model.double()` 或 `load_state_dict()`，会保留张量，优化器也就仍然有效。",
    ),
    advice=T(
        en="make the optimizer of {kept} after {made}, when the model is complete.",
        zh="等{made}之后、模型完整时，再创建{kept}的优化器。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)  # kept
model[1] = nn.Linear(3, 1)  # PL606 made
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()  # gradient
    opt.step()
    print(model[1].bias.item())
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
model[1] = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
    print(model[1].bias.item())
""",
    find=find,
    traps=(
        Trap(
            "    opt.zero_grad()\n",
            "    model.zero_grad()\n",
            T(
                en="This clears the gradients of the new part, which pile up otherwise; it is still not trained.",
                zh="这会清掉新部分本来会堆积的梯度；但它仍然没有得到训练。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/optim.html#constructing-it",),
)
