"""PL742: a weight that a module recomputes whenever it is read was written in place, so the write is lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.copies import VIEWING, unread
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet
from pitfall_lab.trace import Event, T

VIEWS = ("detach", "view", "flatten", "t", "transpose", "permute", "select", "narrow", "squeeze", "unsqueeze")
"""Methods whose result is a view of the tensor."""
DEEPEST = 40
"""The largest number of calls between a computed weight and its parameters that are followed."""


@dataclass(frozen=True, slots=True)
class ComputedWeightWritten:
    """A write into a weight that a module computes anew at each use, so that the write is lost.

    ``made`` is the call (``Event``) that had computed the weight from the parameter labelled ``parameter``, ``write``
    the call that changed it in place, ``again`` the call that computed it anew, and ``used`` a call that uses the new
    one.
    """

    made: Event
    write: Event
    again: Event
    used: Event
    parameter: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of the program that writes into a weight which is computed anew each time it is
    used (``weight_norm``, parametrizations, pruning), if nothing reads the written weight before that.

    Whether the parameters that it is computed from are trained or frozen makes no difference. Only in programs that
    finished, and not where the expression around the write uses its result.
    """
    if story.trace.outcome.kind != "finished":
        return
    reported = set()
    for event in story.calls():
        place = story.span(event.step)
        if (
            event.writes
            and event.operands
            and event.parent is None
            and event.error is None
            and place is not None
            and place.source == 0
            and _is_statement(story, event)
        ):
            found = _lost(story, event) if place not in reported else None
            if found is not None:
                reported.add(place)
                yield _finding(story, found)


def _is_statement(story: Story, write: Event) -> bool:
    """Whether the program does nothing with the result of a write but assign it to a variable."""
    program, span = story.program, story.span(write.step)
    statement, node = program.statement_at(span), program.at(span)
    if isinstance(statement, ast.Expr):
        return node in (statement, statement.value)
    if isinstance(statement, ast.Assign):
        targets = (ast.Name, ast.Subscript) if node is statement.value else ast.Subscript
        same = {program.segment(_whole(each)) for each in _written(statement, write)}
        return all(isinstance(each, targets) or program.segment(each) in same for each in statement.targets)
    return isinstance(statement, ast.AugAssign)


def _lost(story: Story, write: Event) -> ComputedWeightWritten | None:
    labels = (
        o.label for o in write.operands if (story.tensor(o.label, write.step) or {}).get("storage") in write.writes
    )
    label = next(labels, None)
    storage = (story.tensor(label, write.step) or {}).get("storage")
    if label is None or storage not in write.writes or write.step == (story.tensor(label) or {}).get("born"):
        return None
    first = next(iter(story.tensors_on(storage)), None)
    made = story.event(first[1].get("born")) if first is not None else None
    if (
        first is None
        or made is None
        or made.step >= write.step
        or first[0] not in made.results
        or storage in made.writes
    ):
        return None
    sources = _sources(story, made)
    shape = story.shape(first[0])
    parameter = next((p for p in sorted(sources or ()) if _is_kept(story, p) and story.shape(p) == shape), None)
    if sources is None or parameter is None or _is_read(story, str(storage), write, parameter):
        return None
    for again in story.calls(made.name):
        if again.step > write.step and again.span is not None and again.results and _sources(story, again) == sources:
            memory = story.tensors_on((story.tensor(again.results[0]) or {}).get("storage"))
            uses = (use for label, _ in memory for use in story.uses(label) if use.step > again.step and not use.writes)
            used = next((use for use in uses if use.name not in VIEWING), None)
            if used is not None:
                return ComputedWeightWritten(made, write, again, used, parameter)
    return None


def _is_kept(story: Story, label: str) -> bool:
    """Whether a tensor is a parameter, frozen or not, or another leaf that requires grad."""
    record = story.tensor(label) or {}
    return record.get("kind") == "parameter" or bool(record.get("is_leaf") and record.get("requires_grad"))


def _sources(story: Story, event: Event) -> frozenset[str] | None:
    """Return the labels of the parameters, other leaves and inputs that the result was computed from; None if more than
    ``DEEPEST`` calls are between them.
    """
    found, pending, steps = set(), [o.label for o in event.operands if o.label is not None], 0
    while pending:
        label = pending.pop()
        born = story.event((story.tensor(label) or {}).get("born"))
        behind = (
            [o.label for o in born.operands if o.label is not None]
            if born is not None and label in born.results
            else []
        )
        if _is_kept(story, label) or not behind or label in behind:
            found.add(label)
            continue
        pending += behind
        steps += 1
        if steps > DEEPEST:
            return None
    return frozenset(found)


