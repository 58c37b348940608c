"""PL628: all units of a layer began with one constant, get the same gradient in every iteration, and stay equal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.trace import Event, T

FILLS = ("constant_", "fill_", "ones_", "full", "ones", "ones_like", "full_like", "new_full", "new_ones")
"""Calls that give all elements one number."""
ROUNDS = 3
FEWEST = 2
NEAR = 1e-6
LAYERS = {"linear", "conv1d", "conv2d", "conv3d"}
"""Layers whose weight has one row for each unit."""


@dataclass(frozen=True, slots=True)
class UnitsStayEqual:
    """``filled`` is the call (``Event``) that gave all elements of the weight labelled ``weight`` one number.
    ``result``, the last call of its layer, still gives equal numbers, ``units``, for the units; ``rounds`` is the
    number of all backwards that gave the weight a gradient.

    Where the results are not known, ``units`` are numbers of the weight itself or of the bias, one for each unit.
    ``of`` is a text that says which numbers they are.
    """

    weight: str
    filled: Event
    result: Event
    units: list[float]
    rounds: int
    of: T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that filled a layer's weight, held by an optimizer, with one number, if its units
    are still equal after at least ``ROUNDS`` iterations.
    """
    held = dict.fromkeys(label for update in story.trace.optimizer_steps for label in update.holds)
    told = set()
    for weight in held:
        filled = _filled(story, weight) if len(story.shape(weight) or ()) > 1 else None
        place = story.span(filled.step) if filled is not None else None
        found = _equal(story, weight, filled) if filled is not None and place not in told else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _filled(story: Story, weight: str) -> Event | None:
    """The last call that filled the weight with one number before its first gradient.

    None if there is none, if anything wrote the weight between that call and the first backward, or if fewer than
    ``ROUNDS`` backwards reached the weight.
    """
    storage = (story.tensor(weight) or {}).get("storage")
    added = [m.step for m in lives(story).get(weight, ()) if m.kind == "added"]
    if len(added) < ROUNDS or storage is None:
        return None
    fills = [
        e
        for e in story.calls(*FILLS)
        if e.step < added[0] and storage in (*e.writes, *(_memory(story, r) for r in e.results))
    ]
    return fills[-1] if fills and not story.writes(str(storage), fills[-1].step, added[0]) else None


def _memory(story: Story, label: str) -> str | None:
    return (story.tensor(label) or {}).get("storage")


def _equal(story: Story, weight: str, filled: Event) -> UnitsStayEqual | None:
    """The data of the finding if the weight's layer returns the same number for all its units, and not 0; else None.

    This must hold for the first of its results and for the last one. If the results are too large for the trace, the
    weights must be equal after the last round and differ from the number that they were filled with.
    """
    added = [m.step for m in lives(story)[weight] if m.kind == "added"]
    layers = [
        use for use in story.uses(weight) if use.name in LAYERS and use.results and use.operands[1].label == weight
    ]
    late = [use for use in layers if use.step > added[ROUNDS - 2]]
    if not late or (story.shape(weight) or (0,))[0] < FEWEST:
        return None
    units, of = (
        _units(story, late[-1]),
        T(en="{there} computes {shown}, … of one example", zh="{there}对一个样本算出 {shown}, …"),
    )
    if units and not _are_equal(_units(story, layers[0])):
        return None
    if not units:
        units, of = (
            _weights(story, weight, late[-1], filled),
            T(en="{shown}, … are one weight of each", zh="{shown}, … 是它们各自的一个权重"),
        )
    if not units and len(late[-1].operands) > 2 and late[-1].operands[2].label is not None:
        units, of = _biases(story, late[-1]), T(en="{shown}, … are their biases", zh="{shown}, … 是它们的偏置")
    return UnitsStayEqual(weight, filled, late[-1], units, len(added), of) if _are_equal(units) else None


def _are_equal(units: list[float]) -> bool:
    return (
        len(units) >= FEWEST and bool(units[0]) and all(abs(unit - units[0]) <= NEAR * abs(units[0]) for unit in units)
    )


def _units(story: Story, layer: Event) -> list[float]:
    """The known results of a layer's units for the first example; empty if fewer than ``FEWEST`` are known."""
    known = Elements(story, layer.results[0], layer.step).known()
    axis = len(story.shape(layer.results[0], layer.step) or ()) - 1 if layer.name == "linear" else 1
    units = [value for index, value in known if not any(index[:axis]) and not any(index[axis + 1 :])]
    return units if len(units) >= FEWEST else []


def _weights(story: Story, weight: str, layer: Event, filled: Event) -> list[float]:
    """The weights of several units for one input, if for each input the known ones are equal, and they differ from the
    number that the weight was filled with; else empty.
    """
    columns: dict[tuple[int, ...], list[float]] = {}
    for index, value in Elements(story, weight, layer.step).known():
        columns.setdefault(index[1:], []).append(value)
    several = [units for units in columns.values() if len(units) >= FEWEST]
    began = {value for _, value in Elements(story, weight, filled.step).known()}
    return several[0] if several and all(map(_are_equal, several)) and several[0][0] not in began else []


