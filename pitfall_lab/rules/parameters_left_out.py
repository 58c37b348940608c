"""PL611: layers that a loss trains were never given to an optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.layers_in_a_plain_list import find as plain_lists
from pitfall_lab.rules.signals.optimizer_steps import replaced
from pitfall_lab.trace import Event, T

ROUNDS = 2
LAYERS = {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "embedding", "lstm", "gru",
          "rnn_tanh", "gru_cell", "lstm_cell", "bilinear", "batch_norm", "layer_norm", "matmul", "addmm"}  # fmt: skip
"""Layers with parameters: an optimizer that holds some of theirs trains a network, and not only an input."""
BY_NUMBER = {
    f"{name}Backward"
    for name in ("Neg", "Exp", "Expm1", "Log", "Mul", "Div", "Add", "Sub", "Rsub", "Reciprocal", "Pow", "Sqrt", "Rsqrt",
                 "Softplus", "Sigmoid", "Softmax", "LogSoftmax", "Clamp", "ClampMin", "Abs", "Select", "Unbind",
                 "Slice", "Tanh", "Unsqueeze", "Squeeze", "Sum", "Stack")
}  # fmt: skip
"""Nodes, without their last digit, that compute numbers one by one, or pick some of them."""


def find(story: Story) -> Iterator[Finding]:
    """Yield at most one finding: for the parameters that got gradients in at least ``ROUNDS`` backwards, that no
    optimizer holds, and that are used after those of trained layers or were frozen at first.

    Nothing if an optimizer also holds parameters that never got gradients, or if modules lie in a plain list, which
    other rules report.
    """
    updates = story.trace.optimizer_steps
    held = {label for update in updates for label in update.holds}
    idle = {label for label in held if (story.tensor(label) or {}).get("requires_grad")} - set(lives(story))
    if not _trains_layers(story, held) or idle:
        return  # what an optimizer holds and never gets a gradient for is another story: layers that were replaced
    left: list[str] = []
    elsewhere = {found.new for found in replaced(story)} | {
        label for made in story.trace.optimizers for label in made.holds
    }
    for label, moments in lives(story).items():
        added = [m.event for m in moments if m.kind == "added"]
        changed = any(m.kind in ("used", "frozen") for m in moments)
        cleared = any(m.kind == "cleared" for m in moments)  # as `net.zero_grad()` does; or its gradient was only read
        parameter = (story.tensor(label) or {}).get("kind") == "parameter"
        if label not in held and label not in elsewhere and len(added) >= ROUNDS and not changed and parameter:
            forgotten = not cleared and _comes_after(story, label, added[0], held)
            left += [label] if forgotten or _thawed(story, label, held) else []
    if left and not any(plain_lists(story)):
        yield _finding(story, left, lives(story)[left[0]][0].event)


def _trains_layers(story: Story, held: set[str]) -> bool:
    """Whether some optimizer holds the weights of a layer, and not only an input that is optimized."""
    return any(
        (story.tensor(label) or {}).get("kind") == "parameter" and any(use.name in LAYERS for use in story.uses(label))
        for label in held
    )


def _thawed(story: Story, label: str, held: set[str]) -> bool:
    """Whether the parameter was frozen, got ``requires_grad`` back after an optimizer was made, and parameters in
    ``held`` were written after that.

    Only the first steps of an optimizer are recorded as such; these writes show that it stepped later too.
    """
    values = story.history("tensors", label, "requires_grad")
    thawed = next((at for (_, before), (at, now) in pairwise(values) if now and not before), None)
    made = [optimizer.step for optimizer in story.trace.optimizers]
    frozen = any(at < thawed and not now for at, now in values) if thawed is not None else False
    if thawed is None or not frozen or not made or made[0] > thawed:
        return False
    storages = {str((story.tensor(each) or {}).get("storage")) for each in held}
    return any(story.writes(storage, thawed, len(story.events)) for storage in storages)


def _comes_after(story: Story, label: str, backward: Event, held: set[str]) -> bool:
    """Whether parameters that an optimizer holds come before this one in the forward pass; a first
    part may be frozen on purpose.
    """
    start = (
        (story.tensor(backward.operands[0].label, backward.step) or {}).get("grad_fn") if backward.operands else None
    )
    nodes = {node: story.record("nodes", node) or {} for node in story.behind(start)}
    own = {
        node
        for node, record in nodes.items()
        if record.get("output") == label and record.get("name") == "AccumulateGrad"
    }
    for node, record in nodes.items():
        if own & set(record.get("next", ())):
            leaves = {(story.record("nodes", n) or {}).get("output") for n in story.behind(node)}
            if leaves & held:
                return True
            if record.get("name") in ("TBackward0", "ExpandBackward0", "ViewBackward0", "TransposeBackward0"):
                own.add(node)  # the weight itself, turned
    return any(leaves & held for node in _alone(story, nodes, own) for leaves in _around(story, nodes, node))


def _alone(story: Story, nodes: dict[str, dict[str, object]], own: set[str]) -> set[str]:
    """The nodes of a parameter, and the nodes that compute something from it alone, element by element or as a sum
    (``BY_NUMBER``): ``exp(-s)`` as a factor of a loss.

    Products with an input are not among them: the layer may be a first one, which can be frozen on purpose.
    """
    found, grows = set(own), True
    while grows:
        new = {
            node
            for node, record in nodes.items()
            if node not in found
            and str(record.get("name")).rstrip("0123456789") in BY_NUMBER
            and _given(record)
            and _given(record) <= found
            and not _is_set_up(story, record)
        }
        found, grows = found | new, bool(new)
    return found


def _is_set_up(story: Story, record: dict[str, object]) -> bool:
    """Whether a node was made in an ``__init__``: a result that is computed there once and then kept is not looked at
    (PL622 reports it).
    """
    born = record.get("born")
    scope = story.events[born].scope if isinstance(born, int) else ()
    return any(each.endswith("__init__") for each in scope)


def _given(record: dict[str, object]) -> set[str]:
    following = record.get("next", ())
    return {str(each) for each in following if each is not None} if isinstance(following, list | tuple) else set()


def _around(story: Story, nodes: dict[str, dict[str, object]], inner: str) -> Iterator[set[object]]:
    for node, record in nodes.items():
        following = record.get("next", ())
        if isinstance(following, list | tuple) and inner in following:
            yield {(story.record("nodes", n) or {}).get("output") for n in story.behind(node)}


def _finding(story: Story, left: list[str], backward: Event) -> Finding:
    update = story.trace.optimizer_steps[0]
    first, more = called(story, left[0], None, backward.step), len(left) - 1
    others = T(en=f" and {more} more" if more else "", zh=f" 等 {more + 1} 个参数" if more else "")
    node = _made(story)
    span = story.program.place(node) if node is not None else update.span
    here, back = at_line(story, span), at_line(story, story.span(backward.step))
    return RULE.finding(
        span,
        backward.step,
        T(
            en=f"{capital(first.en)}{others.en} get a gradient on {back.en} in every round, and no optimizer was ever "
            "given them: they stay as they were made.",
            zh=f"每一轮{back.zh}都给 {first.zh}{others.zh} 算出梯度，却从来没有把它们交给任何优化器：它们"
            "一直保持最初的样子。",
        ),
        T(
            en=f"The optimizer of {here.en} holds {len(update.holds)} tensors. It changes these and no others, and "
            "its `zero_grad()` clears only theirs. What is meant to stay as it is should not require gradients: "
            "`requires_grad_(False)`.",
            zh=f"{here.zh}的优化器持有 {len(update.holds)} 个张量。它只改变这些张量，`zero_grad()` 也只清空它们的梯"
            "度。本来就要保持不变的部分，不应该需要梯度：`requires_grad_(False)`。",
        ),
        related=[
            story.related("backward", backward.step, T(en="they get gradients here", zh="它们在这里得到梯度")),
            Related("step", update.span, None, T(en="this step does not change them", zh="这一步不会改变它们")),
        ],
        fixes=_fixes(story, left, node),
        facts=[Fact("parameters", left, story.by(backward.step)), Fact("held", len(update.holds))],
    )


def _made(story: Story) -> ast.Call | None:
    """Return the call that makes the program's optimizer; None unless there is exactly one."""
    name = story.trace.optimizer_steps[0].optimizer
    calls = [n for n in story.program.nodes if isinstance(n, ast.Call) and call_name(n) == name]
    return calls[0] if len(calls) == 1 else None


