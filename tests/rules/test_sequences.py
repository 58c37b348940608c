"""Tokens, padding, attentions and contracts of losses: silent pitfalls in other forms, and right
programs that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import BINARY, together

TEXT = """
seq = torch.randint(1, 9, (4, 7))
emb, head = nn.Embedding(9, 8), nn.Linear(8, 9)
"""
SHORT = """
x = torch.tensor([[3, 4, 5, 6, 2], [3, 4, 0, 0, 0], [7, 1, 2, 0, 0]])
y = torch.tensor([0, 1, 1])
emb, net = nn.Embedding(9, 8, padding_idx=0), nn.Linear(8, 2)
"""

WRONG = {
    "windows of a text from a loader, heads by hand": """
text = torch.randint(0, 7, (60,))
class Windows(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return text[i:i + 5], text[i + 1:i + 6]
class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.k, self.q, self.v = nn.Linear(8, width), nn.Linear(8, width), nn.Linear(8, width)
    def forward(self, x):
        w = self.q(x) @ self.k(x).transpose(-2, -1) / 2
        w = F.dropout(w.softmax(dim=-1), 0.1)  # PL430
        return w @ self.v(x)
table, heads, last = nn.Embedding(7, 8), nn.ModuleList([Head(4), Head(4)]), nn.Linear(8, 7)
opt = Adam([*table.parameters(), *heads.parameters(), *last.parameters()])
for x, y in DataLoader(Windows(), batch_size=4, shuffle=True):
    h = table(x)
    h = h + torch.cat([head(h) for head in heads], -1)
    update(opt, F.cross_entropy(last(h).view(-1, 7), y.view(-1)))
""",
    "an encoder without a mask, and logits moved by one": TEXT
    + """
enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
logits = head(enc(emb(seq)))  # PL430
F.cross_entropy(logits[:, :-1].transpose(1, 2), seq[:, 1:]).backward()
""",
    "a mask that hides what came before": TEXT
    + """
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
hidden = torch.tril(torch.ones(6, 6, dtype=torch.bool), diagonal=-1)
h = layer(emb(seq[:, :-1]), src_mask=hidden)  # PL430
F.cross_entropy(head(h).reshape(-1, 9), seq[:, 1:].reshape(-1)).backward()
""",
    "a decoder whose own tokens have no mask, time first": TEXT
    + """
dec = nn.TransformerDecoderLayer(8, 2, 16)
tokens = seq.T
out = head(dec(emb(tokens[:-1]), torch.randn(5, 4, 8)))  # PL430
nn.CrossEntropyLoss()(out.view(-1, 9), tokens[1:].reshape(-1)).backward()
""",
    "padding among the next words": """
texts = [torch.randint(1, 9, (n,)) for n in (6, 5, 3)]
table, rnn, last = nn.Embedding(9, 4, padding_idx=0), nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 9)
criterion = nn.CrossEntropyLoss()
batch = nn.utils.rnn.pad_sequence(texts, batch_first=True)
def step(x, y):
    h, _ = rnn(table(x))
    return criterion(last(h).reshape(-1, 9), y.reshape(-1))  # PL928
step(batch[:, :-1], batch[:, 1:]).backward()
""",
    "padding among the tags": SHORT
    + """
tags = torch.randint(0, 2, (3, 5)).masked_fill(x == 0, 1)
F.cross_entropy(net(emb(x)).transpose(1, 2), tags).backward()  # PL928
""",
    "an encoder that is not told of the padding, and a mean over it": SHORT
    + """
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.net = emb, net
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    def forward(self, x):
        h = self.enc(self.emb(x))  # PL450
        return self.net(h.mean(dim=1))  # PL910
F.cross_entropy(Classifier()(x), y).backward()
""",
    "scores by hand, without a mask": SHORT
    + """
