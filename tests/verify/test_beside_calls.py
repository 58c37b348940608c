"""The trace knows what a program does with schedulers, loaded states, data loaders, and
attributes that torch never reads.
"""

from __future__ import annotations

import threading

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from pitfall_lab.observe import lookups
from pitfall_lab.trace import Trace
from pitfall_lab.trace.replay import states
from pitfall_lab.verify.program import trace_program

START = "import torch\nfrom torch import nn\nfrom torch.optim.lr_scheduler import *\nmodel = nn.Linear(2, 1)\n"
TRAIN = "def train():\n    model(torch.ones(1, 2)).sum().backward()\n    opt.step()\n"
MADE = START + "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n" + TRAIN


def test_a_scheduler_is_known_from_its_constructor_on_with_its_steps_and_the_rates_that_it_set() -> None:
    trace = trace_program(
        MADE + "slow = StepLR(opt, step_size=1, gamma=0.5)\nfor _ in range(5):\n    train()\n    slow.step()\n"
    )
    (slow,), (made,) = trace.beside.schedulers, trace.optimizers
    assert (slow.scheduler, slow.made, slow.optimizer, slow.steps, slow.count) == ("StepLR", True, 0, 5, "int")
    assert slow.span is not None
    assert (slow.span.line, dict(slow.settings)) == (9, {"step_size": 1.0, "gamma": 0.5, "base_lr": 0.1})
    assert [(each.span and each.span.line, each.after) for each in slow.first] == [(12, 1), (12, 2), (12, 3)]
    assert (made.steps, made.rates) == (5, ((0, 0.1), (1, 0.05), (2, 0.025), (3, 0.0125), (4, 0.00625)))
    assert Trace.from_json(trace.to_json()).beside == trace.beside


def test_a_scheduler_without_a_step_and_one_that_steps_others() -> None:
    idle = trace_program(MADE + "ExponentialLR(opt, 0.9)\ntrain()\n").beside.schedulers
    assert [(each.scheduler, each.made, each.steps) for each in idle] == [("ExponentialLR", True, 0)]
    pair = "both = SequentialLR(opt, [ConstantLR(opt), ConstantLR(opt)], milestones=[9])\n"
    several = trace_program(MADE + pair + "train()\nboth.step()\nReduceLROnPlateau(opt).step(1.0)\n").beside.schedulers
    stepped = {each.scheduler: (each.made, each.steps) for each in several[2:]}
    assert stepped == {"SequentialLR": (False, 1), "ReduceLROnPlateau": (False, 1)}
    given = trace_program(
        MADE
        + (
            "import warnings\n"
            "warnings.simplefilter('ignore')\n"
            "train()\n"
            "slow = StepLR(opt, 2)\n"
            "for _ in '12':\n"
            "    slow.step(0.5)\n"
        )
    ).beside.schedulers
    assert given[0].count == "float"


def test_a_loaded_state_is_known_also_where_nothing_of_it_fits() -> None:
    trace = trace_program(MADE + "model.load_state_dict({'weights': torch.ones(1)}, strict=False)\ntrain()\n")
    (loading,) = trace.beside.loadings
    assert (loading.module, loading.span and loading.span.line, loading.parameters, len(loading.holds)) == (
        "Linear",
        9,
        2,
        2,
    )


def test_attributes_that_torch_never_reads_are_found_when_an_optimizer_steps_and_at_the_end() -> None:
    program = MADE + (
        "model.require_grad = True\n"
        "model.requires_grad = False\n"
        "model.bias.trainable = False\n"
        "model.kept = True\n"
        "def rounds():\n"
        "    for number in range(6):\n"
        "        if number == 4:\n"
        "            opt.lr = 0.01\n"
        "        train()\n"
        "rounds()\n"
        "late = torch.ones(2)\n"
        "late.required_grad = True\n"
        "late.mul(2)\n"
    )
    strays = trace_program(program).beside.strays
    found = {(each.kind, each.attribute, each.meant, each.value, each.actual) for each in strays}
    assert found == {
        ("module", "requires_grad", "requires_grad", False, True),
        ("tensor", "trainable", "requires_grad", False, True),
        ("optimizer", "lr", "lr", 0.01, 0.1),
        ("tensor", "required_grad", "requires_grad", True, False),
    }


def test_a_pass_over_data_says_which_generators_of_the_dataset_stood_still() -> None:
    program = (
        "import torch, numpy as np\n"
        "from torch.utils.data import *\n"
        "class Noisy(Dataset):\n"
        "    def __init__(self):\n"
        "        self.rng, self.unused = np.random.default_rng(0), torch.Generator()\n"
        "    def __len__(self):\n"
        "        return 2\n"
        "    def __getitem__(self, index):\n"
        "        return self.rng.normal()\n"
        "loader = DataLoader(Subset(Noisy(), [0, 1]))\n"
    )
    drawing = trace_program(program + "for _ in range(2):\n    list(loader)\n").beside.passes
    assert [(each.kind, each.workers, each.generators, each.still) for each in drawing] == [
        ("Noisy", 0, ("rng",), ())
    ] * 2
    idle = trace_program(program + "for _ in range(2):\n    iter(loader)\n").beside.passes
    assert [each.still for each in idle] == [(), ("rng",)]


def test_torch_is_left_as_it_was_and_other_threads_are_not_listened_to() -> None:
    before = [vars(cls)[name] for _, cls, name in lookups._methods()]
    slow = torch.optim.lr_scheduler.ConstantLR(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0))

    def step_there() -> None:
        slow.step()

    def elsewhere() -> None:
        thread = threading.Thread(target=step_there)
        thread.start()
        thread.join()

    text = (
        "import warnings\n"
        "warnings.simplefilter('ignore')\n"
        "elsewhere()\n"
        "seen.append(step())\n"
        "raise ValueError('the program ends badly')\n"
    )
    seen: list[object] = []
    trace = trace_program(text, namespace={"elsewhere": elsewhere, "seen": seen, "step": lambda: LRScheduler.step})
    assert trace.beside.schedulers == ()
    assert seen == [LRScheduler.step], "what the program reads of the class is torch's own function"
    assert [vars(cls)[name] for _, cls, name in lookups._methods()] == before
    assert DataLoader.__iter__ in before


def test_what_torch_save_writes_is_known_with_its_storages() -> None:
    source = (
        MADE
        + """
import io
state = [{'net': model.state_dict()}, 'text', 3]
train()
opt.step()
torch.save(state, io.BytesIO())
torch.save({'new': torch.zeros(2)}, io.BytesIO())
torch.save('text', io.BytesIO())
"""
    )
    trace = trace_program(source)
    assert trace.outcome.kind == "finished"
    first, second = trace.beside.written
    *_, (_, last) = states(trace)
    of = {label: record["storage"] for label, record in last["tensors"].items()}
    assert {storage for _, storage in first.tensors} == {of[label] for label in trace.optimizer_steps[0].holds}
    assert [of[str(label)] for label, _ in first.tensors] == [storage for _, storage in first.tensors]
    assert len(second.tensors) == 1
    assert Trace.from_json(trace.to_json()).beside == trace.beside
