"""PL344: all first derivatives were differentiated at once, so that each second derivative
has the mixed ones added to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pitfall_lab.rules.columns_summed_by_grad import is_ones
from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, is_name, operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.mixed_columns import mixes
from pitfall_lab.trace import Event, T

MATRIX = 2
COLUMN = re.compile(r"\((?::|\.\.\.|Ellipsis), (\d*)(:?)(\d*)\)")
"""The index of columns: ``[:, 0]``, ``[..., 0]``, ``[:, 0:1]``, ``[:, :2]``."""
PARTS = {"unbind", "split", "chunk", "T", "t", "tensor_split"}
"""Calls that take the columns apart."""
ACROSS = {"1", "-1", "(1,)", "(-1,)"}
ADDING = {"sum", "mean", "trace"}
"""Reductions over the columns."""


@dataclass(frozen=True, slots=True)
class MixedDerivativesAdded:
    """``grad`` is the call (``Event``) of ``autograd.grad`` that differentiated the sum of the first ``summed`` columns
    (at least two, often all) of the tensor ``slopes``, which are first derivatives by the tensor ``given``, by
    ``given`` once more; both are labels.

    Of the result, the calls ``used`` take some columns, or add up all of them; ``columns`` are the numbers of the
    columns that are used so.
    """

    grad: Event
    slopes: str
    given: str
    used: tuple[Event, ...]
    columns: tuple[int, ...]
    summed: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that differentiates the first derivatives by several columns of the input (all,
    or the first ones) in one backward, if a column of the result, or the sum of all, is then used as a second
    derivative.

    Only if the function really mixes the columns of its input.
    """
    made: dict[str, tuple[Event, str]] = {}
    reported = set()
    for grad in story.calls("grad"):
        labels = [o.label for o in grad.operands if o.label is not None]
        if grad.op != "torch.autograd.grad" or grad.error is not None or len(grad.results) != 1 or len(labels) < MATRIX:
            continue
        outputs, given = _summed(story, grad, labels), labels[1]
        outputs, summed = _whole(story, outputs, grad.step, made) if outputs is not None else (None, 0)
        first = made.get(outputs) if outputs is not None else None
        if first is not None and first[1] == given and story.span(grad.step) is not None:
            found = _added(story, grad, str(outputs), given, summed)
            call = _call(story, found) if found is not None else None
            place = story.program.place(call[0]) if call is not None else story.span(grad.step)
            if found is not None and place not in reported and mixes(story, given, _value(story, first[0]), grad):
                reported.add(place)
                yield _finding(story, found, call)
        shape = story.shape(given, grad.step) or ()
        if (
            len(shape) == MATRIX
            and shape[1] > 1
            and outputs is not None
            and story.shape(outputs, grad.step) in ((shape[0],), (shape[0], 1))
        ):
            made[grad.results[0]] = grad, given


def _summed(story: Story, grad: Event, labels: list[str]) -> str | None:
    """The label of the tensor whose sum of elements is differentiated: the operand of a plain ``sum``, or else the
    tensor itself, given alone or with a gradient of ones.

    None if another gradient was given.
    """
    if len(labels) > MATRIX:
        return labels[0] if is_ones(story, labels[2], grad.step) else None
    born = story.event((story.tensor(labels[0], grad.step) or {}).get("born"))
    if born is None or born.name != "sum" or len(born.operands) > 1 or not born.operands:
        return labels[0]
    return born.operands[0].label


def _value(story: Story, first: Event) -> str:
    """What the first derivative was taken of; empty if it is not known."""
    return _summed(story, first, [o.label for o in first.operands if o.label is not None]) or ""


def _whole(story: Story, outputs: str, step: int, made: Mapping[str, object]) -> tuple[str, int]:
    """The first derivatives of which ``outputs`` are the first columns, at least two, and how many these are; all
    columns of ``outputs`` if it is no such part.
    """
    born = story.event((story.tensor(outputs, step) or {}).get("born"))
    shape = story.shape(outputs, step) or (0,)
    taken = _taken(born, shape[-1]) if born is not None and born.operands and outputs not in made else ()
    if born is None or not born.operands or born.operands[0].label not in made or len(taken) < MATRIX or taken[0]:
        return outputs, shape[-1]
    return str(born.operands[0].label), len(taken)


