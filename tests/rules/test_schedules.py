"""Schedules, loaded states, attributes and workers: pitfalls in other forms than on their pages, and right
programs that resemble them.
"""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import met, plain

HEAD = """import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import *
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)

def train(model, opt, x, y, schedule=None):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
    return loss
"""
DATA = "model, x, y = nn.Linear(3, 1), torch.randn(8, 3), torch.randn(8, 1)\n"
NOISY = """
import numpy as np
class Noisy(Dataset):
    def __init__(self, rng):
        self.rng = rng
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index + self.noise()
    def noise(self):
        return self.rng.normal()
"""

GROUPS = """
layers = [nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)]
model, x, y = nn.Sequential(*layers), torch.randn(8, 3), torch.randn(8, 1)
groups = [dict(params=layer.parameters()) for layer in layers]
def follow(functions):
    opt = SGD(groups, lr=0.1)
    schedule = LambdaLR(opt, functions){}
    for _ in range(3):
        train(model, opt, x, y)
        schedule.step()
"""

WRONG = {
    "a factor that each round of the loop computes": GROUPS.format("  # used") + """
def made(decay):
    functions = []
    for depth in range(3):
        scale = decay ** (2 - depth)
        functions.append(lambda step: scale / (step + 1))  # PL634
    return functions
follow(made(0.5))
""",
    "a factor that shrinks from round to round": GROUPS.format("  # used") + """
functions, scale = [], 1.0
while len(functions) < 3:
    functions.append(lambda step: scale / (step + 1))  # PL634
    scale *= 0.5
follow(functions)
""",
    "a cosine as long as all updates, stepped in each epoch": DATA + """
def main(epochs):
    opt = SGD(model.parameters(), lr=0.1)
    schedule = CosineAnnealingLR(opt, T_max=epochs * 4)  # made
    for _ in range(epochs):
        for rows in range(0, 8, 2):
            train(model, opt, x[rows:rows + 2], y[rows:rows + 2])
        schedule.step()  # PL674
main(3)
""",
    "attributes of a class, two names": """
class Trainer:
    def __init__(self, model):
        self.model, self.slow = model, AdamW(model.parameters(), lr=0.1)  # made
        self.schedule = LambdaLR(self.slow, lambda n: 0.5 ** n)  # PL617
        self.fast = AdamW(model.parameters(), lr=0.05)  # step
    def fit(self, x, y):
        for _ in range(3):
            train(self.model, self.fast, x, y)
            self.schedule.step()  # used
Trainer(nn.Linear(3, 1)).fit(torch.randn(8, 3), torch.randn(8, 1))
""",
    "a schedule in a function, never stepped": DATA + """
def main():
    opt = SGD(model.parameters(), lr=0.1)
    schedule = StepLR(opt, step_size=1, gamma=0.1)  # PL619
    for epoch in range(2):
        for _ in range(3):
            train(model, opt, x, y)
main()
""",
    "nothing left of the rate": DATA + """
def epoch(loader, opt, schedule):
    for x, y in loader:
        train(model, opt, x, y)
        schedule.step()  # PL621
def main():
    opt = SGD(model.parameters(), lr=0.1)
    schedule = ExponentialLR(opt, gamma=0.4)  # made
    loader = DataLoader(TensorDataset(x, y), batch_size=2)
    for number in range(5):
        epoch(loader, opt, schedule)
main()
""",
    "a cosine for epochs, stepped by a method that a comprehension calls": """
class Trainer:
    def __init__(self, epochs):
        self.epochs, self.model = epochs, nn.Linear(3, 1)
        self.loader = DataLoader(TensorDataset(torch.randn(12, 3), torch.randn(12, 1)), batch_size=4)
        self.opt = SGD(self.model.parameters(), lr=0.1)
        self.schedule = CosineAnnealingLR(self.opt, T_max=epochs)  # made
    def update(self, x, y):
        loss = train(self.model, self.opt, x, y)
        self.schedule.step()  # PL621
        return loss.item()
    def fit(self):
        for _ in range(self.epochs):
            losses = [self.update(*batch) for batch in self.loader]
            print(sum(losses), self.opt.param_groups[0]["lr"])
Trainer(8).fit()
""",
    "early in a function": DATA + """
import warnings
warnings.simplefilter("ignore")
def one(opt, schedule):
    schedule.step()  # PL623
    train(model, opt, x, y)
opt = SGD(model.parameters(), lr=0.1)
schedule = LinearLR(opt, total_iters=4)
for _ in range(3):
    one(opt, schedule)
""",
    "a loss as an epoch": DATA + """
import warnings
warnings.simplefilter("ignore")
opt = SGD(model.parameters(), lr=0.1)
schedule = CosineAnnealingLR(opt, T_max=8)  # made
for _ in range(3):
    mean = train(model, opt, x, y).item()
    schedule.step(mean)  # PL625
""",
    "a state from a compiled model, in a function": DATA + """
def restore(net, checkpoint, strict):
    net.load_state_dict(checkpoint["model"], strict=strict)  # PL627
    return net
saved = {"model": {"_orig_mod." + name: value for name, value in model.state_dict().items()}}
print(restore(nn.Linear(3, 1), saved, False)(x))
""",
    "a module that is not frozen": DATA + """
def freeze(part):
    part.requires_grad = False  # PL629
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
freeze(net[0])
opt = AdamW(net.parameters(), lr=0.1)
for _ in range(3):
    train(net, opt, x, y)
""",
    "a rate set late": DATA + """
def main():
    opt = SGD(model.parameters(), lr=0.1)
    for epoch in range(6):
        if epoch == 4:
            opt.lr = 0.01  # PL629
        train(model, opt, x, y)
main()
""",
    "a generator read in a method of the dataset": NOISY + """
for batch in DataLoader(Noisy(np.random.RandomState(0)), num_workers=2):  # PL909
    print(batch)
""",
}  # fmt: skip