def _names(story: Story, label: str) -> set[str]:
    return {n for _, given in story.history("tensors", label, "names") for n in given or ()}


def _is_read(story: Story, storage: str, write: Event, parameter: str) -> bool:
    """Whether a call after the write reads the storage, or the program reads a variable of a tensor on it later.

    Writes and views do not count as reads, nor does the variable of the module that has the parameter. True also if the
    write is in no statement of the program.
    """
    statement = story.program.statement_at(story.span(write.step)) if story.program.tree is not None else None
    modules = {name.partition(".")[0] for name in _names(story, parameter) if "." in name}
    names = {name for label, _ in story.tensors_on(storage) for name in _names(story, label)} - modules
    if statement is None or any(name.isidentifier() and not unread(story.program, name, [statement]) for name in names):
        return True
    for label, _ in story.tensors_on(storage):
        for use in story.uses(label):
            if use.step <= write.step or (storage in use.writes and all(o.label != label for o in use.operands[1:])):
                continue
            if use.name not in VIEWING or any((story.tensor(r) or {}).get("storage") != storage for r in use.results):
                return True
    return False


def _finding(story: Story, found: ComputedWeightWritten) -> Finding:
    span = story.span(found.write.step)
    here, there = at_line(story, span), at_line(story, story.span(found.again.step))
    attribute = _attribute(story, found)
    text = story.program.segment(attribute) if attribute is not None else ""
    what = (
        T(en=f"`{text}`", zh=f"`{text}`")
        if text
        else called(story, found.write.operands[0].label, None, found.write.step)
    )
    source = called(story, found.parameter, None, found.again.step)
    return RULE.finding(
        span,
        found.write.step,
        T(
            en=f"{capital(here.en)} writes into {what.en}, which is computed anew whenever it is needed: {there.en} "
            "uses other numbers, and the write is lost.",
            zh=f"{here.zh}写入 {what.zh}，而它每次需要时都会重新计算：{there.zh}用的是别的数，这次写入丢失了。",
        ),
        T(
            en=f"`{found.made.name}` computes this weight from {source.en}, the parameter that is kept and "
            f"trained. `{snippet(story, span)}` changes the result of one such computation, and nothing reads "
            "that memory afterwards.",
            zh=f"`{found.made.name}` 由 {source.zh} 算出这个权重，保存和训练的是后者。`{snippet(story, span)}` "
            "修改的是其中一次计算的结果，之后没有任何地方读取那块内存。",
        ),
        related=[
            story.related(
                "changed", found.write.step, T(en="only a result is changed here", zh="这里只修改了一个结果")
            ),
            story.related(
                "used", found.used.step, T(en="computed from the parameter again here", zh="这里又由参数重新计算")
            ),
        ],
        fixes=_fixes(story, found, attribute),
        facts=[Fact("parameter", found.parameter, story.by(found.made.step))],
    )


def _attribute(story: Story, found: ComputedWeightWritten) -> ast.Attribute | None:
    """Return the attribute whose access computed the weight that is written; None if there is none."""
    program = story.program
    written = [_whole(each) for each in _written(program.statement_at(story.span(found.write.step)), found.write)]
    given = next((each for each in written if isinstance(each, ast.Attribute)), None)
    node = program.at(found.made.span)  # read before, and written by a name
    return given or (node if isinstance(node, ast.Attribute) else None)


def _written(statement: ast.stmt | None, write: Event) -> list[ast.expr]:
    """Return the expressions that a statement may write to: its targets, the object of its method call, or the first
    argument of its function call.
    """
    if isinstance(statement, ast.AugAssign):
        return [statement.target]
    call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if write.name == "__setitem__" or not isinstance(call, ast.Call):
        return statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(call.func, ast.Attribute) and call.func.attr == write.name and write.op.startswith("torch.Tensor."):
        return [call.func.value]
    return [*call.args[:1], *(k.value for k in call.keywords if k.arg == "tensor")]


def _whole(node: ast.expr) -> ast.expr:
    """Return the expression of the whole tensor of which ``node`` is an element, a view, or the ``data``."""
    while True:
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("data", "T", "mT")):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS:
            node = node.func.value
        else:
            return node