h = emb(x)
scores = h @ h.transpose(1, 2)
w = F.softmax(scores / 8 ** 0.5, dim=-1)  # PL450
kept = (x != 0).unsqueeze(-1)
F.cross_entropy(net(((w @ h) * kept).sum(1) / kept.sum(1)), y).backward()
""",
    "features of padding made 0, then a mean": """
rnn, net = nn.GRU(5, 6, batch_first=True), nn.Linear(6, 2)
mask = torch.arange(4)[None] < torch.tensor([4, 2, 1])[:, None]
h, _ = rnn(torch.randn(3, 4, 5))
h = h * mask[..., None]
F.cross_entropy(net(h.mean(1)), torch.tensor([0, 1, 0])).backward()  # PL910
""",
    "a ranking whose labels are answers, from a loader": """
net, criterion = nn.Linear(4, 1), nn.MarginRankingLoss(margin=0.1)
opt = Adam(net.parameters())
a, b = torch.randn(40, 4), torch.randn(40, 4)
better = (a.sum(1) > b.sum(1)).long()
for one, other, label in DataLoader(TensorDataset(a, b, better), batch_size=20):
    update(opt, criterion(net(one).squeeze(1), net(other).squeeze(1), label))  # PL930
""",
    "a margin with answers for labels": BINARY
    + """
net = nn.Linear(3, 1)
F.soft_margin_loss(net(x).squeeze(1), y).backward()  # PL930
""",
    "what a CTC loss is given": """
rnn, last = nn.LSTM(5, 6), nn.Linear(6, 7)
t, lengths, sizes = torch.randint(1, 7, (3, 4)), torch.full((3,), 12), torch.full((3,), 4)
x = last(rnn(torch.randn(12, 3, 5))[0])
ctc = nn.CTCLoss()
ctc(x, t, lengths, sizes).backward(retain_graph=True)  # PL901
p = F.softmax(x, dim=2)
ctc(p, t, lengths, sizes).backward(retain_graph=True)  # PL901
over_time = x.log_softmax(0)  # PL408
ctc(over_time, t, lengths, sizes).backward()
""",
    "a deviation for a variance, and softplus for a logarithm": """
net, positive = nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 1), nn.Softplus())
x, y = torch.randn(8, 3), torch.randn(8, 1)
mean, log_variance = net(x).chunk(2, -1)
deviation = torch.exp(log_variance / 2)
nn.GaussianNLLLoss()(mean, y, deviation).backward()  # PL932
nn.PoissonNLLLoss()(positive(x), y.abs().round()).backward()  # PL932
""",
    "the last step of both directions, time first": """
rnn, drop, last = nn.LSTM(3, 4, num_layers=2, bidirectional=True), nn.Dropout(0.2), nn.Linear(8, 2)
out, _ = rnn(torch.randn(6, 4, 3))
F.cross_entropy(last(drop(out[-1])), torch.tensor([0, 1, 1, 0])).backward()  # PL434
""",
    "as many steps as examples": """
rnn, last = nn.GRU(3, 4, batch_first=True, bidirectional=True), nn.Linear(8, 1)
out, _ = rnn(torch.randn(5, 5, 3))
last(out[:, -1, :]).sum().backward()  # PL434
""",
    "the state of the first of two layers": """
rnn, last = nn.LSTM(3, 4, num_layers=2, batch_first=True), nn.Linear(4, 2)
_, (h, c) = rnn(torch.randn(6, 5, 3))
last(h[0]).sum().backward()  # PL434
""",
    "a class for positions, time first, in a model with examples first": """
class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(50, 1, 8))
    def forward(self, x):
        x = x + self.table[:x.size(0)]  # PL452
        return F.dropout(x, 0.1)
emb, positions, last = nn.Embedding(9, 8), Positions(), nn.Linear(8, 3)
enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
F.cross_entropy(last(enc(positions(emb(torch.randint(0, 9, (4, 6)))))[:, 0]), torch.tensor([0, 1, 2, 0])).backward()
""",
    "learned positions, looked up": """