def _taken(event: Event, count: int) -> tuple[int, ...]:
    """The columns that a call takes by an index such as ``[:, 0]`` or a slice of ``count`` columns. Empty if the call
    takes no columns, or if its index has another form.
    """
    index = COLUMN.fullmatch(event.operands[-1].text) if event.name == "__getitem__" else None
    if index is None or not (index[1] or index[2]):
        return ()
    first = int(index[1] or 0)
    return tuple(range(first, first + count)) if index[2] else (first,)


def _added(story: Story, grad: Event, slopes: str, given: str, summed: int) -> MixedDerivativesAdded | None:
    """The finding's data if calls use single columns of the second derivative, or the sum of its columns in each row;
    None if there are no such calls.
    """
    columns, used = list[int](), list[Event]()
    for use in story.uses(grad.results[0]):
        if taken := _taken(use, (story.shape(use.results[0], use.step) or (1,))[-1] if use.results else 1):
            columns += taken
            used.append(use)
        elif use.name in PARTS or (use.name in ADDING and any(o.text in ACROSS for o in use.operands[1:])):
            columns += range((story.shape(given, grad.step) or (0, 0))[1])
            used.append(use)
    each = tuple(dict.fromkeys(columns))
    return MixedDerivativesAdded(grad, slopes, given, tuple(used), each, summed) if used else None


def _call(story: Story, found: MixedDerivativesAdded) -> tuple[ast.Call, ast.expr] | None:
    """The program's call that was given the first derivatives, and how it names them; None if
    the source does not show it.

    Where a function of the program calls ``autograd.grad`` with its parameter, that is the call of the function.
    """
    program, call = story.program, story.program.at(story.span(found.grad.step))
    if not isinstance(call, ast.Call) or not call.args:
        return None
    given = call.args[0]
    if isinstance(given, ast.Call) and called(given) == "sum" and isinstance(given.func, ast.Attribute):
        given = given.args[0] if given.args else given.func.value
    for statement in call_chain(story, found.grad):
        function = program.function(call)
        if statement is program.statement(call) or function is None or not isinstance(given, ast.Name):
            continue
        parameters = [a.arg for a in function.args.args]
        calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and called(n) == function.name]
        place = parameters.index(given.id) if given.id in parameters else len(parameters)
        if not calls or place >= len(calls[0].args):
            break
        call, given = calls[0], calls[0].args[place]
    return call, given


def _finding(story: Story, found: MixedDerivativesAdded, call: tuple[ast.Call, ast.expr] | None) -> Finding:
    grad, used = found.grad, found.used[0]
    span = story.program.place(call[0]) if call is not None else story.span(grad.step)
    here, there = at_line(story, span), at_line(story, story.span(used.step))
    slopes, given = expression(story, found.slopes, grad.step), expression(story, found.given, grad.step)
    if call is not None:
        slopes = T(en=f"`{story.program.segment(call[1])}`", zh=f"`{story.program.segment(call[1])}`")
    count = found.summed
    return RULE.finding(
        span,
        grad.step,
        T(
            en=f"{capital(here.en)} differentiates the sum of the {count} columns of {slopes.en}, so each column of "
            f"the result, which {there.en} uses as a second derivative, has the mixed derivatives added to it.",
            zh=f"{here.zh}对 {slopes.zh} 的 {count} 列之和求导，所以结果的每一列都加进了混合导数，"
            f"而{there.zh}把它当作二阶导数使用。",
        ),
        T(
            en=f"{capital(slopes.en)} has one column for each column of {given.en}. The derivative of their sum with "
            "respect to column `i` is the sum of row `i` of the second derivatives, mixed ones included. "
            "Differentiate one column at a time.",
            zh=f"{slopes.zh} 的每一列对应 {given.zh} 的一列。它们之和对第 `i` 列的导数，是二阶导数第 `i` 行之和，包括"
            "混合导数。请一次只对一列求导。",
        ),
        related=[story.related("used", used.step, T(en="used as a second derivative", zh="在这里当作二阶导数使用"))],
        fixes=_fixes(story, found, call),
        facts=[Fact("columns", list(found.columns), story.by(grad.step))],
    )


