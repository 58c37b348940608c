# The in-place ReLU is a module, built far from where it runs.
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        g = torch.sigmoid(self.fc(x))  # saved
        g = self.act(g)  # PL105 changed
        return self.out(g)


def main():
    torch.manual_seed(0)
    model = Gate()
    loss = model(torch.randn(3, 4)).pow(2).mean()
    loss.backward()  # backward
    print(loss.item())


if __name__ == "__main__":
    main()
