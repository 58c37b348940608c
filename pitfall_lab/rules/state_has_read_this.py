"""PL478: a recurrent layer reads a whole growing sequence again, and begins with the state that has read its start."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_in
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import flat_targets
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, made_by, same_numbers
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LAYERS = operations_that("recurrent")
"""The functions of recurrent layers."""
JOINS = spellings("cat")
MADE = {"tensor", "as_tensor"}
"""Calls that make a tensor of a list of numbers."""
PLAIN = SAME_NUMBERS - spellings("clamp")
FURTHER, PAIR, ROUNDS = 24, 2, 2


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """``layer`` is the call (``Event``) of a recurrent layer on ``steps`` steps, which begins with the last state of
    the call ``earlier``; that call had read the first ``known`` of these steps.

    ``call`` is the program's call that was given the sequence and the state, perhaps of a module around the layer; None
    if the program's source does not show it. ``span`` is the place in the source of ``call``, or else of the layer.
    """

    layer: Event
    earlier: Event
    steps: int
    known: int
    call: ast.Call | None
    span: Span | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call that at least ``ROUNDS`` times gives a recurrent layer a sequence from its
    beginning, longer each time, and the state with which the same layer had left the sequence before.
    """
    rounds: dict[Span | None, list[ReadAgain]] = defaultdict(list)
    for layer in story.calls(*LAYERS):
        found = _read_again(story, layer) if layer.error is None and layer.results else None
        if found is not None:
            rounds[found.span].append(found)
    for several in rounds.values():
        if len(several) >= ROUNDS:
            yield _finding(story, several[0])


def _read_again(story: Story, layer: Event) -> ReadAgain | None:
    labels = [operand.label for operand in layer.operands[:PAIR]]
    if len(labels) < PAIR or labels[0] is None or labels[1] is None:
        return None
    earlier = made_by(story, same_numbers(story, labels[1], layer.step), layer.step)
    if earlier is None or earlier.name not in LAYERS or earlier.step >= layer.step:
        return None
    before, state = earlier.operands[0].label, same_numbers(story, labels[1], layer.step)
    is_state = state in earlier.results[1:] and not _is_bidirectional(story, earlier, state)
    if before is None or not is_state or _weights(story, layer) != _weights(story, earlier):
        return None
    long, short = story.shape(labels[0], layer.step) or (), story.shape(before, earlier.step) or ()
    axis = _grown(long, short)
    if axis is None or axis == len(long) - 1:
        return None
    if not _begins_with(story, (labels[0], layer.step), (before, earlier.step)):
        return None
    call = _call(story, layer)
    span = story.program.place(call) if call is not None else story.span(layer.step)
    return ReadAgain(layer, earlier, long[axis], short[axis], call, span)


def _is_bidirectional(story: Story, layer: Event, state: str) -> bool:
    out, own = story.shape(layer.results[0], layer.step) or (), story.shape(state, layer.step) or ()
    return out[-1:] != own[-1:]


def _weights(story: Story, layer: Event) -> list[str]:
    """The labels of the layer's parameters."""
    labels = [o.label for o in layer.operands if o.label is not None]
    return [each for each in labels if (story.tensor(each, layer.step) or {}).get("kind") == "parameter"]


def _grown(long: tuple[int, ...], short: tuple[int, ...]) -> int | None:
    """The only axis along which the shapes differ, if the first shape is longer there; else None."""
    axes = [axis for axis, (a, b) in enumerate(zip(long, short, strict=False)) if a != b]
    return axes[0] if len(long) == len(short) and len(axes) == 1 and long[axes[0]] > short[axes[0]] else None


def _begins_with(story: Story, later: tuple[str, int], earlier: tuple[str, int]) -> bool:
    """Whether a sequence begins with the same steps as an earlier one: both are labels with the step of their use.

    Followed back through equal calls to a tensor that was joined to the earlier one, or of which both are the start.
    """
    for _ in range(FURTHER):
        if later[0] == earlier[0] or _is_start(story, later, earlier):
            return True
        made, other = made_by(story, *later), made_by(story, *earlier)
        if made is None or (other is not None and _has_more(made, other)):
            return made is not None
        before = _before(story, (later, made), (earlier, other))
        if before is None:
            return False
        later, earlier = before
    return False


