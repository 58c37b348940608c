"""Parameters are kept in a list, tried with noise, and put back: onto themselves."""

import torch


def perturb(model, scale):
    kept = [p.detach() for p in model.parameters()]  # PL703 kept
    with torch.no_grad():
        for p in model.parameters():
            p.add_(scale * torch.ones_like(p))  # changed
        loss = model(torch.ones(1, 3)).sum()
        for p, old in zip(model.parameters(), kept):
            p.copy_(old)  # used
    return loss


net = torch.nn.Linear(3, 2)
print(perturb(net, 0.1).shape)
