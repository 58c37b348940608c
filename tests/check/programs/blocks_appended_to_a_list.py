import torch
from torch.nn import Linear, Module, functional


class Block(Module):
    def __init__(self, width):
        super().__init__()
        self.up = Linear(width, width)

    def forward(self, x):
        return x + functional.silu(self.up(x))


class Multi(Module):
    def __init__(self):
        super().__init__()
        self.body = Linear(4, 4)
        self.heads = torch.nn.ModuleDict({task: Linear(4, 1) for task in ("a", "b")})
        self.blocks = []  # PL608 made
        for _ in range(2):
            self.blocks.append(Block(4))

    def forward(self, x):
        h = self.body(x)
        for block in self.blocks:
            h = block(h)
        return {task: head(h) for task, head in self.heads.items()}


def train():
    torch.manual_seed(0)
    model = Multi()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(2):
        x = torch.randn(6, 4)
        out = model(x)
        loss = sum(functional.mse_loss(each.squeeze(-1), x.sum(1)) for each in out.values())
        optimizer.zero_grad()
        loss.backward()  # backward
        optimizer.step()  # step


train()
