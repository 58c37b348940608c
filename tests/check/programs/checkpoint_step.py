# The optimizer steps between a checkpointed forward pass and its backward: no error, other parameters.
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 1)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))  # saved


torch.manual_seed(0)
block = Block()
opt = torch.optim.SGD(block.parameters(), lr=0.5)
x = torch.randn(4, 3, requires_grad=True)
score = checkpoint(block, x, use_reentrant=False)
block(x.detach()).mean().backward()
opt.step()  # PL108 changed
score.square().mean().backward()  # backward
print(x.grad[0])
