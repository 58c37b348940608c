"""PL613: the backward of a custom Function never uses ``grad_output``: the derivatives of the
operations after it are missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.custom_functions import customs
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, flat, numbers
from pitfall_lab.trace import Event, Span, T

SUFFIX = "Backward"
GIVEN = 2
AS_IT_IS = {"Add", "Alias", "Cat", "Clone", "Expand", "Permute", "ReshapeAlias", "Squeeze", "Stack", "Sum", "T",
            "ToCopy", "Transpose", "UnsafeView", "Unsqueeze", "View"}  # fmt: skip
"""Graph nodes that pass a gradient of ones on as ones."""
SHAPES = {"ones_like", "zeros_like", "empty_like", "new_ones", "new_zeros", "new_tensor", "expand_as", "view_as",
          "reshape_as", "type_as", "size", "dim", "numel", "device"}  # fmt: skip
"""Calls that read no numbers from one of their operands, the last one."""


@dataclass(frozen=True, slots=True)
class IncomingGradientIgnored:
    """The backward of the custom Function named ``function`` computed without the gradient that it was given.

    ``node`` is the record of its graph node, ``backward`` the backward (``Event``) during which it ran, ``calls`` the
    torch calls that it made. ``through`` is the name of the node that had computed the incoming gradient, if the trace
    does not have the gradient's values; else None.
    """

    function: str
    node: Record
    backward: Event
    calls: list[Event]
    through: str | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each custom Function whose backward computes with other tensors and never with the gradient
    that it receives.

    Only if that gradient is known not to be 1, by its values or by a graph node that had computed it.
    """
    reported, givers = set(), dict[str, list[str]]()
    for label, node in story.nodes.items():
        function = str(node.get("name") or "").removesuffix(SUFFIX)
        if function == node.get("name") or function in reported or node.get("ran") is None:
            continue
        backward = story.outer_call(node["ran"])
        calls = _calls(story, function, backward)
        if (
            backward is None
            or not calls
            or not _from_elsewhere(story, calls, backward)
            or _is_returned(story, function)
        ):
            continue
        givers = givers or _givers(story)
        through = _through(story, label, backward, givers) if node.get("gradient") is None else None
        if through is not None or _counts(node):
            reported.add(function)
            yield _finding(story, IncomingGradientIgnored(function, node, backward, calls, through))


def _calls(story: Story, function: str, backward: Event | None) -> list[Event]:
    """Return the calls that the Function's ``backward`` made during the backward ``backward``; empty if that is
    None.
    """
    found = []
    for event in story.events[backward.step + 1 :] if backward is not None else ():
        outer = story.outer_call(event.step)
        if outer is None or outer is not backward:
            break
        if event.kind == "call" and any(
            name == f"{function}.backward" or name.endswith(f".{function}.backward") for name in event.scope
        ):
            found.append(event)
    return found


def _counts(node: Record) -> bool:
    """Whether the incoming gradient is known and has a value other than 1; a gradient of 1, as at the end of a loss,
    changes nothing.
    """
    incoming = [value for _, value in flat(node.get("gradient"))]
    return bool(incoming) and any(isinstance(value, int | float) and value != 1 for value in incoming)


def _givers(story: Story) -> dict[str, list[str]]:
    """Return, for each graph node, the nodes that pass a gradient to it."""
    found: dict[str, list[str]] = {}
    for giver, record in story.nodes.items():
        for label in record.get("next", ()):
            found.setdefault(label, []).append(giver)
    return found


def _through(story: Story, label: str, backward: Event, givers: dict[str, list[str]]) -> str | None:
    """Return the name of a node that computed the gradient of the node ``label`` during this backward, other than by
    passing it on; None if there is none, so that the gradient may be all ones.
    """
    pending, seen = [label], {label}
    while pending:
        for giver in givers.get(pending.pop(), ()):
            record = story.record("nodes", giver) or {}
            if giver in seen or record.get("ran") is None or story.outer_call(record["ran"]) is not backward:
                continue
            name = str(record.get("name"))
            if name.rstrip("0123456789").removesuffix(SUFFIX) not in AS_IT_IS:
                return name
            seen.add(giver)
            pending.append(giver)
    return None