RIGHT = {
    "one schedule after another": DATA + """
opt = SGD(model.parameters(), lr=0.1)
schedules = torch.optim.lr_scheduler
warm, fall = schedules.LinearLR(opt, 0.1, total_iters=3), schedules.CosineAnnealingLR(opt, T_max=6)
schedule = schedules.SequentialLR(opt, [warm, fall], milestones=[3])
for _ in range(9):
    train(model, opt, x, y)
    schedule.step()
""",
    "functions made in a loop that read what is the same for all": GROUPS.format("") + """
functions, kept = [], []
for depth in range(3):
    warm = 4
    kept.append(depth)
    functions.append(lambda step: min(1.0, (step + 1) / warm))
follow(functions)
""",
    "functions that keep the factor of their round": GROUPS.format("") + """
functions = []
for depth in range(3):
    scale = 0.5 ** depth
    functions.append(lambda step, scale=scale: scale / (step + 1))
follow(functions)
""",
    "one cycle of which each update is a step, and one that counts epochs": DATA + """
for length in (12, 3):
    opt = SGD(model.parameters(), lr=0.1)
    schedule = OneCycleLR(opt, max_lr=0.2, total_steps=length)
    for _ in range(3):
        for rows in range(0, 8, 2):
            train(model, opt, x[rows:rows + 2], y[rows:rows + 2])
            if length == 12:
                schedule.step()
        if length == 3:
            schedule.step()
""",
    "a cosine that goes up and down in every epoch": DATA + """
opt = SGD(model.parameters(), lr=0.1)
schedule = CosineAnnealingLR(opt, T_max=4)
for epoch in range(3):
    for part, target in zip(x.split(2), y.split(2)):
        train(model, opt, part, target)
        schedule.step()
""",
    "a schedule whose turn has not come": DATA + """
opt = SGD(model.parameters(), lr=0.1)
schedule = StepLR(opt, 1)
for epoch in range(4):
    train(model, opt, x, y)
    if epoch % 10 == 9:
        schedule.step()
""",
    "steps made up for": DATA + """
import warnings
warnings.simplefilter("ignore")
opt = SGD(model.parameters(), lr=0.1)
schedule = StepLR(opt, 2)
for _ in range(3):
    schedule.step()
for _ in range(3):
    train(model, opt, x, y)
    schedule.step()
""",
    "a fraction of an epoch, and a metric": DATA + """
opt = SGD(model.parameters(), lr=0.1)
restarts, plateau = CosineAnnealingWarmRestarts(opt, 2), ReduceLROnPlateau(opt)
for epoch in range(3):
    for number in range(2):
        loss = train(model, opt, x, y)
        restarts.step(epoch + number / 2)
    plateau.step(loss.item())
""",
    "two optimizers with a schedule each": DATA + """
first, second = SGD([model.weight], lr=0.1), SGD([model.bias], lr=0.1)
schedules = [StepLR(first, 1), StepLR(second, 1)]
for _ in range(3):
    second.zero_grad()
    train(model, first, x, y)
    second.step()
    for schedule in schedules:
        schedule.step()
""",
    "tensors taken over as they are": DATA + """
print(nn.Linear(3, 1).load_state_dict(model.state_dict(), strict=False, assign=True))
print(model(x))
""",
    "workers that get a generator each": NOISY + """
def init(worker):
    torch.utils.data.get_worker_info().dataset.rng = np.random.default_rng(worker)
for batch in DataLoader(Noisy(np.random.default_rng(0)), num_workers=2, worker_init_fn=init):
    print(batch)
""",
}  # fmt: skip


@pytest.mark.parametrize("title", [*WRONG, *RIGHT])
def test_each_draws_what_its_marks_say_and_nothing_else(title: str, shop: Workshop) -> None:
    marked = HEAD + (WRONG | RIGHT)[title]
    trace = shop.trace(Subject(plain(marked), "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    assert met([finding for finding in find(trace) if finding.severity != "info"], marked) == ""