def _fixes(story: Story, found: ComputedWeightWritten, attribute: ast.Attribute | None) -> tuple[Fix, ...]:
    """Fixes that assign the changed weight (a parametrization then computes its parameter), or that write the
    parameters from which a hook computes the weight.

    Empty unless the write is a statement of its own and ``attribute`` is known.
    """
    program = story.program
    statement = program.statement_at(story.span(found.write.step)) if program.tree is not None else None
    if attribute is None or statement is None or not program.stands_alone(statement):
        return ()
    text, name = program.segment(attribute), attribute.attr
    begin = "\n" + program.indent(statement)
    inside = any(node is attribute for node in ast.walk(statement))
    fixes = []
    if isinstance(statement, ast.Expr) and story.shape(found.write.operands[0].label) == story.shape(found.parameter):
        new = f"{text} = {program.segment(statement)}"
        fixes.append((new, T(en=f"Assign the weight: `{new}`", zh=f"给权重赋值：`{new}`")))
    elif inside:
        own = name if not any(isinstance(n, ast.Name) and n.id == name for n in program.nodes) else f"new_{name}"
        last = f"{text} = {own}"
        new = begin.join([f"{own} = {text}", program.rewritten(statement, (attribute, own)), last])
        fixes.append((new, T(en=f"Assign the weight: `{last}`", zh=f"给权重赋值：`{last}`")))
    each = [f"{text}_orig.copy_({text})"]  # the names that torch's hooks give to the parameters
    if found.made.name == "_weight_norm":
        length = f"torch.norm_except_dim({text}, 2, {found.made.operands[2].text})"
        each = [f"{text}_v.copy_({text})", f"{text}_g.copy_({length})"]
    if inside:
        new = begin.join([program.segment(statement), "with torch.no_grad():", *(f"    {copy}" for copy in each)])
        shown = "`, `".join(each)
        fixes.append((new, T(en=f"Write the parameters too: `{shown}`", zh=f"把参数也写入：`{shown}`")))
    return unique(program.text, [Fix(said, program.replace((statement, new)), meaning="later") for new, said in fixes])


RULE = Rule(
    code="PL742",
    name="computed-weight-written",
    severity="warning",
    title=T(en="A weight that is computed anew was written in place", zh="就地写入了一个会重新计算的权重"),
    what=T(
        en="A layer computes its weights from other numbers whenever it needs them, and a program writes into the "
        "weights that were computed. The next time they are computed again, and what was written is gone. Assign the "
        "new weights to the layer, or fill the numbers that they are computed from.",
        zh="一层每次需要权重时都由别的数算出它们，而程序写进的是算出来的权重。下一次它们会重新计算，写进去的就没有了。"
        "请把新的权重赋给这一层，或者填写用来计算权重的那些数。",
    ),
    why=T(
        en="`weight_norm`, `spectral_norm` and `register_parametrization` replace the parameter `weight` by others, "
        "such as a length and a direction; `layer.weight` is then the result of a function of them, made at each "
        "access. The result of one access is a tensor with memory of its own, to which nothing refers. `layer.weight = "
        "new` is another matter: there torch calls the inverse of the function (`right_inverse`) and stores what it "
        "gives in the parameters.",
        zh="`weight_norm`、`spectral_norm` 和 `register_parametrization` 用别的参数（例如长度和方向）取代参数 "
        "`weight`；之后 `layer.weight` 是它们的一个函数的结果，每次访问时算出。一次访问的结果是一个有自己内存"
        "的张量，没有谁保存它。`layer.weight = new` 则不同：这时 torch 会调用这个函数的逆（`right_inverse`），"
        "把得到的东西存进参数。",
    ),
    advice=T(
        en="on {line}, fill the parameters that the weight is computed from, or initialise the layer "
        "before it is parametrized.",
        zh="在{line}，请填写用来计算权重的参数，或者在参数化之前初始化这一层。",
    ),
    bad="""import torch
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)
layer = weight_norm(torch.nn.Linear(2, 2))
with torch.no_grad():
    layer.weight.fill_(0.5)  # PL742 changed
x = torch.ones(1, 2)
print(layer(x))  # used
""",
    good="""import torch
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)
layer = weight_norm(torch.nn.Linear(2, 2))
with torch.no_grad():
    layer.weight = layer.weight.fill_(0.5)
x = torch.ones(1, 2)
print(layer(x))
""",
    find=find,
    traps=(
        Trap(
            "    layer.weight.fill_(0.5)",
            "    layer.weight.data.fill_(0.5)",
            T(
                en="`.data` is another way into the same memory, which nothing reads.",
                zh="`.data` 是进入同一块内存的另一条路，没有谁读取它。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.register_parametrization.html",
    ),
)
