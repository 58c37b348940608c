"""Schedulers, loaded states, data loaders and attributes that torch never reads: what is observed of them changes none of it."""

import inspect
import pickle
import traceback

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR
from torch.utils.data import DataLoader, Dataset, random_split


class Noisy(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor([index, self.rng.normal()], dtype=torch.float32)


class Halving(LRScheduler):
    def get_lr(self):
        return [group["lr"] / 2 for group in self.optimizer.param_groups]

    def step(self, epoch=None):
        super().step(epoch)
        print("stepped to", self.last_epoch)


model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
opt.lr = 0.5
model.requires_grad = False
model.weight.require_grad = False
early = StepLR(opt, 2)
early.step()  # torch warns here: before optimizer.step()
halving = Halving(opt)
chain = SequentialLR(opt, [StepLR(opt, 1), StepLR(opt, 1)], milestones=[2])
plateau = ReduceLROnPlateau(opt, patience=0)
short = OneCycleLR(torch.optim.SGD(model.parameters(), lr=0.1), max_lr=0.2, total_steps=2)
whole = Noisy()
part, _ = random_split(whole, [4, 2])
for _ in range(2):
    for batch in DataLoader(part, batch_size=2, shuffle=True):
        loss = model(batch).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        chain.step()
    halving.step()
    plateau.step(loss.item())
print([group["lr"] for group in opt.param_groups], plateau.get_last_lr())
try:
    for _ in range(3):
        short.step()
except ValueError:
    print([(frame.name, frame.line) for frame in traceback.extract_tb(__import__("sys").exc_info()[2])])
print(nn.Linear(2, 1).load_state_dict({"w": torch.ones(1)}, strict=False))
print(model.load_state_dict(nn.Linear(2, 1).state_dict(), assign=True))
print(LRScheduler.step.__qualname__, nn.Module.load_state_dict.__qualname__, DataLoader.__iter__.__qualname__, inspect.signature(early.step))
print(LRScheduler.step is LRScheduler.step, early.step == early.step, type(early.step).__name__, "step" in vars(StepLR))
print(sorted(pickle.loads(pickle.dumps(early)).state_dict()))
