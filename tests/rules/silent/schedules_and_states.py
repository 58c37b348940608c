# Schedules of several kinds, each stepped where it belongs; states that fit in part, or are loaded again; attributes of the program's own.
import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Noisy(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor([float(index), self.rng.normal(), 1.0]).float() / 12


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def rounds(model, opt, epochs, *, by_batch=None, by_epoch=None, by_loss=None):
    loader = DataLoader(Noisy(), batch_size=4)
    for epoch in range(epochs):
        total = 0.0
        for batch in loader:
            opt.zero_grad()
            loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
            loss.backward()
            opt.step()
            total += loss.item()
            if by_batch is not None:
                by_batch.step()
        if by_epoch is not None:
            by_epoch.step()
        if by_loss is not None:
            by_loss.step(total)
    return total


body = network()
state = {name: value for name, value in body.state_dict().items() if name.startswith("0.")}
model = network()
print(model.load_state_dict(state, strict=False))
wrapped = {f"module.{name}": value for name, value in body.state_dict().items()}
if model.load_state_dict(wrapped, strict=False).unexpected_keys:
    model.load_state_dict({name.removeprefix("module."): value for name, value in wrapped.items()})
for layer in model:
    layer.trainable = isinstance(layer, nn.Linear)
print([layer.trainable for layer in model])

opt = torch.optim.SGD(model.parameters(), lr=0.1)
opt.best = float("inf")
opt.best = min(opt.best, rounds(model, opt, 4, by_epoch=CosineAnnealingLR(opt, T_max=4)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
rounds(model, opt, 4, by_batch=CosineAnnealingLR(opt, T_max=4 * 3))
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
rounds(model, opt, 3, by_batch=OneCycleLR(opt, max_lr=0.02, epochs=3, steps_per_epoch=3))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
warm = SequentialLR(opt, [LinearLR(opt, 0.1, total_iters=2), StepLR(opt, 2, gamma=0.5)], milestones=[2])
rounds(model, opt, 4, by_epoch=warm, by_loss=ReduceLROnPlateau(opt, patience=0))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
rounds(model, opt, 3, by_batch=LambdaLR(opt, lambda step: max(0.0, 1 - step / 9)))
first = torch.optim.SGD(model[0].parameters(), lr=0.1)
rounds(model, first, 2)
second = torch.optim.SGD(model.parameters(), lr=0.01)
print(rounds(model, second, 3, by_epoch=StepLR(second, 1)))