def _fixes(story: Story, left: list[str], node: ast.Call | None) -> tuple[Fix, ...]:
    program = story.program
    given = (
        next((k.value for k in node.keywords if k.arg == "params"), node.args[0] if node.args else None)
        if node is not None
        else None
    )
    if given is None:
        return ()
    every = next(
        (n for n in ast.walk(given) if isinstance(n, ast.Call) and call_name(n) in ("parameters", "named_parameters")),
        None,
    )
    fixes = []
    if every is not None and every is not given and "requires_grad" in program.segment(given):
        whole = program.segment(every).replace("named_parameters", "parameters")
        said = T(
            en=f"Give it all of `{whole}`: what is frozen gets no gradient and is not changed",
            zh=f"把 `{whole}` 全部交给它：冻结的参数没有梯度，不会被改变",
        )
        fixes.append(Fix(said, program.replace((given, whole)), meaning="later"))
    names = [name for label in left if (name := story.name(label))]
    owners = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    known = {program.segment(t) for n in program.nodes if isinstance(n, ast.Assign) for t in n.targets}
    owners = list(dict.fromkeys(next((o[:i] for i in _dots(o) if o[:i] in known), o) for o in owners))
    added = ", ".join(f"*{owner}.parameters()" if owner else name for owner, name in zip(owners, names, strict=False))
    title = T(en="Give these parameters to the optimizer too", zh="把这些参数也交给优化器")
    fixes.append(Fix(title, program.replace((given, f"[*{program.segment(given)}, {added}]")), meaning="later"))
    return unique(program.text, fixes)