def _before(
    story: Story, later: tuple[tuple[str, int], Event], earlier: tuple[tuple[str, int], Event | None]
) -> tuple[tuple[str, int], tuple[str, int]] | None:
    """What two tensors were made of that decides whether one begins with the other; each is given by its label and the
    step of its use, and the call that made it. None if the calls do not show it.
    """
    (one, made), (two, other) = later, earlier
    given, others = _labels(made), _labels(other)
    if made.name in JOINS and given and _is_longer(story, one, (given[0], made.step), two):
        return (given[0], made.step), two
    pairs = [(a, b) for a, b in zip(given, others, strict=False) if a != b]
    if other is not None and other.name == made.name and len(given) == len(others) and len(pairs) == 1:
        return (pairs[0][0], made.step), (pairs[0][1], other.step)
    if made.name in PLAIN and len(given) == 1 and given[0] != one[0]:
        return (given[0], made.step), two
    if other is not None and other.name in PLAIN and len(others) == 1 and others[0] != two[0]:
        return one, (others[0], other.step)
    return None


def _has_more(made: Event, other: Event) -> bool:
    """Whether a call was given the list of tensors, or of numbers, of the other call, with more of them at the end."""
    if made.name in MADE and other.name in MADE:
        texts = [(event.operands[0].text if event.operands else "").rstrip("]") for event in (made, other)]
        return bool(texts[1]) and "…" not in texts[1] and texts[0].startswith(f"{texts[1]},")
    given, others = _labels(made), _labels(other)
    joined = made.name == other.name and made.name in JOINS | {"stack"}
    return joined and len(given) > len(others) and given[: len(others)] == others


def _labels(event: Event | None) -> list[str]:
    return [o.label for o in event.operands if o.label is not None] if event is not None else []


def _is_longer(story: Story, later: tuple[str, int], first: tuple[str, int], earlier: tuple[str, int]) -> bool:
    """Whether ``later`` was made by joining more steps to the end of ``first``, which has at least as many steps as
    ``earlier``.
    """
    joined, own, shape = (story.shape(*each) or () for each in (later, first, earlier))
    axis = _grown(joined, own)
    return axis is not None and axis == _grown(joined, shape) and own[axis] >= shape[axis]


def _is_start(story: Story, later: tuple[str, int], earlier: tuple[str, int]) -> bool:
    """Whether two tensors begin at the same element of one storage with the same strides, and the later one is longer
    along exactly one axis.
    """
    one, two = story.tensor(*later) or {}, story.tensor(*earlier) or {}
    alike = all(one.get(each) == two.get(each) for each in ("storage", "offset", "stride"))
    return alike and bool(one) and _grown(tuple(one.get("shape") or ()), tuple(two.get("shape") or ())) is not None


def _call(story: Story, layer: Event) -> ast.Call | None:
    """The outermost call of the program around a layer whose statement assigns the state that it was given; None if
    there is none.
    """
    found = None
    for count in range(len(layer.scope), -1, -1):
        caller = tuple(layer.scope[:count])
        inner = count == len(layer.scope)
        node = story.program.at(story.span(layer.step)) if inner else call_in(story, caller, layer)
        if node is None:
            node = _only_call(story, caller)
        if isinstance(node, ast.Call) and _state_argument(story, node) is not None:
            found = node
    return found


def _only_call(story: Story, caller: tuple[str, ...]) -> ast.Call | None:
    """The only call in a function of the program (``caller`` is its stack of names) whose statement assigns the state
    that it was given; None if there is none, or several.
    """
    name = caller[-1].rsplit(".", 1)[-1] if caller else None
    calls = [
        node.value
        for node in story.program.nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and (around.name if (around := story.program.function(node)) else None) == name
        and _state_argument(story, node.value) is not None
    ]
    return calls[0] if len(calls) == 1 else None


def _state_argument(story: Story, node: ast.Call) -> ast.AST | None:
    """The argument or keyword of a call, after the first one, that the call's own statement assigns again, together
    with another result; None if there is none.
    """
    statement = story.program.statement(node)
    if not isinstance(statement, ast.Assign) or statement.value is not node:
        return None
    targets = {story.program.segment(each) for target in statement.targets for each in flat_targets(target)}
    given = [(each, each) for each in node.args] + [(each, each.value) for each in node.keywords]
    if len(targets) < PAIR:
        return None
    for argument, value in given[1:]:
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        if parts and all(story.program.segment(part) in targets for part in parts):
            return argument
    return None


