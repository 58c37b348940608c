"""PL726: an average of several models was computed in place in the state of one of them, which still computes with it
afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.trace import Event, T

ADDS = ("add_", "__iadd__", "lerp_", "sub_")
"""Writes that combine another model's numbers with those in the storage."""


@dataclass(frozen=True, slots=True)
class ClientStateOverwritten:
    """``write`` is the call (``Event``) that added another model's weights in place to the parameter labelled ``mine``;
    ``load`` is the call that copied the sum to another model.

    ``used`` is the first call after ``load`` that computes with ``mine``.
    """

    write: Event
    mine: str
    load: Event
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds in place the weights of one model to those of another, where a third
    model then gets the sum and the model that was added to still computes with it.

    Both operands are tensors that share the storage of a parameter, such as entries of a ``state_dict``. An optimizer
    must hold the parameter that was added to, and none that of the third model.
    """
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    told = set()
    for event in story.calls(*ADDS) if held else ():
        place = story.span(event.step)
        found = (
            _averaged(story, event, held)
            if place not in told and event.error is None and len(event.operands) > 1
            else None
        )
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _parameter(story: Story, label: str | None, step: int) -> str | None:
    """Return the parameter that has the storage and the shape of ``label``, an entry of a ``state_dict`` for example;
    None if there is none, or if ``label`` is a parameter itself.
    """
    record = story.tensor(label, step) or {}
    if record.get("kind") == "parameter" or record.get("storage") is None:
        return None
    others = story.tensors_on(record["storage"])
    return next((o for o, r in others if r.get("kind") == "parameter" and r.get("shape") == record.get("shape")), None)


def _averaged(story: Story, write: Event, held: set[str]) -> ClientStateOverwritten | None:
    mine, other = (_parameter(story, o.label, write.step) for o in write.operands[:2])
    if mine is None or other is None or mine == other or mine not in held:
        return None
    storage = (story.tensor(mine, write.step) or {}).get("storage")
    load = None
    for event in story.events[write.step + 1 :]:
        if event.kind != "call" or event.error is not None:
            continue
        if event.name == "copy_" and len(event.operands) > 1:
            target, source = ((story.tensor(o.label, event.step) or {}) for o in event.operands[:2])
            if target.get("storage") == storage:
                return None  # it gets values of its own again
            if source.get("storage") == storage and event.operands[0].label not in held:
                load = load or event
        elif (
            load is not None
            and any(o.label == mine for o in event.operands)
            and event.results
            and not event.op.endswith("__get__")
        ):
            computes = any(o.label not in (mine, None) for o in event.operands)
            return ClientStateOverwritten(write, mine, load, event) if computes and not event.writes else None
    return None


def _finding(story: Story, found: ClientStateOverwritten) -> Finding:
    write = found.write
    here, there = at_line(story, story.span(write.step)), at_line(story, story.span(found.used.step))
    loaded, name = at_line(story, story.span(found.load.step)), called(story, found.mine, None, write.step)
    return RULE.finding(
        story.span(write.step),
        write.step,
        T(
            en=f"{capital(here.en)} adds the weights of other models to {name.en} itself, and {there.en} still "
            f"computes with {name.en} as the weights of its own model.",
            zh=f"{here.zh}把其他模型的权重直接加到 {name.zh} 上，而{there.zh}仍把 {name.zh} 当作它"
            "自己模型的权重来计算。",
        ),
        T(
            en="`state_dict()` gives the tensors of the model and not copies. "
            f"`{statement_text(story, story.span(write.step))}` writes into them, so the first of the averaged models "
            f"is the average from here on; {loaded.en} copies it to where it was meant to go. Add up in copies.",
            zh="`state_dict()` 给出的是模型的张量本身，而不是副本。"
            f"`{statement_text(story, story.span(write.step))}` 写入的正是它们，所以从这里起，被平均的第一个模型就"
            f"成了平均值；{loaded.zh}再把它复制到本来要去的地方。请在副本上累加。",
        ),
        related=[
            story.related("changed", write.step, T(en="written here", zh="在这里写入")),
            story.related("copied", found.load.step, T(en="the average is loaded here", zh="在这里加载平均值")),
            story.related(
                "used",
                found.used.step,
                T(en="the model is used as if it were still its own", zh="仍把模型当作自己的来用"),
            ),
        ],
        fixes=_fixes(story, write),
        facts=[Fact("parameter", found.mine, story.by(write.step))],
    )


def _fixes(story: Story, write: Event) -> tuple[Fix, ...]:
    """At most one fix: it copies the dictionary where it is assigned; empty if the write is not of the form ``name[key]
    += …``.
    """
    program = story.program
    for statement in call_chain(story, story.line_event(write.step)):
        target = statement.target if isinstance(statement, ast.AugAssign) else None
        owner = target.value if isinstance(target, ast.Subscript) else None
        if owner is None or not is_name(owner):
            continue
        name, function = program.segment(owner), program.function(statement)
        made = [
            n
            for n in program.nodes
            if isinstance(n, ast.Assign)
            and program.function(n) is function
            and n.lineno < statement.lineno
            and any(program.segment(t) == name for t in n.targets)
        ]
        if made:
            text = f"{{k: v.clone() for k, v in {program.segment(made[-1].value)}.items()}}"
            title = T(en=f"Begin with copies: `{name} = {text}`", zh=f"从副本开始：`{name} = {text}`")
            return unique(program.text, [Fix(title, program.replace((made[-1].value, text)), meaning="later")])
    return ()


RULE = Rule(
    code="PL726",
    name="client-state-overwritten",
    severity="warning",
    title=T(
        en="An average was made in the weights of one of the averaged models", zh="平均值直接写进了被平均的模型之一"
    ),
    what=T(
        en="A program averages the weights of several models, and adds them up in the `state_dict()` of the first. "
        "That dictionary holds the first model's own tensors, so this model is overwritten, and is used afterwards as "
        "if it were not. Add up in copies.",
        zh="程序对几个模型的权重求平均，并在第一个模型的 `state_dict()` 里累加。那个字典里就是第一个模型自己的张量，所"
        "以这个模型被覆盖了，之后却还被当作原来的来用。请在副本上累加。",
    ),
    why=T(
        en="`state_dict()` returns detached tensors on the same memory, so that saving a model needs no second copy "
        "of it. `avg = states[0]` makes a second name for the dictionary, and `avg[k] += …` writes in place. The "
        "average itself is right, and so is the model that it is loaded into.",
        zh="`state_dict()` 返回的是同一块内存上分离出来的张量，这样保存模型时不需要第二份副本。`avg = states[0]` 只是"
        "给字典起了第二个名字，而 `avg[k] += …` 是就地写入。平均值本身没有错，加载它的模型也没有错。",
    ),
    bad="""import torch

