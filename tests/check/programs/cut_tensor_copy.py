# Collecting the terms of a loss in a new tensor.
import torch

weights = torch.tensor([0.5, 1.5], requires_grad=True)


def terms(data):
    fit = ((data @ weights) - 1.0).pow(2).mean()
    penalty = weights.abs().sum()
    return torch.tensor([fit.item(), 0.1 * float(penalty)])  # PL504 cut


objective = terms(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum()
objective.backward()  # backward
print(weights.grad)
