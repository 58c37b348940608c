"""PL989: datasets that are changed after the workers of a loader have copied them, and changes that the workers see or
do not need.
"""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from pitfall_lab.check import Workshop
from pitfall_lab.observe.worker_copies import WorkerCopies
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

class Base(Dataset):
    def __init__(self):
        self.level, self.epoch, self.kept = 0.0, 0, {}
        self.names = [1.0, 2.0]
        self.data = torch.arange(4.0)
        self.shared = torch.zeros(1).share_memory_()
    def __len__(self):
        return 4
"""
WRONG = {
    "the epoch of a stream": HEAD
    + """
class Stream(IterableDataset):
    epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __iter__(self):
        g = torch.Generator().manual_seed(self.epoch)
        yield from torch.randperm(4, generator=g)
data = Stream()
loader = DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True)
for epoch in range(2):
    data.set_epoch(epoch)
    print([batch.tolist() for batch in loader])  # PL989
""",
    "a number of a transform, through a part of the dataset": HEAD
    + """
class Shift:
    p = 0.0
    def __call__(self, x):
        return x + self.p
class Moved(Base):
    def __init__(self, transform):
        super().__init__()
        self.transform = transform
    def __getitem__(self, i):
        return self.transform(self.data[i])
shift = Shift()
loader = DataLoader(Subset(Moved(shift), [0, 2]), num_workers=1, persistent_workers=True)
def run():
    for batch in loader:  # PL989
        print(batch)
for p in (0.0, 0.5):
    shift.p = p
    run()
""",
    "a list that grows, with options in a dictionary": HEAD
    + """
class Listed(Base):
    def __getitem__(self, i):
        return torch.tensor(self.names[i % len(self.names)])
data = Listed()
options = {"num_workers": 1, "persistent_workers": True}
loader = DataLoader(data, batch_size=4, **options)
for epoch in range(3):
    total = sum(batch.sum() for batch in loader)  # PL989
    data.names.append(10.0)
    print(total)
""",
    "a tensor written in place, beside a loader for tests": HEAD
    + """
class Stored(Base):
    def __getitem__(self, i):
        return self.data[i]
data = Stored()
train = DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True)
test = DataLoader(Stored(), batch_size=4, num_workers=1, persistent_workers=True)
for epoch in range(2):
    for batch in train:  # PL989
        print(batch)
    for batch in test:
        print(batch.mean())
    data.data.mul_(2)
""",
}
RIGHT = {
    "memory that the processes share, and workers that are started anew": HEAD
    + """
class Shared(Base):
    def __getitem__(self, i):
        return self.data[i] + self.shared
class Level(Base):
    def __getitem__(self, i):
        return self.data[i] + self.level
shared, level, again = Shared(), Level(), Level()
one = DataLoader(shared, batch_size=4, num_workers=1, persistent_workers=True)
two = DataLoader(level, batch_size=4, num_workers=1)
three = DataLoader(again, batch_size=4, num_workers=1, persistent_workers=True)
for epoch in range(2):
    shared.shared.fill_(epoch)
    level.level = again.level = epoch / 2
    three._iterator = None
    for loader in (one, two, three):
        print(next(iter(loader)).sum())
        list(loader)
        three._iterator = None
""",
    "what the samples are not made with, and what was changed before the first pass": HEAD
    + """
class Plain(Base):
    def note(self):
        return f"epoch {self.epoch}"
    def __getitem__(self, i):
        return self.data[i] + self.level
data = Plain()
loader = DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True)
data.level = 0.5
for epoch in range(3):
    data.epoch = epoch
    data.names.append(3.0)
    print(data.note(), [batch.sum() for batch in loader])
""",
    "what making a sample stores in this process": HEAD
    + """
class Cached(Base):
    file = None
    def opened(self):
        if self.file is None:
            self.file = torch.arange(4.0)
        return self.file
    def __getitem__(self, i):
        self.level += 1
        if i not in self.kept:
            self.kept[i] = self.opened()[i]
        names = self.names
        names.append(float(i))
        return self.kept[i]
data = Cached()
loader = DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True)
for epoch in range(2):
    print([batch.sum() for batch in loader])
    print(data[epoch])
""",
    "a switch that is back again when a pass begins": HEAD
    + """
class Switched(Base):
    training = True
    def __getitem__(self, i):
        return self.data[i] * (2 if self.training else 1)
data = Switched()
train = DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True)
test = DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True)
for epoch in range(2):
    data.training = True
    print([batch.sum() for batch in train])
    data.training = False
    print([batch.sum() for batch in test])
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])


def test_nothing_of_a_dataset_is_kept() -> None:
    class Stored(Dataset[torch.Tensor]):
        def __init__(self) -> None:
            self.data, self.lists = torch.zeros(50), [torch.zeros(2)]

        def __getitem__(self, index: int) -> torch.Tensor:
            return self.data[index] + self.lists[0].sum()

    data, copies = Stored(), WorkerCopies()
    loader = DataLoader(data, num_workers=1, persistent_workers=True)
    assert copies.begins(loader, None) is None
    held = [weakref.ref(each) for each in (Stored, data, data.data, data.lists[0], loader)]
    del Stored, data, loader
    gc.collect()
    assert [each() for each in held] == [None] * len(held)


def test_attributes_are_compared_by_their_contents() -> None:
    class Stored(Dataset[torch.Tensor]):
        def __init__(self) -> None:
            self.data, self.level, self.options, self.note = torch.zeros(50), 0.0, {"p": 0.0}, 0

        def __getitem__(self, index: int) -> torch.Tensor:
            return self.data[index] * self.level + self.options["p"]

    data = Stored()
    loader = DataLoader(data, num_workers=1, persistent_workers=True)

    def later() -> list[object]:
        return [(found.name, found.before, found.after)] if (found := copies.begins(loader, None)) is not None else []

    def change(of: str) -> None:
        data.note += 1
        if of == "data":
            data.data[10:] += 1
        elif of == "level":
            data.level += 0.5
        elif of == "options":
            data.options["p"] += 1.0
        elif of == "same":
            data.data, data.level = data.data.clone(), float(data.level)

    expected = {"note": [], "same": [], "data": [("data", "", "")], "level": [("level", "0.0", "0.5")],
                "options": [("options", "{'p': 0.0}", "{'p': 1.0}")]}  # fmt: skip
    for of, found in expected.items():
        copies = WorkerCopies()
        loader.__dict__["_iterator"] = None
        copies.begins(loader, None)
        loader.__dict__["_iterator"] = object()
        assert later() == []
        change(of)
        assert later() == found, of
    loader.__dict__["_iterator"] = None
