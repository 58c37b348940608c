"""Language model with an LSTM: truncated backpropagation through time over one long text."""

import torch
from torch import nn

torch.manual_seed(0)

WORDS = ("the cat sat on the mat and the dog sat on the log while the bird sang in the tree " * 6).split()
VOCABULARY = sorted(set(WORDS))
INDEX = {word: number for number, word in enumerate(VOCABULARY)}
BATCH, STEPS, WIDTH = 4, 6, 24


class Model(nn.Module):
    def __init__(self, words, width, layers=2):
        super().__init__()
        self.width, self.layers = width, layers
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.decoder = nn.Linear(width, words)

    def start(self, batch):
        weight = next(self.parameters())
        return weight.new_zeros(self.layers, batch, self.width), weight.new_zeros(self.layers, batch, self.width)

    def forward(self, words, state):
        embedded = self.drop(self.embedding(words))
        output, state = self.lstm(embedded, state)
        return self.decoder(self.drop(output)), state


def batchify(numbers, batch):
    length = len(numbers) // batch
    return torch.tensor(numbers[: length * batch]).view(batch, length)


def chunks(source, steps):
    for start in range(0, source.size(1) - 1, steps):
        end = min(start + steps, source.size(1) - 1)
        yield source[:, start:end], source[:, start + 1 : end + 1]


def train(model, source, optimizer, criterion):
    model.train()
    total = 0.0
    state = model.start(BATCH)
    for number, (words, following) in enumerate(chunks(source, STEPS)):
        optimizer.zero_grad()
        logits, state = model(words, state)
        loss = criterion(logits.reshape(-1, len(VOCABULARY)), following.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        total += loss.item()
    return total / (number + 1)


source = batchify([INDEX[word] for word in WORDS], BATCH)
model = Model(len(VOCABULARY), WIDTH)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()
for epoch in range(2):
    print(epoch, train(model, source, optimizer, criterion))