table, q, last = nn.Embedding(32, 8), nn.Linear(8, 8), nn.Linear(8, 2)
x = torch.randn(4, 6, 8)
h = x + table(torch.arange(x.shape[0])).unsqueeze(1)  # PL452
h = F.scaled_dot_product_attention(q(h), h, h)
F.cross_entropy(last(h[:, 0]), torch.tensor([0, 1, 1, 0])).backward()
""",
    "classes one after another, cut from tables": """
x = torch.cat([torch.randn(20, 3) + c for c in range(3)])
y = torch.cat([torch.full((20,), c) for c in range(3)])
net = nn.Linear(3, 3)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for i in range(0, 60, 10):
        update(opt, F.cross_entropy(net(x[i:i + 10]), y[i:i + 10]))  # PL934
""",
    "classes one after another, from a loader": """
items = [(torch.randn(3), 0)] * 24 + [(torch.randn(3), 1)] * 24
net, criterion = nn.Linear(3, 1), nn.BCEWithLogitsLoss()
opt = SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(items, batch_size=12, shuffle=False):
    update(opt, criterion(net(x).squeeze(1), y.float()))  # PL934
""",
    "classes one after another, put together by the program": """
items = [(torch.randn(3), i // 20) for i in range(40)]
def together(batch):
    return torch.stack([x for x, _ in batch]), torch.tensor([y for _, y in batch])
net = nn.Linear(3, 2)
opt = Adam(net.parameters())
for x, y in DataLoader(items, batch_size=10, collate_fn=together):
    update(opt, F.cross_entropy(net(x), y))  # PL934
""",
    "the largest score of a column, and of everything": """
net, x, y = nn.Linear(3, 5), torch.randn(5, 3), torch.tensor([4, 2, 0, 1, 1])
def accuracy(scores, labels):
    _, predicted = torch.max(scores, 0)  # PL432
    return (predicted == labels).sum().item() / len(labels)
nn.CrossEntropyLoss()(net(x), y).backward()
print(accuracy(net(x), y))
p = F.softmax(net(x), dim=1)
best = p.argmax()  # PL432
print((best == y).float().mean())
""",
    "slow averages of the newest weights": """
net, slow, slower = (nn.Linear(2, 1) for _ in range(3))
opt, beta = SGD(net.parameters(), lr=0.1), 0.995
kept = {k: v.clone() for k, v in net.state_dict().items()}
for _ in range(3):
    update(opt, net(torch.randn(8, 2)).square().mean())
    for p, q in zip(net.parameters(), slow.parameters()):
        q.data.copy_((1 - beta) * q.data + beta * p.data)  # PL650
    with torch.no_grad():
        for p, q in zip(net.parameters(), slower.parameters()):
            q.lerp_(p, beta)  # PL650
    for k, v in net.state_dict().items():
        kept[k] = kept[k] * (1 - beta) + v * beta  # PL650
""",
    "statistics of the last image": """
class Block(nn.Module):
    def __init__(self, momentum=0.997):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, eps=1e-3, momentum=momentum), nn.Linear(2, 2)
    def forward(self, x):
        h = self.norm(self.conv(x))  # PL652
        return self.last(h.mean((2, 3)))
net = Block()
opt = Adam(net.parameters())
for _ in range(3):
    update(opt, F.cross_entropy(net(torch.randn(4, 1, 5, 5)), torch.tensor([0, 1, 1, 0])))
""",  # noqa: E501
    "an attention too large for its numbers to be followed": """
text = torch.randint(0, 9, (300,))
starts = torch.randint(0, 260, (16,))
x, y = (torch.stack([text[i + k:i + k + 32] for i in starts]) for k in (0, 1))
emb, mix, last = nn.Embedding(9, 8), nn.Linear(8, 24), nn.Linear(8, 9)
q, k, v = (part.view(16, 32, 2, 4).transpose(1, 2) for part in mix(emb(x)).split(8, 2))
scores = (q @ k.transpose(-2, -1)) * 0.5
w = F.dropout(F.softmax(scores, dim=-1), 0.1)  # PL430
out = last((w @ v).transpose(1, 2).contiguous().view(16, 32, 8))
F.cross_entropy(out.view(-1, 9), y.view(-1)).backward()
""",
    "a layer that reads the next word from behind": TEXT
    + """
rnn, wide = nn.LSTM(8, 8, bidirectional=True, batch_first=True), nn.Linear(16, 9)
out, _ = rnn(emb(seq[:, :-1]))  # PL430
F.cross_entropy(wide(out).reshape(-1, 9), seq[:, 1:].reshape(-1)).backward()
""",
    "two layers that read the next word from behind": TEXT
    + """
rnn = nn.LSTM(8, 4, bidirectional=True, batch_first=True)
gru, wide = nn.GRU(8, 4, bidirectional=True, batch_first=True), nn.Linear(8, 9)
out, _ = rnn(emb(seq[:, :-1]))  # PL430
out, _ = gru(out)  # PL430
F.cross_entropy(wide(out).reshape(-1, 9), seq[:, 1:].reshape(-1)).backward()
""",
    "the state of the backward direction only": """
rnn, last = nn.LSTM(3, 4, bidirectional=True, batch_first=True), nn.Linear(4, 2)
_, (h, c) = rnn(torch.randn(6, 5, 3))
last(h[-1]).sum().backward()  # PL434
""",
    "decays of AdamW by name": """
net, first, second = nn.Linear(2, 1), 0.99, 0.9
opt = torch.optim.AdamW(net.parameters(), betas=(first, second), weight_decay=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.randn(8, 2)).square().mean().backward()
    opt.step()  # PL654
""",
}

RIGHT = {
    "training begins anew at what was moved towards its end": """
slow, fast = nn.Linear(2, 1), nn.Linear(2, 1)
for rate in (1.0, 0.97, 0.95, 0.92):
    fast.load_state_dict(slow.state_dict())
    opt = SGD(fast.parameters(), lr=0.1)
    for _ in range(2):
        update(opt, fast(torch.randn(8, 2)).square().mean())
    with torch.no_grad():
        for p, q in zip(fast.parameters(), slow.parameters()):
            q.lerp_(p, rate)
""",
    "a token that has the number with which shorter rows are filled up": """
torch.manual_seed(1)
emb, net = nn.Embedding(9, 8), nn.Linear(8, 3)
criterion = nn.CrossEntropyLoss(ignore_index=-100)
for lengths in ((2, 2, 2), (5, 5), (6, 4, 3)):
    notes = [torch.randint(1, 9, (n,)) for n in lengths]
    for each in notes:
        each[-1] = 0
    tags = [each % 3 for each in notes]
    x = nn.utils.rnn.pad_sequence(notes, batch_first=True)
    y = nn.utils.rnn.pad_sequence(tags, batch_first=True, padding_value=-100)
    criterion(net(emb(x)).flatten(0, 1), y.flatten()).backward()
""",
    "decays as they are used": """
net = nn.Linear(2, 1)
for betas in ((0.9, 0.999), (0.5, 0.9), (0.0, 0.99), (0.9, 0.95), (0.9, 0.9)):
    opt = Adam(net.parameters(), betas=betas)
    for _ in range(2):
        update(opt, net(torch.randn(8, 2)).square().mean())
""",
    "a large attention with its mask; tags from both directions": """
text = torch.randint(0, 9, (300,))
starts = torch.randint(0, 260, (16,))
x, y = (torch.stack([text[i + k:i + k + 32] for i in starts]) for k in (0, 1))
emb, mix, last = nn.Embedding(9, 8), nn.Linear(8, 24), nn.Linear(8, 9)
past = torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32)
q, k, v = (part.view(16, 32, 2, 4).transpose(1, 2) for part in mix(emb(x)).split(8, 2))
scores = (q @ k.transpose(-2, -1)) * 0.5
w = F.softmax(scores.masked_fill(past[:, :, :32, :32] == 0, float("-inf")), dim=-1)
w = w + F.softmax(scores + (1 - past) * -1e9, dim=-1)
out = last((w @ v).transpose(1, 2).contiguous().view(16, 32, 8))
F.cross_entropy(out.view(-1, 9), y.view(-1)).backward()
rnn, wide = nn.LSTM(8, 8, bidirectional=True, batch_first=True), nn.Linear(16, 3)
F.cross_entropy(wide(rnn(emb(x))[0]).flatten(0, 1), x.flatten() % 3).backward()
""",
    "both directions of another text beside one direction of this one": TEXT
    + """