def _finding(story: Story, found: ReadAgain) -> Finding:
    step = found.layer.step
    here = at_line(story, found.span)
    first = T(en=f"the first {found.known}", zh=f"前 {found.known} 步")
    if found.known == 1:
        first = T(en="the first one", zh="第 1 步")
    known = T(en=f"this state has read {first.en}", zh=f"这个状态已经读过{first.zh}")
    return RULE.finding(
        found.span,
        step,
        T(
            en=f"{capital(here.en)} lets the layer read all {found.steps} steps of the sequence from the start, but "
            f"begins with a state that has read {first.en} of them already.",
            zh=f"{here.zh}让这一层从头读完序列的全部 {found.steps} 步，但起始状态已经读过其中的{first.zh}。",
        ),
        T(
            en="The state stands for all that the layer has read. Here the sequence is made longer at its end and read "
            "from its beginning again, and the state is handed on as well. From the second time on, the layer goes on "
            "from the end of the sequence to its beginning, as if that followed. Hand on the state and give it the new "
            "steps only, or give it the whole sequence and let it begin with zeros.",
            zh="状态代表这一层读过的全部内容。这里序列在末尾变长，每次都从头再读，同时又把状态传下去。从第二次起，这一层从"
            "序列末尾接着读到开头，好像开头接在末尾之后。请传递状态而只输入新的几步，或者输入整个序列而让它从零开始。",
        ),
        related=[story.related("made", found.earlier.step, known)],
        fixes=_fixes(story, found),
        facts=[Fact("steps", found.steps, story.by(step)), Fact("known", found.known, story.by(step))],
    )


def _fixes(story: Story, found: ReadAgain) -> tuple[Fix, ...]:
    """A fix that leaves the state out of the call; empty if it is not found in the program's source."""
    program, node = story.program, found.call
    argument = _state_argument(story, node) if node is not None else None
    if node is None or argument is None or any(isinstance(each, ast.Starred) for each in node.args):
        return ()
    rest = [program.segment(each) for each in (*node.args, *node.keywords) if each is not argument]
    if node.args and argument in node.args and node.args[-1] is not argument:
        return ()
    new = f"{program.segment(node.func)}({', '.join(rest)})"
    title = T(en=f"Begin with zeros: `{new}`", zh=f"从零开始：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL478",
    name="state-has-read-this",
    severity="warning",
    title=T(
        en="A whole sequence is read again from a state that has read it",
        zh="已经读过序列的状态又从头读整个序列",
    ),
    what=T(
        en="A program generates or forecasts step by step with an RNN, GRU or LSTM. It appends each new step to the "
        "sequence, gives the layer all of it, and hands on the hidden state as well, which has read most of it "
        "before. Hand on the state with the new step only, or begin with zeros and give the whole sequence.",
        zh="程序用 RNN、GRU 或 LSTM 逐步生成或预测：把每个新的一步接到序列后面，把整个序列输入，同时还传递隐藏状态，"
        "而这个状态已经读过其中大部分。请只把新的一步和状态一起传入，或者从零开始并输入整个序列。",
    ),
    why=T(
        en="Attention has no state, so generation with a transformer gives it all tokens each time (or keeps them in a "
        "cache); a recurrent layer keeps what it needs in its state. Both at once fit in shape, "
        "and the first round is right, so nothing is raised, and the text only gets worse.",
        zh="注意力没有状态，所以用 Transformer 生成时每次都输入全部词元（或保存在缓存里）；循环层则把需要的内容留在状态"
        "里。两者同时用，形状也都合适，第一轮还是对的，所以不报错，只是生成的内容变差。",
    ),
    bad="""import torch

torch.manual_seed(0)
layer = torch.nn.GRU(2, 2, batch_first=True)
series, state = torch.randn(1, 3, 2), None
with torch.no_grad():
    for _ in range(4):
        out, state = layer(series, state)  # PL478 made
        series = torch.cat([series, out[:, -1:]], dim=1)
print(series[0, -1])
""",
    good="""import torch

torch.manual_seed(0)
layer = torch.nn.GRU(2, 2, batch_first=True)
series, state = torch.randn(1, 3, 2), None
with torch.no_grad():
    for _ in range(4):
        out, state = layer(series)
        series = torch.cat([series, out[:, -1:]], dim=1)
print(series[0, -1])
""",
    find=find,
    traps=(
        Trap(
            "out, state = layer(series, state)",
            "out, state = layer(series, state)\n        state = state.clone()",
            T(
                en="A copy of the state has read the same steps.",
                zh="状态的副本读过的是同样的几步。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html",),
)
