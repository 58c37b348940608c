"""U-Net that segments discs. The reader fills one NumPy buffer again and again, to save memory."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
random = np.random.default_rng(0)
SIDE, BATCH = 16, 2


class Double(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
        )


class UNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.enter = Double(1, width)
        self.down = Double(width, 2 * width)
        self.bottom = Double(2 * width, 4 * width)
        self.up_2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join_2 = Double(4 * width, 2 * width)
        self.up_1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join_1 = Double(2 * width, width)
        self.leave = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        fine = self.enter(x)
        middle = self.down(F.max_pool2d(fine, 2))
        coarse = self.bottom(F.max_pool2d(middle, 2))
        x = self.join_2(torch.cat([middle, self.up_2(coarse)], 1))
        x = self.join_1(torch.cat([fine, self.up_1(x)], 1))
        return self.leave(x)


class Reader:
    """Draws a batch of pictures and masks into buffers that are made once."""

    def __init__(self):
        self.pictures = np.zeros((BATCH, 1, SIDE, SIDE), np.float32)
        self.masks = np.zeros((BATCH, 1, SIDE, SIDE), np.float32)

    def read(self):
        row, column = np.mgrid[:SIDE, :SIDE]
        for picture, mask in zip(self.pictures, self.masks):
            y, x, radius = random.uniform(4, 12), random.uniform(4, 12), random.uniform(2, 5)
            mask[0] = (row - y) ** 2 + (column - x) ** 2 < radius**2
            picture[0] = 0.7 * mask[0] + 0.3 * random.random((SIDE, SIDE))
        return torch.from_numpy(self.pictures), torch.from_numpy(self.masks)


def dice(logits, mask):
    chance = torch.sigmoid(logits)
    return 1 - 2 * (chance * mask).sum() / (chance.sum() + mask.sum() + 1e-6)


reader = Reader()
model = UNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
picture, mask = reader.read()
for step in range(2):
    logits = model(picture)
    loss = F.binary_cross_entropy_with_logits(logits, mask) + dice(logits, mask)
    # Read the next batch while this one is still on its way back.
    following = reader.read()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    picture, mask = following
    print(step, loss.item())