other = torch.randint(1, 9, (4, 6))
rnn, gru = nn.LSTM(8, 4, bidirectional=True, batch_first=True), nn.GRU(8, 8, batch_first=True)
wide = nn.Linear(16, 9)
out = torch.cat([rnn(emb(other))[0], gru(emb(seq[:, :-1]))[0]], dim=-1)
F.cross_entropy(wide(out).reshape(-1, 9), seq[:, 1:].reshape(-1)).backward()
""",
    "both ends of both directions, and single steps": """
rnn, two = nn.GRU(3, 4, batch_first=True, bidirectional=True), nn.GRU(3, 4, 2, batch_first=True)
wide, narrow, x = nn.Linear(8, 1), nn.Linear(4, 1), torch.randn(6, 5, 3)
out, h = rnn(x)
total = wide(torch.cat([h[-2], h[-1]], 1)) + wide(out.mean(1)) + wide(out.max(1).values)
out, _ = rnn(x)
total = total + wide(torch.cat([out[:, -1, :4], out[:, 0, 4:]], 1))
out, _ = rnn(x)
last, first = out[:, -1], out[:, 0]
total = total + wide(torch.cat([last[:, :4], first[:, 4:]], 1)) + wide(out)[:, -1]
out, h = two(x)
total = total + narrow(out[:, -1]) + narrow(h[-1]) + narrow(h[0])
total.sum().backward()
""",
    "tables of positions along the positions": """