def _from_elsewhere(story: Story, calls: list[Event], backward: Event) -> bool:
    """Whether the Function's backward computes from at least one tensor made before it, and from no tensor that it was
    given.

    Tensors of which only the shape is used (``…_as``) do not count.
    """
    own: set[str] = set()
    saved = False
    handed = {
        (story.tensor(o.label, backward.step) or {}).get("storage")
        for o in backward.operands[1:]
        if o.label is not None
    }
    for event in calls:
        given = event.operands[: 1 if event.name.endswith("_as") else 0] if event.name in SHAPES else event.operands
        for label in (o.label for o in given if o.label is not None and o.label not in own):
            storage = (story.tensor(label) or {}).get("storage")  # of a saved result, its tensor is a new one
            born = min(
                (record["born"] for _, record in story.tensors_on(storage) if record.get("born") is not None),
                default=None,
            )
            if born is None or born >= backward.step or storage in handed:
                return False
            saved = True
        own.update(event.results)
    return saved


def _is_returned(story: Story, function: str) -> bool:
    """Whether the source of ``backward`` returns one of its incoming gradients unchanged, which no call shows."""
    for custom in customs(story.program) if story.program.tree else ():
        incoming = {argument.arg for argument in custom.backward.args.args[1:]}
        values = [node.value for node in ast.walk(custom.backward) if isinstance(node, ast.Return)]
        single = [each for value in values for each in (value.elts if isinstance(value, ast.Tuple) else [value])]
        if custom.name == function and any(isinstance(each, ast.Name) and each.id in incoming for each in single):
            return True
    return False


def _finding(story: Story, found: IncomingGradientIgnored) -> Finding:
    last, node, backward = found.calls[-1], found.node, found.backward
    here = at_line(story, _returned(story, last) or story.span(last.step))
    back = at_line(story, story.span(backward.step))
    shown = T(en=numbers(node.get("gradient")), zh=numbers(node.get("gradient")))
    if found.through is not None:
        size = "×".join(map(str, node.get("gradient_shape") or ()))
        shown = T(
            en=f"a tensor of shape {size}, computed by {found.through}",
            zh=f"一个形状为 {size} 的张量，由 {found.through} 算出",
        )
    name = f"`{found.function}.backward`"
    return RULE.finding(
        _returned(story, last) or story.span(last.step),
        backward.step,
        T(
            en=f"{name} ({here.en}) never uses the gradient that it is handed, so what follows `{found.function}` in "
            "the loss does not count: the gradients in front of it are wrong.",
            zh=f"{name}（{here.zh}）从未使用交给它的梯度，因此损失中 `{found.function}` 之后的部分都不起作用："
            "它前面的梯度是错的。",
        ),
        T(
            en=f"On {back.en} torch passes to {name} how the loss changes with its result: {shown.en}. By the chain "
            "rule that is multiplied by how the result changes with the input. What is returned here was computed "
            "from saved tensors only, as if the incoming gradient were 1.",
            zh=f"{back.zh}，torch 交给 {name} 的是损失随其结果的变化：{shown.zh}。按链式法则，要把它乘以结果随输入的变"
            "化。这里返回的只由保存的张量算出，就好像传入的梯度是 1 一样。",
        ),
        related=[
            story.related(
                "used",
                node.get("born"),
                T(en=f"`{found.function}` is applied here", zh=f"`{found.function}` 在这里被使用"),
            ),
            story.related(
                "backward", backward.step, T(en="the gradient is passed on from here", zh="梯度从这里往回传")
            ),
        ],
        fixes=_fixes(story, last),
        facts=[Fact("incoming", node.get("gradient") or node.get("gradient_shape"), story.by(node.get("ran")))],
    )