torch.manual_seed(0)
server, clients = torch.nn.Linear(2, 1), [torch.nn.Linear(2, 1) for _ in range(2)]
x, y = torch.randn(6, 2), torch.randn(6, 1)
for client in clients:
    opt = torch.optim.SGD(client.parameters(), lr=0.1)
    (client(x) - y).square().mean().backward()
    opt.step()
states = [client.state_dict() for client in clients]
average = states[0]
for key in average:
    average[key] += states[1][key]  # PL726 changed
    average[key] /= 2
server.load_state_dict(average)  # copied
print([(client(x) - y).square().mean().item() for client in clients])  # used
""",
    good="""import torch

torch.manual_seed(0)
server, clients = torch.nn.Linear(2, 1), [torch.nn.Linear(2, 1) for _ in range(2)]
x, y = torch.randn(6, 2), torch.randn(6, 1)
for client in clients:
    opt = torch.optim.SGD(client.parameters(), lr=0.1)
    (client(x) - y).square().mean().backward()
    opt.step()
states = [client.state_dict() for client in clients]
average = {k: v.clone() for k, v in states[0].items()}
for key in average:
    average[key] += states[1][key]
    average[key] /= 2
server.load_state_dict(average)
print([(client(x) - y).square().mean().item() for client in clients])
""",
    find=find,
    traps=(
        Trap(
            "average = states[0]",
            "average = dict(states[0])",
            T(en="A new dictionary of the same tensors.", zh="新的字典，装的还是同样的张量。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