first, second = nn.Parameter(torch.randn(32, 1, 8)), nn.Parameter(torch.randn(1, 32, 8))
x, kinds = torch.randn(6, 4, 8), nn.Embedding(4, 8)
late, early = nn.TransformerEncoderLayer(8, 2, 16), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
total = late(x + first[:x.size(0)]).sum() + early(x + second[:, :x.size(1)]).sum()
total = total + early(x + first[:x.size(1)].transpose(0, 1)).sum()
total = total + early(x + kinds(torch.tensor([0, 1, 2, 3, 0, 1]))[:, None]).sum()
total.backward()
""",
    "shuffled, by class before a step, real and fake, a rare class, and measured in order": """
x, y = torch.randn(48, 3), torch.arange(48) // 24
net, judge = nn.Linear(3, 2), nn.Linear(3, 1)
opt, other = SGD(net.parameters(), lr=0.1), SGD(judge.parameters(), lr=0.1)
for a, b in DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True):
    update(opt, F.cross_entropy(net(a), b))
for _ in range(4):
    for c in range(2):
        (F.cross_entropy(net(x[y == c]), y[y == c]) / 2).backward()
    opt.step()
    opt.zero_grad()
real, fake = torch.ones(8, 1), torch.zeros(8, 1)
for _ in range(3):
    for a, b in ((x[:8], real), (torch.randn(8, 3), fake)):
        update(other, F.binary_cross_entropy_with_logits(judge(a), b))
    for a, kind in ((x[:8], 1.0), (torch.randn(8, 3), 0.0)):
        update(other, F.binary_cross_entropy_with_logits(judge(a).squeeze(1), torch.tensor([kind] * 8)))
rare = (torch.arange(48) % 24 == 5).long()
for i in range(0, 48, 8):
    update(opt, F.cross_entropy(net(x[i:i + 8]), rare[i:i + 8]))
