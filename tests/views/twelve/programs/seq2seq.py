"""Reverses sequences: an encoder, and a decoder with attention that writes its states into a tensor made beforehand."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
SYMBOLS, WIDTH, LENGTH, BATCH = 8, 16, 5, 4
START = SYMBOLS


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, WIDTH)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, symbols):
        memory, last = self.gru(self.embedding(symbols))
        return memory, last[0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, state, memory):
        scores = self.score(torch.tanh(self.query(state).unsqueeze(1) + memory)).squeeze(-1)
        return torch.bmm(F.softmax(scores, -1).unsqueeze(1), memory).squeeze(1)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS + 1, WIDTH)
        self.attention = Attention()
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, memory, first, targets):
        states = torch.zeros(LENGTH + 1, len(targets), WIDTH)
        states[0] = first
        symbol = torch.full((len(targets),), START)
        for t in range(LENGTH):
            context = self.attention(states[t], memory)
            inputs = torch.cat([self.embedding(symbol), context], dim=1)
            states[t + 1] = self.cell(inputs, states[t])
            symbol = targets[:, t]
        return self.head(states[1:]).transpose(0, 1)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, source, targets):
        memory, last = self.encoder(source)
        return self.decoder(memory, last, targets)


def pairs():
    source = torch.randint(0, SYMBOLS, (BATCH, LENGTH))
    return source, source.flip(1)


model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(3):
    source, targets = pairs()
    logits = model(source, targets)
    loss = F.cross_entropy(logits.reshape(-1, SYMBOLS), targets.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(step, loss.item())
