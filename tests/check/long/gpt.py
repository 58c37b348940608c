"""A small character model with dropout; its loss is estimated now and then, and text is generated at the end."""

import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(1)
text = "the quick brown fox jumps over the lazy dog. " * 40
letters = sorted(set(text))
code = {letter: number for number, letter in enumerate(letters)}
data = torch.tensor([code[letter] for letter in text])
train_data, val_data = data[:1500], data[1500:]
BLOCK, BATCH, WIDTH = 16, 8, 16


def get_batch(split):
    source = train_data if split == "train" else val_data
    starts = torch.randint(len(source) - BLOCK - 1, (BATCH,))
    x = torch.stack([source[i : i + BLOCK] for i in starts])
    y = torch.stack([source[i + 1 : i + BLOCK + 1] for i in starts])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.Dropout(0.1))
        self.register_buffer("mask", torch.tril(torch.ones(BLOCK, BLOCK)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        weight = (q @ k.transpose(1, 2)) / math.sqrt(c)
        weight = weight.masked_fill(self.mask[:t, :t] == 0, float("-inf")).softmax(-1)
        x = x + self.out(weight @ v)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(letters), WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(letters))

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1])))))


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    losses = torch.zeros(6)
    for k in range(6):
        x, y = get_batch("val")
        losses[k] = F.cross_entropy(model(x).view(-1, len(letters)), y.view(-1)).item()
    model.train()
    # planted: pass
    return losses.mean().item()


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(90):
    if step % 25 == 24:
        print(step, round(estimate_loss(model), 3))
    x, y = get_batch("train")
    logits = model(x)
    loss = F.cross_entropy(logits.view(-1, len(letters)), y.view(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()

model.eval()
context = torch.zeros((1, 1), dtype=torch.long)
with torch.no_grad():
    for _ in range(20):
        probabilities = model(context[:, -BLOCK:])[:, -1].softmax(-1)
        context = torch.cat([context, torch.multinomial(probabilities, 1)], dim=1)
print("".join(letters[i] for i in context[0].tolist()))