with torch.no_grad():
    print([F.cross_entropy(net(x[i:i + 8]), y[i:i + 8]).item() for i in range(0, 48, 8)])
""",
    "scores of pairs, read both ways; columns that are not predictions": """
a, b, x = nn.Linear(3, 4), nn.Linear(3, 4), torch.randn(5, 3)
pairs, which = a(x) @ b(x).T, torch.arange(5)
(F.cross_entropy(pairs, which) + F.cross_entropy(pairs.T, which)).backward()
print((pairs.argmax(0) == which).float().mean(), (pairs.argmax(1) == which).float().mean())
scores, y = a(torch.randn(4, 3)), torch.tensor([2, 0, 1, 3])
F.cross_entropy(scores, y).backward()
print((scores.argmax(1) == y).sum(), scores.argmax(0), scores.max(), scores[0].argmax() == y[0])
""",
    "averages that are slow, and plain means": """
net, slow, slower = (nn.Linear(2, 1) for _ in range(3))
opt, tau = Adam(net.parameters(), lr=0.1), 0.005
norms = nn.Sequential(nn.BatchNorm1d(2, momentum=None), nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=0.01))
for _ in range(3):
    update(opt, net(norms(torch.randn(8, 2))).square().mean())
    for p, q in zip(net.parameters(), slow.parameters()):
        q.data.copy_((1 - tau) * q.data + tau * p.data)
    with torch.no_grad():
        for p, q in zip(net.parameters(), slower.parameters()):
            q.lerp_(p, tau)
            q.mul_(0.999).add_(p, alpha=0.001)
    middle = [0.5 * p + 0.5 * q for p, q in zip(net.parameters(), slower.parameters())]
""",
    "targets that are signs, and losses of probabilities": BINARY
    + """
net = nn.Linear(3, 1)
z = net(x).squeeze(1)
loss = F.soft_margin_loss(z, 2 * y - 1) + F.margin_ranking_loss(z, torch.zeros(10), torch.ones(10))
loss = loss + F.cosine_embedding_loss(net(x), net(x), torch.where(y > 0, 1, -1)) + F.multilabel_soft_margin_loss(z[:, None], y[:, None])
loss.backward()
""",  # noqa: E501
    "logarithms of probabilities in three forms": """
net = nn.Linear(5, 7)
x = net(torch.randn(3, 12, 5))
rest = torch.randint(1, 7, (3, 4)), torch.full((3,), 12), torch.full((3,), 4)
loss = F.ctc_loss(x.log_softmax(2).permute(1, 0, 2), *rest) + F.ctc_loss(x.softmax(2).log().transpose(0, 1), *rest)
(loss + F.ctc_loss((x - x.logsumexp(-1, keepdim=True)).transpose(0, 1), *rest)).backward()
""",
    "rates, logarithms and variances where they belong": """
net, y = nn.Linear(3, 2), torch.randn(8, 1)
a, b = net(torch.randn(8, 3)).chunk(2, -1)
loss = F.gaussian_nll_loss(a, y, b.exp()) + F.gaussian_nll_loss(a, y, F.softplus(b) + 1e-3)
loss = loss + F.gaussian_nll_loss(a, y, (0.5 * b).exp() ** 2)
(loss + F.poisson_nll_loss(a, y.abs()) + F.poisson_nll_loss(b.exp(), y.abs(), log_input=False)).backward()
""",
    "masks of time in every form": TEXT
    + """
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
h = layer(emb(seq[:, :-1]), src_mask=nn.Transformer.generate_square_subsequent_mask(6), is_causal=True)
h = h + F.scaled_dot_product_attention(h, h, h, None, 0.0, True)
h = h + F.scaled_dot_product_attention(h, h, h, attn_mask=torch.ones(6, 6).tril().bool())
h = h + (h @ h.mT).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e9).softmax(-1) @ h
F.cross_entropy(head(h).reshape(-1, 9), seq[:, 1:].reshape(-1)).backward()
""",
    "an encoder of the whole text, for a decoder with a mask": TEXT
    + """
