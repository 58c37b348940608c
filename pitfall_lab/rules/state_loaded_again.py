"""PL690: a state was loaded into an optimizer a second time, after the first one's steps had changed it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import LoadedAgain, Span, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that gives an optimizer a state whose tensors an optimizer had been given before,
    and had written since, if a backward follows.
    """
    reported = set[Span | None]()
    for loaded in story.trace.beside.loaded_again:
        trained = any(backward.step >= loaded.step for backward in story.backwards())
        if loaded.span not in reported and trained:
            reported.add(loaded.span)
            yield _finding(story, loaded)


def _finding(story: Story, loaded: LoadedAgain) -> Finding:
    kind = story.trace.optimizers[loaded.optimizer].optimizer
    here, first = at_line(story, loaded.span), at_line(story, loaded.first)
    again = loaded.first == loaded.span
    before = T(en="it", zh="它") if again else first
    return RULE.finding(
        loaded.span,
        loaded.step,
        T(
            en=f"{capital(here.en)} loads a state into the `{kind}` that {before.en} had loaded before, and the steps "
            f"since then have changed it: {loaded.count} of its tensors, `{loaded.entry}` for example.",
            zh=f"{here.zh}把一个状态载入 `{kind}`，而{before.zh}以前已经载入过它，此后的步进改变了它：其中 "
            f"{loaded.count} 个张量，例如 `{loaded.entry}`。",
        ),
        T(
            en="`load_state_dict` of an optimizer copies no tensor of the right type: it uses the tensors of "
            "the state that it is given, and its steps write them in place. So the kept state follows the "
            "training, and the second loading does not go back. Modules copy, optimizers do not.",
            zh="优化器的 `load_state_dict` 不复制类型相符的张量：优化器直接使用给它的状态中的张量，步进时就地写入。于是"
            "保存的状态跟着训练走，第二次载入并没有回到从前。模块会复制，优化器不会。",
        ),
        related=[]
        if again
        else [Related("made", loaded.first, None, T(en="the state is loaded first here", zh="状态第一次在这里载入"))],
        fixes=_fixes(story, loaded),
        facts=[Fact("tensors", loaded.count), Fact("entry", loaded.entry)],
    )


def _fixes(story: Story, loaded: LoadedAgain) -> tuple[Fix, ...]:
    """A fix that loads a deep copy of the state at both places in the source; empty if the program's source shows no
    such call.
    """
    program = story.program
    calls = [call_of(story, span) for span in dict.fromkeys((loaded.first, loaded.span))]
    if any(call is None or len(call.args) != 1 for call in calls):
        return ()
    imported = any(
        isinstance(node, ast.Import) and any(each.name == "copy" and each.asname is None for each in node.names)
        for node in program.nodes
    )
    function = "copy.deepcopy" if imported else '__import__("copy").deepcopy'
    given = [call.args[0] for call in calls if call is not None]
    new = [f"{function}({program.segment(node)})" for node in given]
    title = T(en=f"Load a copy: `{new[-1]}`", zh=f"载入副本：`{new[-1]}`")
    return unique(program.text, [Fix(title, program.replace(*zip(given, new, strict=True)), meaning="later")])


RULE = Rule(
    code="PL690",
    name="state-loaded-again",
    severity="warning",
    title=T(
        en="An optimizer's kept state had been changed by the steps after it was loaded",
        zh="优化器状态载入之后被步进改变，又再次载入",
    ),
    what=T(
        en="A program keeps a copy of an optimizer's state and goes back to it several times. The optimizer does not "
        "copy what it loads: its next steps write into the kept state. The second time, the state of the last run is "
        "loaded. Load `copy.deepcopy(state)`.",
        zh="程序保存了优化器状态的副本，并多次回到它。优化器并不复制载入的内容：接下来的步进就写在保存的状态里。第二次载入的"
        "其实是上一轮结束时的状态。请载入 `copy.deepcopy(state)`。",
    ),
    why=T(
        en="`Module.load_state_dict` copies the numbers into parameters that exist already. An optimizer may have no "
        "state yet, so it takes the tensors that it is given (converted where type or device differ, which makes a "
        "copy by chance). Comparing learning rates, or restarting from a checkpoint in memory, then begins each run "
        "with the averages of the one before.",
        zh="`Module.load_state_dict` 把数复制进已有的参数。优化器可能还没有状态，于是直接采用给它的张量（类型或设备"
        "不同时要转换，才碰巧成了副本）。比较几个学习率，或者从内存里的检查点重新开始时，每一轮都带着上一轮的平均值起步。",
    ),
    bad="""import copy
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
def fit(steps):
    for _ in range(steps):
        loss = (model(x) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()
fit(3)
weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())
for _ in range(3):
    model.load_state_dict(weights)
    opt.load_state_dict(state)  # PL690
    print(fit(3))
""",
    good="""import copy
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
def fit(steps):
    for _ in range(steps):
        loss = (model(x) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()
fit(3)
weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())
for _ in range(3):
    model.load_state_dict(weights)
    opt.load_state_dict(copy.deepcopy(state))
    print(fit(3))
""",
    find=find,
    traps=(
        Trap(
            "copy.deepcopy(opt.state_dict())",
            "copy.deepcopy(copy.deepcopy(opt.state_dict()))",
            T(
                en="One kept copy is loaded each time, however it was made.",
                zh="每次载入的都是同一份保存的副本，不管它是怎么来的。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html",),
)
