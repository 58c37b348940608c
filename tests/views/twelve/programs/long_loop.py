"""Logistic regression for 10,000 steps; every thousandth step keeps the weights, to draw their way afterwards."""

import torch

torch.manual_seed(0)
STEPS, RATE, BATCH, WIDTH = 10_000, 0.05, 8, 3


def examples(count):
    """Points of two classes, and which class each belongs to."""
    points = torch.randn(count, WIDTH)
    slope = torch.tensor([1.5, -2.0, 0.5])
    labels = (points @ slope + 0.3 * torch.randn(count) > 0).float()
    return points, labels


def accuracy(points, labels, weights):
    return ((points @ weights > 0).float() == labels).float().mean().item()


class Schedule:
    """Falls with the square root of the step after a warm-up."""

    def __init__(self, rate, warm):
        self.rate, self.warm = rate, warm

    def at(self, step):
        if step < self.warm:
            return self.rate * (step + 1) / self.warm
        return self.rate * (self.warm / (step + 1)) ** 0.5


def report(path):
    for step, weights in path:
        print(f"{step:6d}  " + "  ".join(f"{w:+.3f}" for w in weights))


points, labels = examples(256)
weights = torch.zeros(WIDTH, requires_grad=True)
schedule = Schedule(RATE, warm=500)
path = []
for step in range(STEPS):
    start = step * BATCH % len(points)
    margin = points[start : start + BATCH] @ weights
    loss = torch.nn.functional.binary_cross_entropy_with_logits(margin, labels[start : start + BATCH])
    loss.backward()
    with torch.no_grad():
        weights -= schedule.at(step) * weights.grad
    weights.grad = None
    if step % 1000 == 0:
        path.append((step, weights.detach().numpy()))

report(path)
print("accuracy", accuracy(points, labels, weights))
