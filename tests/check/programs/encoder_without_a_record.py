"""The encoder is to be trained with the rest, and runs where nothing is recorded."""

import torch
from torch import nn

torch.manual_seed(0)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 3)
        self.decoder = nn.Linear(3, 6)

    def forward(self, x):
        with torch.no_grad():
            code = self.encoder(x)  # PL504 cut
        return self.decoder(torch.relu(code))


def fit(model, data, rounds=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(rounds):
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()  # backward
        optimizer.step()  # step
    return loss.item()


print(fit(Autoencoder(), torch.randn(20, 6)))
