"""PL850: the spread of several samples is computed, and they are all equal: the random numbers that
were to differ are the same.
"""

from __future__ import annotations

import ast
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.modes import DROPOUTS
from pitfall_lab.rules.signals.optimizer_steps import copied_from
from pitfall_lab.rules.signals.seeds import INITS, drawn, made_once, seeding
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, argument, values, whole
from pitfall_lab.trace import Event, Span, T

SPREADS = ("std", "var", "std_mean", "var_mean", "quantile", "nanquantile")
"""Statistics that measure a spread."""
DRAWN = {
    "randn",
    "rand",
    "randn_like",
    "rand_like",
    "normal",
    "bernoulli",
    "randint",
    "poisson",
    "normal_",
    "uniform_",
    *INITS,
}
"""Calls that draw random numbers."""
VMAP = "torch.func.vmap"
FEWEST, UPWARD = 3, 300
NEAR = 1e-5
"""A spread below this part of the numbers themselves is one of rounding."""


@dataclass(frozen=True, slots=True)
class SpreadOfEqualSamples:
    """Why samples whose spread is computed are all equal; ``span`` is the place in the source that made them so,
    ``step`` the step of the trace.

    ``says`` is what it does, as a part of a sentence, and ``why`` the explanation (both in two languages); ``fixes``
    are the repairs.
    """

    span: Span | None
    step: int
    says: T
    why: T
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class Samples:
    """``count`` samples: the results that the call ``event`` (an ``Event``) computed for all of them at once.

    If ``event`` only joined single tensors, ``each`` are the labels of these, at least the first ones; else it is
    empty.
    """

    count: int
    event: Event
    each: tuple[str, ...] = ()


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that makes all samples equal (dropout in evaluation mode, one seed for all, one
    draw for all) although the program computes their spread, such as ``std(0)``, which is known to be 0.
    """
    reported = set()
    for event in story.calls(*SPREADS):
        samples = _samples(story, event) if event.error is None and event.results else None
        if samples is None or not _is_nothing(story, event):
            continue
        cause = _cause(story, samples)
        if cause is not None and cause.span not in reported:
            reported.add(cause.span)
            yield _finding(story, event, samples, cause)


def _samples(story: Story, event: Event) -> Samples | None:
    """The samples whose spread ``event`` computes, along axis 0: of a stack (or ``cat``), of a vmap, or of a mean,
    median or sum over the other axes. Whether they were computed from random numbers is not looked at here.

    None for anything else, or for fewer than ``FEWEST``.
    """
    label, shape = event.operands[0].label, story.shape(event.operands[0].label, event.step) or ()
    axis = whole(argument(event, "dim", 2 if "quantile" in event.name else 1))
    if (
        not shape
        or shape[0] < FEWEST
        or (axis is None and math.prod(shape) != shape[0])
        or (axis or 0) % len(shape) != 0
    ):
        return None
    step = event.step
    for _ in range(10):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is None or label not in made.results:
            return None
        given = tuple(o.label for o in made.operands if o.label is not None)
        if made.op == VMAP:
            return Samples(shape[0], made)
        complete = len(given) == shape[0] or (
            made.name == "stack" and FEWEST <= len(given) < shape[0]
        )  # the first ones
        if made.name in ("stack", "cat") and complete and len(set(given)) == len(given):
            return Samples(shape[0], made, given)
        reduces = (
            made.name in ("mean", "median", "sum") and (story.shape(given[0], made.step) or (0,))[0] == shape[0]
            if given
            else False
        )
        if reduces:
            return Samples(shape[0], made)
        if made.name not in SAME_NUMBERS or not given or (story.shape(given[0], made.step) or (0,))[0] != shape[0]:
            return None
        label, step = given[0], made.step
    return None


def _is_nothing(story: Story, event: Event) -> bool:
    """Whether the spread is known, and is 0 or as small as rounding makes it; for quantiles, whether they are equal up
    to rounding.
    """
    held = _numbers(story, event.results[0], event.step)
    size = max((abs(value) for value in _numbers(story, event.operands[0].label, event.step)), default=0.0)
    size = size or _typical(story, event.operands[0].label, event.step)
    if event.name.endswith("quantile"):
        within = len(held) > 1 and len(story.shape(event.results[0], event.step) or ()) == 1
        return (within and max(held) - min(held) <= NEAR * size) or _are_equal(story, event)
    return bool(held) and size > 0 and all(abs(value) <= NEAR * size for value in held)


def _are_equal(story: Story, event: Event) -> bool:
    """Whether two quantiles of the same samples, of which ``event`` computes one, are known and equal.

    Both of a table with several numbers for each sample, along the first axis.
    """
    own = Elements(story, event.results[0], event.step)
    mine = dict(own.known())
    for other in story.uses(event.operands[0].label):
        same = other.name == event.name and other.step != event.step and other.error is None
        if not same or [o.text for o in other.operands[1:2]] == [o.text for o in event.operands[1:2]]:
            continue
        if whole(argument(other, "dim", 2)) != whole(argument(event, "dim", 2)):
            continue
        theirs = dict(Elements(story, other.results[0], other.step).known())
        pairs = [(mine[index], theirs[index]) for index in mine if index in theirs]
        if len(pairs) == math.prod(own.shape) > 0 and any(pair[0] for pair in pairs):
            return all(abs(a - b) <= NEAR * max(abs(a), abs(b)) for a, b in pairs)
    return False


def _typical(story: Story, label: str | None, step: int) -> float:
    """The largest absolute value among the means and medians that the program computed of this tensor.

    They stand for the size of its values where the trace has none (it records no values of large tensors). 0 if the
    trace has its values, or no such result is known.
    """
    if label is None or _numbers(story, label, step):
        return 0.0
    means = (
        use
        for use in story.uses(label)
        if use.name in ("mean", "median") and use.operands[:1] and use.operands[0].label == label
    )
    return max((abs(v) for use in means for r in use.results[:1] for v in _numbers(story, r, use.step)), default=0.0)


def _numbers(story: Story, label: str | None, step: int) -> list[float]:
    return [value for value in values(story, label, step) if math.isfinite(value)]


def _cause(story: Story, samples: Samples) -> SpreadOfEqualSamples | None:
    if samples.event.op == VMAP:
        return _same_for_all(story, samples.event) or _copied(story, _stacked(story, samples))
    if not samples.each:
        return _permutations(story, samples)
    behind = [_behind(story, label, samples.event.step) for label in samples.each]
    if all(any(_draws_all(story, event) for event in events) for events in behind):
        return _permutations(story, samples)
    return (
        _dropout_off(story, behind)
        or _same_seed(story, behind)
        or _given_back(story, behind)
        or _copied(story, [_weights(story, events) for events in behind])
    )


def _behind(story: Story, label: str, step: int) -> list[Event]:
    """The calls that a sample was computed by, with those that initialised its weights and with dropouts that returned
    their input, in order.
    """
    found: dict[int, Event] = {}
    pending, seen = deque([(label, step)]), {label}
    while pending and len(seen) < UPWARD:
        here, at = pending.popleft()
        born = story.event((story.tensor(here, at) or {}).get("born"))
        own = [
            use for use in story.uses(here) if use.step < at and use.name in (*DROPOUTS, *INITS) and here in use.results
        ]
        for event in (*([born] if born is not None and here in born.results else []), *own):
            found[event.step] = event
            for operand in event.operands:
                if operand.label is not None and operand.label not in seen:
                    seen.add(operand.label)
                    pending.append((operand.label, event.step))
    return [found[at] for at in sorted(found)]


def _same_for_all(story: Story, vmap: Event) -> SpreadOfEqualSamples | None:
    """The cause if the program gives a ``vmap`` ``randomness="same"``: on the line of the call, or else anywhere; None
    if it does not.
    """
    program = story.program
    around = program.statement_at(vmap.span)
    calls = [n for n in ast.walk(around) if isinstance(n, ast.Call)] if around is not None else []
    calls += [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == "vmap" and n not in calls]
    said = next(
        (k for call in calls if call_name(call) == "vmap" for k in call.keywords if k.arg == "randomness"), None
    )
    if said is None or not isinstance(said.value, ast.Constant) or said.value.value != "same":
        return None
    text = program.segment(said.value)
    new = text.replace("same", "different")
    title = T(en=f"Draw for each of them: `randomness={new}`", zh=f"为每一个分别抽取：`randomness={new}`")
    return SpreadOfEqualSamples(
        program.place(said.value) if program.place(said.value).line != getattr(vmap.span, "line", None) else vmap.span,
        vmap.step,
        T(
            en='gives all of them the same random numbers (`randomness="same"`)',
            zh='给它们全部同样的随机数（`randomness="same"`）',
        ),
        T(
            en='`vmap` calls the function once for all. With `randomness="same"` a draw in it is made once and '
            'shared; with `"different"` it is made for each.',
            zh='`vmap` 对全部样本只调用一次函数。`randomness="same"` 时，其中的抽取只做一次，大家共用；`"different"` '
            "时为每个样本各做一次。",
        ),
        unique(program.text, [Fix(title, program.replace(*_beside(program, said)), meaning="later")]),
    )


def _beside(program: Program, said: ast.keyword) -> list[tuple[ast.AST, str]]:
    """The changes of ``randomness="same"`` to ``"different"``: of ``said``, and of every other ``vmap`` in its
    function whose result is called with the same arguments, such as that of the derivative of what is sampled.
    """

    def given(word: ast.keyword) -> list[str] | None:
        mapped = program.parents.get(word)
        called = program.parents.get(mapped) if mapped is not None else None
        if not isinstance(called, ast.Call) or called.func is not mapped:
            return None
        return [program.segment(each) for each in called.args]

    words = [
        word
        for call in program.nodes
        if isinstance(call, ast.Call) and call_name(call) == "vmap" and program.function(call) is program.function(said)
        for word in call.keywords
        if word.arg == "randomness" and isinstance(word.value, ast.Constant) and word.value.value == "same"
    ]
    same = [word for word in words if word is said or (given(said) is not None and given(word) == given(said))]
    return [(word.value, program.segment(word.value).replace("same", "different")) for word in same]


def _draws_all(story: Story, event: Event) -> bool:
    """Whether a call draws all elements, each once, so that only their order is random."""
    if event.name == "randperm":
        return True
    shape = story.shape(event.operands[0].label, event.step) if event.name == "multinomial" and event.operands else None
    return (
        bool(shape)
        and whole(argument(event, "num_samples", 1)) == (shape or (0,))[-1]
        and argument(event, "replacement", 2) in (None, "False")
    )


def _permutations(story: Story, samples: Samples) -> SpreadOfEqualSamples | None:
    """The cause if each sample has all elements, in another order, and was reduced to something that does not depend on
    the order.

    None if the samples were computed from no draw of all elements. The reduction itself is not looked at here.
    """
    label = samples.each[0] if samples.each else samples.event.results[0]
    draw = next((event for event in _behind(story, label, samples.event.step) if _draws_all(story, event)), None)
    if draw is None:
        return None
    program, torch = story.program, torch_name(story.program)
    node, changes = program.at(story.span(draw.step)), list[tuple[ast.AST, str]]()
    if (
        isinstance(node, ast.Call)
        and call_name(node) == "multinomial"
        and not any(k.arg == "replacement" for k in node.keywords)
    ):
        changes = [(node, f"{program.segment(node)[:-1].rstrip().rstrip(',')}, replacement=True)")]
    elif (
        isinstance(node, ast.Call)
        and call_name(node) == "randperm"
        and torch is not None
        and len(node.args) == 1
        and not node.keywords
    ):
        count = program.segment(node.args[0])
        changes = [(node, f"{torch}.randint({count}, ({count},))")]
    title = T(en="Draw with replacement", zh="有放回地抽取")
    return SpreadOfEqualSamples(
        story.span(draw.step),
        draw.step,
        T(en="draws without replacement as many as there are", zh="不放回地抽取，抽取的个数与总数相同"),
        T(
            en="Each of these samples has every element once, in another order, and what is computed of them does "
            "not depend on the order, as a mean or a fit does not. A bootstrap draws with replacement: some elements "
            "twice, others not at all.",
            zh="这样的每个样本都恰好包含每个元素一次，只是次序不同，而由它们算出的结果（如均值或拟合）与次序无关。自"
            "助法要有放回地抽取：有的元素抽到两次，有的一次也没有。",
        ),
        unique(program.text, [Fix(title, program.replace(*changes), meaning="later")]) if changes else (),
    )


def _dropout_off(story: Story, behind: list[list[Event]]) -> SpreadOfEqualSamples | None:
    """The cause if all samples went through a dropout that was switched off, and nothing else
    was drawn for them; else None.
    """
    off = [
        next((e for e in events if e.name in DROPOUTS and e.operands and e.operands[0].label in e.results), None)
        for events in behind
    ]
    first = off[0]
    if first is None or None in off or _own_draws(behind):
        return None
    program, span = story.program, story.span(first.step)
    switches = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and call_name(n) == "eval" and isinstance(n.func, ast.Attribute) and not n.args
    ]
    normalised = any(event.name == "batch_norm" for events in behind for event in events)
    title = T(
        en="Leave the network in training mode here: dropout is all that this changes",
        zh="这里让网络保持训练模式：它只影响 dropout",
    )
    fixes = []
    if len(switches) == 1 and not normalised and isinstance(switches[0].func, ast.Attribute):
        new = f"{program.segment(switches[0].func.value)}.train()"
        fixes = [Fix(title, program.replace((switches[0], new)), meaning="later")]
    return SpreadOfEqualSamples(
        span,
        first.step,
        T(
            en="drops nothing, because its dropout is in evaluation mode",
            zh="什么也没有丢弃，因为其中的 dropout 处于评估模式",
        ),
        T(
            en="In evaluation mode dropout returns its input, so the network computes the same each time. Samples of "
            "what it might have answered need dropout in training mode, and the other layers as they are.",
            zh="在评估模式下，dropout 原样返回输入，所以网络每次算出的结果都一样。要得到它“可能的回答”的样本，需要让 "
            "dropout 处于训练模式，而其他层保持原样。",
        ),
        unique(program.text, fixes),
    )


def _stacked(story: Story, samples: Samples) -> list[list[str]]:
    """For each sample of a ``vmap``, the labels of its weights in the stacks of all samples' weights; empty if none
    were stacked.

    The stacks are recognised by their shapes, and the last one of each shape counts, as a training in between may have
    replaced the stacks.
    """
    shapes = [story.shape(o.label, samples.event.step) for o in samples.event.operands if o.label is not None]
    stacks = [
        event
        for event in story.calls("stack")
        if event.step < samples.event.step
        and len(event.operands) >= samples.count
        and story.shape(event.results[0], event.step) in shapes
        and (story.shape(event.results[0], event.step) or (0,))[0] == samples.count
    ]
    last = {story.shape(event.results[0], event.step): event for event in stacks}
    labels = [[o.label for o in event.operands if o.label is not None] for event in last.values()]
    complete = [each for each in labels if len(each) == samples.count]
    return [[each[number] for each in complete] for number in range(samples.count)] if complete else []


def _weights(story: Story, behind: list[Event]) -> list[str]:
    """The parameters with which a sample was computed, in order."""
    labels = (o.label for event in behind for o in event.operands if o.label is not None)
    return [label for label in dict.fromkeys(labels) if (story.tensor(label) or {}).get("kind") == "parameter"]


def _copied(story: Story, weights: list[list[str]]) -> SpreadOfEqualSamples | None:
    """The cause if each sample has weights of its own, all copies of the same ones, or these themselves; else None."""
    if not weights or not all(weights) or len({label for each in weights for label in each}) < sum(map(len, weights)):
        return None
    copied = [[copied_from(story, label) for label in each] for each in weights]
    sources = {
        tuple(label if copy is None else copy[0] for label, copy in zip(each, copies, strict=True))
        for each, copies in zip(weights, copied, strict=True)
    }
    steps = [copy[1] for copies in copied for copy in copies if copy is not None]
    if len(sources) != 1 or not steps:
        return None
    program, span = story.program, story.span(min(steps))
    node = program.at(span)
    fixes = []
    if isinstance(node, ast.Call) and call_name(node) == "deepcopy" and len(node.args) == 1:
        made = [
            n.value
            for n in program.nodes
            if isinstance(n, ast.Assign) and [program.segment(t) for t in n.targets] == [program.segment(node.args[0])]
        ]
        if len(made) == 1 and isinstance(made[0], ast.Call):
            text = program.segment(made[0])
            title = T(en=f"Make a new one for each: `{text}`", zh=f"为每一个新建一个：`{text}`")
            fixes = [Fix(title, program.replace((node, text)), meaning="later")]
    return SpreadOfEqualSamples(
        span,
        min(steps),
        T(en="gives each of them a copy of the same first weights", zh="给它们每一个的都是同一组初始权重的副本"),
        T(
            en="Networks that begin with equal weights and see the same data in the same order stay equal to the last "
            "bit: together they are one network, and how far they agree says nothing of how sure it is. Give each its "
            "own random weights, or its own sample of the data.",
            zh="从相同权重出发、以相同次序看到相同数据的网络，会一直完全相同：它们合起来只是一个网络，彼此一致并不说明"
            "它有多确定。请给每一个各自的随机权重，或各自的数据样本。",
        ),
        unique(program.text, fixes),
    )


def _own_draws(behind: list[list[Event]]) -> bool:
    """Whether something was drawn for one sample that no other one has."""
    shared = set.intersection(*({event.step for event in events} for events in behind))
    return any(event.name in DRAWN and event.step not in shared for events in behind for event in events)


def _same_seed(story: Story, behind: list[list[Event]]) -> SpreadOfEqualSamples | None:
    """The cause if each sample has draws of its own, all with the same numbers.

    None if not, or if the program's source does not show where it seeds.
    """
    shared = set.intersection(*({event.step for event in events} for events in behind))
    own = [[event for event in events if event.name in DRAWN and event.step not in shared] for events in behind]
    drew = [[drawn(story, event) for event in events] for events in own]
    if not all(own) or any(each != drew[0] for each in drew) or None in drew[0]:
        return None
    program, first = story.program, own[0][0]
    seed = seeding(story, first, own[1][0])
    if seed is None:
        return None
    statement = program.statement(seed)
    title = T(en=f"Leave `{program.segment(seed)}` out here", zh=f"在这里去掉 `{program.segment(seed)}`")
    return SpreadOfEqualSamples(
        program.place(seed),
        first.step,
        T(en="seeds the generator anew for each of them", zh="为每一个重新设置随机种子"),
        T(
            en="From one seed follows one sequence of numbers: each sample then begins with the same weights, or the "
            "same noise, and is a copy of the first. Seed once, before all of them.",
            zh="同一个种子得到同一个数列：每个样本都从同样的权重或同样的噪声开始，成为第一个的复制品。请只在全部样"
            "本之前设置一次种子。",
        ),
        unique(program.text, [Fix(title, program.delete(statement), meaning="later")])
        if isinstance(statement, ast.Expr)
        else made_once(story, seed),
    )


def _given_back(story: Story, behind: list[list[Event]]) -> SpreadOfEqualSamples | None:
    """The cause if a fork or ``set_rng_state`` gives the generator its state back after each sample's own draws, the
    same calls in each.

    None if a sample has no draw of its own, or if there is neither a ``with`` of a fork around the first draw nor a
    ``set_rng_state`` in the same function.
    """
    shared = set.intersection(*({event.step for event in events} for events in behind))
    own = [[event for event in events if event.step not in shared and _draws(event)] for events in behind]
    if not all(own) or len({tuple(event.name for event in events) for events in own}) > 1:
        return None
    program, first = story.program, own[0][0]
    for statement in call_chain(story, first):
        for around in program.ancestors(statement):
            if not isinstance(around, ast.With):
                continue
            fork = next(
                (
                    i.context_expr
                    for i in around.items
                    if isinstance(i.context_expr, ast.Call) and _is_fork(i.context_expr)
                ),
                None,
            )
            if fork is not None:
                title = T(
                    en="Draw without `fork_rng`, which gives the state back", zh="不用会恢复状态的 `fork_rng` 来抽取"
                )
                fixes = [Fix(title, _without_block(program, around), meaning="later")] if len(around.items) == 1 else []
                return SpreadOfEqualSamples(
                    program.place(fork), first.step, _STATE, _STATE_WHY, unique(program.text, fixes)
                )
        function, calls = program.function(statement), [node for node in program.nodes if isinstance(node, ast.Call)]
        back = next(
            (call for call in calls if call_name(call) == "set_rng_state" and program.function(call) is function), None
        )
        line = program.statement(back)
        if back is not None and isinstance(line, ast.Expr):
            title = T(en=f"Leave `{program.segment(back)}` out here", zh=f"在这里去掉 `{program.segment(back)}`")
            fixes = [Fix(title, program.delete(line), meaning="later")]
            return SpreadOfEqualSamples(
                program.place(back), first.step, _STATE, _STATE_WHY, unique(program.text, fixes)
            )
    return None


_STATE = T(en="gives the generator the same state for each of them", zh="让随机数发生器在每一个之前都处于同样的状态")
_STATE_WHY = T(
    en="A generator that gets back the state it had before draws the same numbers again, and dropout drops the "
    "same units: every sample is a copy of the first. Keep the state once, around all of them, if what comes "
    "later must not change.",
    zh="随机数发生器回到之前的状态后，会再次抽到同样的数，dropout 也丢弃同样的单元：每个样本都是第一个的复制品。如果之"
    "后的程序不应受影响，请只在全部样本外面保存一次状态。",
)


def _draws(event: Event) -> bool:
    """Whether a call drew numbers, or dropped some: a dropout that is switched off returns its input."""
    dropped = event.name in DROPOUTS and bool(event.operands) and event.operands[0].label not in event.results
    return event.name in DRAWN or dropped


def _is_fork(call: ast.Call) -> bool:
    return call_name(call) == "fork_rng"


def _without_block(program: Program, block: ast.With) -> tuple[Edit, ...]:
    """The edits that leave out the head of a ``with`` statement and move its body to where the head began."""
    body = program.lines[block.body[0].lineno - 1 : block.body[-1].end_lineno]
    inner, outer = program.indent(block.body[0]), program.indent(block)
    lines = [line.rstrip("\r\n") for line in body]
    text = "\n".join(outer + line.removeprefix(inner) for line in lines)
    return program.replace((block, text.removeprefix(outer)))


def _finding(story: Story, spread: Event, samples: Samples, cause: SpreadOfEqualSamples) -> Finding:
    here, there = at_line(story, cause.span), at_line(story, story.span(spread.step))
    exact = not any(_numbers(story, spread.results[0], spread.step)) and not spread.name.endswith("quantile")
    much = T(en="is 0", zh="是 0") if exact else T(en="is nothing but rounding", zh="只是舍入误差")
    return RULE.finding(
        cause.span,
        cause.step,
        T(
            en=f"{capital(here.en)} {cause.says.en}: the {samples.count} samples are equal, and the spread that "
            f"{there.en} computes {much.en}.",
            zh=f"{here.zh}{cause.says.zh}：{samples.count} 个样本相等，{there.zh}算出的离散程度{much.zh}。",
        ),
        cause.why,
        related=[
            story.related("used", spread.step, T(en="their spread is computed here", zh="在这里计算它们的离散程度"))
        ],
        fixes=cause.fixes,
        facts=[Fact("samples", samples.count, story.by(spread.step))],
    )


RULE = Rule(
    code="PL850",
    name="spread-of-equal-samples",
    severity="warning",
    title=T(en="The spread of samples is 0, because they are all equal", zh="样本全部相等，离散程度为 0"),
    what=T(
        en="A program repeats a random computation, to see how far its results lie apart, and all of them are the "
        "same: the random part is switched off, shared, begun anew with one seed, or drawn so that it makes no "
        "difference. The uncertainty that it reports is 0. Let each sample draw numbers of its own.",
        zh="程序重复一个随机的计算，想看结果相差多远，而所有结果都一样：随机的部分被关掉、共用、每次从同一个种子重新开"
        "始，或者抽取的方式使它不起作用。它报告的不确定性于是为 0。请让每个样本各自抽取。",
    ),
    why=T(
        en="Torch draws all its random numbers from generators with a state. A layer in evaluation mode draws none. "
        '`vmap(randomness="same")` draws once for all examples. `manual_seed` sets the state back, so equal calls '
        "follow with equal numbers. And `multinomial` draws *without* replacement unless it gets `replacement=True`: "
        "as many as there are is all of them, in some order.",
        zh='torch 的随机数都来自带状态的发生器。处于评估模式的层什么也不抽。`vmap(randomness="same")` 为全部样本只抽'
        "一次。`manual_seed` 把状态放回，于是之后同样的调用得到同样的数。而 `multinomial` 默认*不放回*地抽取，除非给"
        "出 `replacement=True`：抽取与总数相同的个数，得到的就是全部元素，只是次序不同。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(8)
means = []
for _ in range(20):
    sample = x[torch.randperm(8)]  # PL850
    means.append(sample.mean())
print(torch.stack(means).std())  # used
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(8)
means = []
for _ in range(20):
    sample = x[torch.randint(8, (8,))]
    means.append(sample.mean())
print(torch.stack(means).std())
""",
    find=find,
    traps=(
        Trap(
            "for _ in range(20)",
            "for _ in range(200)",
            T(en="More samples of the same kind are as equal.", zh="同样的样本再多，仍然相等。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.vmap.html",
    ),
)