def _biases(story: Story, layer: Event) -> list[float]:
    return [value for _, value in Elements(story, layer.operands[2].label, layer.step).known()]


def _finding(story: Story, found: UnitsStayEqual) -> Finding:
    filled = found.filled
    here, there = at_line(story, story.span(filled.step)), at_line(story, story.span(found.result.step))
    weight, count = called(story, found.weight, None, found.result.step), (story.shape(found.weight) or (0,))[0]
    shown = ", ".join(number(value) for value in found.units[:3])
    return RULE.finding(
        story.span(filled.step),
        filled.step,
        T(
            en=f"{capital(here.en)} fills {weight.en} with one number, and its {count} units are still equal after "
            f"{found.rounds} rounds: {found.of.en.format(there=there.en, shown=shown)}.",
            zh=f"{here.zh}用同一个数填满 {weight.zh}，{found.rounds} 轮之后它的 {count} 个单元仍然相等："
            f"{found.of.zh.format(there=there.zh, shown=shown)}。",
        ),
        T(
            en="Units with the same weights give the same output, and where the layer behind them treats them alike "
            "they get the same gradient. Each update keeps them equal, so the layer works as a single unit, however "
            "wide it is. Random numbers break the tie.",
            zh="权重相同的单元输出也相同；如果后面的层对它们一视同仁，它们的梯度也相同。每次更新都让它们保持相等，所以"
            "这一层无论多宽，都只相当于一个单元。随机数可以打破这种平局。",
        ),
        related=[
            story.related(
                "used", found.result.step, T(en="all units give the same number here", zh="所有单元在这里给出同一个数")
            )
        ],
        fixes=_fixes(story, filled),
        facts=[Fact("units", found.units[:3], story.by(found.result.step)), Fact("rounds", found.rounds)],
    )


def _fixes(story: Story, filled: Event) -> tuple[Fix, ...]:
    """At most one fix: it fills with random numbers instead of one constant; empty if the program's source does not
    show a call that fills.
    """
    program, torch = story.program, torch_name(story.program)
    for statement in call_chain(story, story.line_event(filled.step)) if torch is not None else ():
        for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
            name, new = call_name(call), ""
            if name in ("constant_", "ones_") and call.args:
                new = f"{torch}.nn.init.xavier_uniform_({program.segment(call.args[0])})"
            elif name == "fill_" and isinstance(call.func, ast.Attribute):
                new = f"{torch}.nn.init.xavier_uniform_({program.segment(call.func.value)})"
            elif name == "ones" and isinstance(call.func, ast.Attribute):
                new = f"{torch}.randn({', '.join(map(program.segment, call.args))})"
            if new:
                title = T(en=f"Start at random numbers: `{new}`", zh=f"从随机数开始：`{new}`")
                return unique(program.text, [Fix(title, program.replace((call, new)), meaning="later")])
    return ()


RULE = Rule(
    code="PL628",
    name="units-stay-equal",
    severity="warning",
    title=T(en="All units of a layer began equal and stay equal", zh="一层的所有单元开始时相等，并一直相等"),
    what=T(
        en="A program starts all weights of its layers at the same number. All units of a layer then compute "
        "the same, get the same gradient, and always stay equal, as if the layer had one unit. Start the "
        "weights at random numbers.",
        zh="程序让各层的所有权重都从同一个数开始。于是一层的所有单元算出同样的结果，得到同样的梯度，永远相等，就像这一"
        "层只有一个单元。请让权重从随机数开始。",
    ),
    why=T(
        en="Nothing in `x @ W.T` tells one row of `W` from another. If the rows are equal, and the next layer weighs "
        "them equally, then the chain rule gives each row the same gradient. Biases may begin as constants, and so "
        "may the scale of a normalization. `nn.Linear` starts at random numbers by itself: an initialization that "
        "looks tidy takes that away.",
        zh="`x @ W.T` 里没有任何东西能区分 `W` 的一行与另一行。如果各行相等，而下一层对它们一视同仁，链式法则"
        "给每一行的梯度就相同。偏置可以从常数开始，归一化的缩放也可以。`nn.Linear` 本来就从随机数开始：看似整"
        "齐的初始化反而把它去掉了。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
for layer in (net[0], net[2]):
    torch.nn.init.constant_(layer.weight, 0.1)  # PL628
    torch.nn.init.zeros_(layer.bias)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(8, 2)
y = x[:, :1] * x[:, 1:]
for _ in range(4):
    loss = (net(x) - y).square().mean()  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net[0].weight)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
for layer in (net[0], net[2]):
    torch.nn.init.xavier_uniform_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(8, 2)
y = x[:, :1] * x[:, 1:]
for _ in range(4):
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net[0].weight)
""",
    find=find,
    traps=(
        Trap(
            "layer.weight, 0.1",
            "layer.weight, 0.01",
            T(en="Another constant is as equal as the first one.", zh="换一个常数，仍然全都相等。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/nn.init.html",),
)
