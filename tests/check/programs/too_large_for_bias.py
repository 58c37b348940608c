# A total of the rows of a batch; the batch was meant to be summed first.
import torch
from torch import nn


class Centre(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("total", torch.zeros(width))

    def forward(self, batch):
        for part in batch.split(2):
            self.total.add_(part)  # PL403 read
        return batch - self.total / len(batch)


Centre(3)(torch.ones(4, 3))