def _fixes(story: Story, found: MixedDerivativesAdded, place: tuple[ast.Call, ast.expr] | None) -> tuple[Fix, ...]:
    """Fixes that differentiate only the column that is used, or one column after the other.

    Empty if the call of ``autograd.grad`` is not known, or if its code does not allow either form.
    """
    program, torch = story.program, torch_name(story.program)
    if place is None or torch is None:
        return ()
    call, given = place
    name, parent = program.segment(given), program.parents.get(call)
    named = [n for n in ast.walk(call) if isinstance(n, ast.expr) and program.segment(n) == name]
    if len(found.columns) == 1:
        one = f"{operand(program, given)}[:, {found.columns[0]}]"
        title = T(en=f"Differentiate this column only: `{one}`", zh=f"只对这一列求导：`{one}`")
        return unique(program.text, [Fix(title, program.replace(*((n, one) for n in named)), meaning="later")])
    text, start = program.segment(call), program.place(call)
    whole_name = given.value if isinstance(given, ast.Subscript) else given
    if start.line != start.end_line or not is_name(whole_name):
        return ()
    base = program.segment(whole_name)
    count = f"{base}.shape[1]" if whole_name is given else str(found.summed)
    for node in sorted(named, key=lambda n: -program.place(n).column):
        at = program.place(node).column - start.column
        text = f"{text[:at]}{base}[:, i]{text[at + len(name) :]}"
    if called(call) == "grad" and not {k.arg for k in call.keywords} & {"create_graph", "retain_graph"}:
        text = f"{text[:-1]}, retain_graph=True)"  # one graph for all columns
    whole, first = (parent, "[0]") if isinstance(parent, ast.Subscript) else (call, "")
    unpacked = isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple)
    first = "[0]" if unpacked else first
    new = f"{torch}.stack([{text}{first}[:, i] for i in range({count})], 1)"
    title = T(en="Differentiate one column after the other", zh="逐列求导")
    return unique(
        program.text, [Fix(title, program.replace((whole, f"({new},)" if unpacked else new)), meaning="later")]
    )


RULE = Rule(
    code="PL344",
    name="mixed-derivatives-added",
    severity="warning",
    title=T(en="Second derivatives contain the mixed ones", zh="二阶导数里混入了混合导数"),
    what=T(
        en="A program computes derivatives of derivatives, and differentiates all first ones at once. What this gives "
        "for one input is then the sum of all second derivatives in which this input takes part. Differentiate the "
        "columns one by one: `grad(du[:, 0].sum(), x)`.",
        zh="程序对导数再求导，而且把所有一阶导数一起求导。这样，对某个输入得到的是该输入参与的所有二阶导数之"
        "和。请逐列求导：`grad(du[:, 0].sum(), x)`。",
    ),
    why=T(
        en="A backward pass starts from one number. `du.sum()`, or a gradient of ones, adds the rows *and the "
        "columns* of the first derivatives. Rows belong to different points and do not influence each other; "
        "columns do: for `u(x, t)` the first column of the result is `u_xx + u_tx`. For functions that are "
        "applied to each element alone, such as `tanh`, the mixed derivatives are 0 and the sum is right, which "
        "is where the habit comes from.",
        zh="反向传播从一个数开始。`du.sum()`（或取全 1 的梯度）把一阶导数的各行*和各列*都加起来。各行属于不同的点，互"
        "不影响；各列却会：对 `u(x, t)`，结果的第一列是 `u_xx + u_tx`。对逐元素作用的函数（如 `tanh`），混合导数为 0，"
        "求和是对的，这种习惯就是由此而来。",
    ),
    advice=T(
        en="differentiate one column of the first derivatives at a time on {line}.",
        zh="在{line}一次只对一阶导数的一列求导。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
xt = torch.rand(6, 2, requires_grad=True)
(du,) = torch.autograd.grad(net(xt).sum(), xt, create_graph=True)
(d2u,) = torch.autograd.grad(du.sum(), xt, create_graph=True)  # PL344
loss = (du[:, 1] - d2u[:, 0]).square().mean()  # used
loss.backward()
print(net[0].weight.grad.sum())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
xt = torch.rand(6, 2, requires_grad=True)
(du,) = torch.autograd.grad(net(xt).sum(), xt, create_graph=True)
(d2u,) = torch.autograd.grad(du[:, 0].sum(), xt, create_graph=True)
loss = (du[:, 1] - d2u[:, 0]).square().mean()
loss.backward()
print(net[0].weight.grad.sum())
""",
    find=find,
    traps=(
        Trap(
            "torch.autograd.grad(du.sum(), xt, create_graph=True)",
            "torch.autograd.grad(du, xt, torch.ones_like(du), create_graph=True)",
            T(en="A gradient of ones is the same sum.", zh="取全 1 的梯度就是同样的求和。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",),
)
