"""A training script as people write them: configuration, data, model, loops, a schedule, early stopping, evaluation, a summary.

About 200 lines on synthetic data; tests/bench/checking.py measures what ``pitfall-lab check`` adds to running it.
"""

import copy
import math
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    """What can be changed about a run."""

    seed: int = 0
    samples: int = 512
    features: int = 16
    classes: int = 4
    width: int = 32
    depth: int = 3
    dropout: float = 0.1
    batch: int = 64
    epochs: int = 4
    rate: float = 3e-3
    decay: float = 1e-2
    clip: float = 1.0
    warmup: int = 4
    patience: int = 2
    smoothing: float = 0.05
    average: float = 0.9


# --- data ---------------------------------------------------------------------------------------------


def make_data(config):
    """Points around a few centres, and which centre each belongs to."""
    centres = torch.randn(config.classes, config.features) * 1.5
    labels = torch.randint(0, config.classes, (config.samples,))
    points = centres[labels] + torch.randn(config.samples, config.features)
    return points, labels


def split(points, labels, share=0.8):
    """Training and validation parts, shuffled."""
    order = torch.randperm(len(points))
    cut = int(len(points) * share)
    train, valid = order[:cut], order[cut:]
    return (points[train], labels[train]), (points[valid], labels[valid])


def normalise(train, valid):
    """Both parts, scaled by the statistics of the first."""
    mean = train.mean(dim=0, keepdim=True)
    scale = train.std(dim=0, keepdim=True).clamp_min(1e-6)
    return (train - mean) / scale, (valid - mean) / scale


def batches(points, labels, size, shuffle=True):
    """The data in pieces."""
    order = torch.randperm(len(points)) if shuffle else torch.arange(len(points))
    for start in range(0, len(points), size):
        chosen = order[start : start + size]
        yield points[chosen], labels[chosen]


# --- model --------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A residual block with normalisation before it."""

    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = self.norm(x)
        h = F.gelu(self.inner(h))
        h = self.outer(self.dropout(h))
        return x + h


class Classifier(nn.Module):
    """Features in, scores of classes out."""

    def __init__(self, config):
        super().__init__()
        self.embed = nn.Linear(config.features, config.width)
        self.blocks = nn.ModuleList([Block(config.width, config.dropout) for _ in range(config.depth)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.classes)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module):
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.05)
            nn.init.zeros_(module.bias)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


# --- training -----------------------------------------------------------------------------------------


def rate_at(step, total, config):
    """A warm-up, then half a cosine."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    progress = (step - config.warmup) / max(1, total - config.warmup)
    return 0.5 * (1 + math.cos(math.pi * progress))


def groups(model, decay):
    """Weights decay, biases and norms do not."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


@torch.no_grad()
def update_average(average, model, keep):
    """Move the averaged weights a little towards the current ones."""
    for kept, current in zip(average.parameters(), model.parameters(), strict=True):
        kept.mul_(keep).add_(current, alpha=1 - keep)


@torch.no_grad()
def evaluate(model, points, labels, size):
    """Loss and accuracy on data that was not trained on."""
    was_training = model.training
    model.eval()
    loss, right = 0.0, 0
    for x, y in batches(points, labels, size, shuffle=False):
        scores = model(x)
        loss += F.cross_entropy(scores, y, reduction="sum").item()
        right += (scores.argmax(dim=1) == y).sum().item()
    model.train(was_training)
    return loss / len(points), right / len(points)


def train_epoch(model, average, optimizer, scheduler, data, config):
    """One pass over the data; returns the mean loss."""
    total, seen = 0.0, 0
    for x, y in batches(*data, config.batch):
        optimizer.zero_grad()
        scores = model(x)
        loss = F.cross_entropy(scores, y, label_smoothing=config.smoothing)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        scheduler.step()
        update_average(average, model, config.average)
        total += loss.item() * len(x)
        seen += len(x)
    return total / seen


def main():
    config = Config()
    random.seed(config.seed)
    torch.manual_seed(config.seed)
    points, labels = make_data(config)
    (train_x, train_y), (valid_x, valid_y) = split(points, labels)
    train_x, valid_x = normalise(train_x, valid_x)

    model = Classifier(config)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(groups(model, config.decay), lr=config.rate)
    steps = config.epochs * math.ceil(len(train_x) / config.batch)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, steps, config))

    best, best_loss, waited = None, math.inf, 0
    for epoch in range(config.epochs):
        model.train()
        loss = train_epoch(model, average, optimizer, scheduler, (train_x, train_y), config)
        valid_loss, accuracy = evaluate(average, valid_x, valid_y, config.batch)
        print(f"epoch {epoch}: loss {loss:.3f}, validation {valid_loss:.3f}, accuracy {accuracy:.2f}")
        if valid_loss < best_loss:
            best, best_loss, waited = copy.deepcopy(average.state_dict()), valid_loss, 0
        else:
            waited += 1
            if waited > config.patience:
                break
    average.load_state_dict(best)
    print(f"best {evaluate(average, valid_x, valid_y, config.batch)[0]:.3f}")


if __name__ == "__main__":
    main()
