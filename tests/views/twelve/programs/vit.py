"""Vision transformer whose training drops some patches: their tokens are set to zero."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
SIDE, PATCH, WIDTH, HEADS, DEPTH, CLASSES = 16, 4, 16, 2, 2, 5
PATCHES = (SIDE // PATCH) ** 2


class PatchEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)

    def forward(self, pictures):
        return self.project(pictures).flatten(2).transpose(1, 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def attend(self, x):
        batch, count, width = x.shape
        q, k, v = self.qkv(x).view(batch, count, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, count, width))

    def forward(self, x):
        x = x + self.attend(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class ViT(nn.Module):
    def __init__(self, drop=0.25):
        super().__init__()
        self.drop = drop
        self.patches = PatchEmbedding()
        self.summary = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(0.02 * torch.randn(1, PATCHES + 1, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures):
        tokens = self.patches(pictures)
        if self.training:
            dropped = torch.rand(tokens.shape[:2]) < self.drop
            tokens[dropped].zero_()
        tokens = torch.cat([self.summary.expand(len(tokens), -1, -1), tokens], dim=1)
        tokens = self.blocks(tokens + self.positions)
        return self.head(self.norm(tokens[:, 0]))


def pictures_of(labels):
    stripes = torch.sin(torch.arange(SIDE) * (labels[:, None] + 1) / 2.0)
    return stripes[:, None, None, :].expand(-1, 3, SIDE, -1) + 0.1 * torch.randn(len(labels), 3, SIDE, SIDE)


model = ViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
model.train()
for step in range(3):
    labels = torch.randint(CLASSES, (8,))
    logits = model(pictures_of(labels))
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), (logits.argmax(1) == labels).float().mean().item())