def _dots(text: str) -> list[int]:
    return [i for i, c in enumerate(text) if c == "."] + [len(text)]


RULE = Rule(
    code="PL611",
    name="parameters-left-out",
    severity="warning",
    title=T(en="Layers that the loss trains were not given to an optimizer", zh="损失要训练的层没有交给优化器"),
    what=T(
        en="A program computed gradients for two parts of its network and gave the optimizer only the first one. The "
        "other part is never changed. Give the optimizer all that is to be trained: `[*encoder.parameters(), "
        "*decoder.parameters()]`.",
        zh="程序为网络的两个部分计算了梯度，却只把前一部分交给优化器。另一部分从未改变。请把要训练的都交给优化器："
        "`[*encoder.parameters(), *decoder.parameters()]`。",
    ),
    why=T(
        en="An optimizer holds a list of tensors that it is given once, when it is made. `backward()` does not use "
        "any optimizer: it fills `.grad` of every parameter behind the loss. So parameters outside the list get "
        "gradients that add up from round to round and are never used. For a part that is to stay as it is that is "
        "only a waste, and `requires_grad_(False)` says so; here the part comes after the trained one.",
        zh="优化器持有一份张量列表，在创建时一次给定。`backward()` 对优化器一无所知：它给损失背后的每个参数填上 "
        "`.grad`。所以列表之外的参数也得到梯度，一轮一轮累加，却从来不用。如果那部分本来就要保持不变，这只是浪费，可以"
        "用 `requires_grad_(False)` 说明；而这里那部分在被训练的部分之后。",
    ),
    advice=T(
        en="give the optimizer on {line} the parameters of all parts that are to be trained.",
        zh="把所有要训练的部分的参数都交给{line}的优化器。",
    ),
    bad="""import torch

torch.manual_seed(0)
encoder, decoder = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
opt = torch.optim.SGD(encoder.parameters(), lr=0.1)  # PL611
x = torch.randn(5, 3)
for _ in range(3):
    loss = (decoder(encoder(x)) - x).square().mean()
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
print(loss.item(), decoder.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
encoder, decoder = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
x = torch.randn(5, 3)
for _ in range(3):
    loss = (decoder(encoder(x)) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), decoder.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "    opt.zero_grad()\n",
            "    decoder.requires_grad_(True)\n    opt.zero_grad()\n",
            T(
                en="They require gradients already. That does not make an optimizer hold them.",
                zh="它们本来就需要梯度。这并不会让优化器持有它们。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/optim.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.parameters",
    ),
)