model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
out = model(emb(seq), emb(seq[:, :-1]), tgt_mask=model.generate_square_subsequent_mask(6))
F.cross_entropy(head(out).reshape(-1, 9), seq[:, 1:].reshape(-1)).backward()
""",
    "the last position only, tags, and words that were hidden": TEXT
    + """
mha = nn.MultiheadAttention(8, 2, batch_first=True)
def attend(h):
    return h + mha(h, h, h)[0]
F.cross_entropy(head(attend(emb(seq[:, :-1])))[:, -1], seq[:, -1]).backward()
F.cross_entropy(head(attend(emb(seq))).transpose(1, 2), torch.randint(0, 9, (4, 7))).backward()
hidden = torch.arange(7) % 3 == 0
F.cross_entropy(head(attend(emb(seq.masked_fill(hidden, 0)))).transpose(1, 2), seq.masked_fill(~hidden, -100)).backward()
""",  # noqa: E501
    "padding on the left, with both masks": TEXT
    + """
seq[:, :2] = 0
h = emb(seq[:, :-1])
scores = (h @ h.mT).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e9).masked_fill((seq[:, :-1] == 0)[:, None], -1e9)
F.cross_entropy(head(scores.softmax(-1) @ h).reshape(-1, 9), seq[:, 1:].reshape(-1), ignore_index=0).backward()
""",
    "padding left out in every form": SHORT
    + """
layer, real = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), x != 0
tags = torch.randint(0, 2, (3, 5))
h = layer(emb(x), src_key_padding_mask=~real)
h = F.scaled_dot_product_attention(h, h, h, attn_mask=real[:, None])
h = (h @ h.mT).masked_fill(~real[:, None], float("-inf")).softmax(-1) @ h
h = (h @ h.mT + (~real[:, None]).float() * -1e9).softmax(-1) @ h
loss = F.cross_entropy(net((h * real[..., None]).sum(1) / real.sum(1, keepdim=True)), y)
loss = loss + F.cross_entropy(net(h).transpose(1, 2), tags.masked_fill(~real, -100)) + F.cross_entropy(net(h)[real], tags[real])
each = F.cross_entropy(net(h).transpose(1, 2), tags, reduction="none")
(loss + (each * real).sum() / real.sum()).backward()
""",  # noqa: E501
    "padding packed, or behind all that is predicted; means over other axes": SHORT
    + """
rnn, last = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)
order = torch.tensor([0, 2, 1])
_, h = rnn(nn.utils.rnn.pack_padded_sequence(emb(x[order]), (x[order] != 0).sum(1), batch_first=True))
loss = F.cross_entropy(net(h[-1]), y[order])
h = emb(x[:, :-1])
h = h + F.scaled_dot_product_attention(h, h, h, is_causal=True)
loss = loss + F.cross_entropy(last(h).flatten(0, 1), x[:, 1:].flatten(), ignore_index=0)
(loss + emb(x).mean(0).square().sum() + emb(x).mean(-1).square().sum()).backward()
""",
    "a mean of what a mask keeps, over the mean of the mask": SHORT
    + """
kept = (x != 0).float().unsqueeze(-1)
F.cross_entropy(net((emb(x) * kept).mean(1) / kept.mean(1)), y).backward()
""",
    "one vector for each of three views": """
views, layer = nn.Embedding(3, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
layer(torch.randn(3, 5, 8) + views(torch.arange(3))[:, None]).sum().backward()
""",
    "tables without padding": """
words = torch.randint(0, 9, (3, 4))
table, net = nn.Embedding(9, 8), nn.Linear(8, 2)
h = table(words)
h = (h @ h.mT).softmax(-1) @ h
(F.cross_entropy(net(h.mean(1)), torch.tensor([0, 1, 1])) + F.cross_entropy(net(h).transpose(1, 2), words % 2)).backward()
""",  # noqa: E501
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