def _returned(story: Story, last: Event) -> Span | None:
    """Return the source position of the only ``return`` with a value in the function that made the last call; None if
    it has several, or none.
    """
    program = story.program
    statement = program.statement_at(story.span(last.step))
    function = program.function(statement) if statement is not None else None
    returns = [
        node
        for node in program.nodes
        if isinstance(node, ast.Return) and node.value is not None and program.function(node) is function
    ]
    return program.place(returns[0]) if function is not None and len(returns) == 1 else None


def _fixes(story: Story, last: Event) -> tuple[Fix, ...]:
    """At most one fix: it multiplies each value that ``backward`` returns by the incoming gradient, ``return incoming *
    (…)``.

    Empty unless ``backward`` has one parameter besides ``ctx``.
    """
    program = story.program
    statement = program.statement_at(story.span(last.step))
    function = program.function(statement) if statement is not None else None
    if not isinstance(function, ast.FunctionDef) or len(function.args.args) != GIVEN:
        return ()
    incoming = function.args.args[1].arg
    changes: list[tuple[ast.AST, str]] = []
    for node in program.nodes:
        if isinstance(node, ast.Return) and node.value is not None and program.function(node) is function:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            changes += [
                (v, f"{incoming} * {operand(program, v)}")
                for v in values
                if not (isinstance(v, ast.Constant) and v.value is None)
            ]
    title = T(en=f"Multiply by the incoming gradient: `{incoming} * …`", zh=f"乘以传入的梯度：`{incoming} * …`")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")] if changes else [])


RULE = Rule(
    code="PL613",
    name="incoming-gradient-ignored",
    severity="warning",
    title=T(
        en="The backward of a custom Function ignores the gradient that it is handed",
        zh="自定义的 backward 忽略了交给它的梯度",
    ),
    what=T(
        en="A program wrote an operation of its own and returned its derivative from `backward`, without the number "
        "that `backward` is given. Everything in front of it then gets a wrong gradient, often of the wrong size and "
        "sign. Return `grad_output * derivative`.",
        zh="程序写了一个自己的运算，在 `backward` 里只返回导数，没有用上交给 `backward` 的数。于是它前面的一切都得到错"
        "误的梯度，大小和符号往往都不对。请返回 `grad_output * derivative`。",
    ),
    why=T(
        en="`backward(ctx, grad_output)` does one step of the chain rule. `grad_output` says how the loss changes "
        "with each number of the Function's result; it comes from whatever follows it: later layers, a mean, a weight "
        "in the loss. Torch passes on what is returned as it is. A test with `result.sum().backward()` does not show "
        "the mistake, because there `grad_output` is all ones; `torch.autograd.gradcheck` does.",
        zh="`backward(ctx, grad_output)` 完成链式法则中的一步。`grad_output` 说的是损失随 Function 结果的每个"
        "数如何变化，它来自后面的一切：后面的层、求平均、损失的权重。torch 原样接受返回值并继续往前传。用 "
        "`result.sum().backward()` 测试看不出这个错误，因为那时 `grad_output` 全是 1；"
        "`torch.autograd.gradcheck` 则可以。",
    ),
    bad="""import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x  # PL613


x = torch.tensor([1.0, 2.0], requires_grad=True)
loss = Square.apply(x).mean() * 10  # used
loss.backward()  # backward
print(x.grad)
""",
    good="""import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (2 * x)


x = torch.tensor([1.0, 2.0], requires_grad=True)
loss = Square.apply(x).mean() * 10
loss.backward()
print(x.grad)
""",
    find=find,
    traps=(
        Trap(
            "loss = Square.apply(x).mean() * 10",
            "loss = Square.apply(x).sum()",
            T(
                en="Here the incoming gradient is 1, and leaving it out changes nothing: another loss, and "
                "the mistake is hidden.",
                zh="这里传入的梯度是 1，漏掉它没有影响：换了一个损失，错误只是被掩盖了。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/extending.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.Function.backward.html",
    ),
)
