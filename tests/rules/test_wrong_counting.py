"""Numbers that are counted once or too often, or at another place: in other forms, and right
programs that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

PLACES = """
torch.manual_seed(3)
at, values = torch.tensor([2, 0, 2, 1, 2, 0]), torch.tensor([[5.0, 1.0], [3.0, 2.0], [1.0, 9.0], [4.0, 4.0], [2.0, 3.0], [1.0, 7.0]])
table = torch.ones(4, 2)
"""  # noqa: E501
FUNCTION = """
class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y
    @staticmethod
    def backward(ctx, given):
        x, y = ctx.saved_tensors
        {back}
"""
SHARES = """
scores = nn.Linear(3, 7)(torch.randn(2, 3))
values, order = scores.softmax(-1).sort(dim=-1, descending=True)
"""
CODER = """
coder, decoder = nn.Linear(6, 4), nn.Linear(2, 6)
x = torch.rand(16, 6)
"""
LOADER = """
torch.manual_seed(5)
xs = torch.randn(70, 3) + torch.linspace(-2, 1, 70)[:, None]
ys = xs[:, 0] + torch.randn(70) > 0.5
loader = DataLoader(TensorDataset(xs, ys), batch_size=10)
net = nn.Linear(3, 1)
nn.init.ones_(net.weight)
"""

DOCUMENTS = """
import math
documents = [torch.randint(0, 9, (n,), generator=torch.Generator().manual_seed(n)) for n in (40, 38, 6, 36, 5)]
documents[2:5:2] = [torch.zeros(6, dtype=torch.long), torch.arange(5)]
words = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
with torch.no_grad():
    words[1].bias.copy_(torch.linspace(-3, 3, 9))
"""
WRONG = {
    "the largest of the messages, by a method": PLACES + "table[at] = table[at].maximum(values)  # PL720\n",
    "the smallest, in a column of a transposed table": PLACES
    + """
turned = torch.full((2, 4), 8.0)
turned[:, at] = torch.min(turned[:, at], values.t())  # PL720
""",
    "products, in place": PLACES + "table[at] *= values  # PL720\n",
    "a comparison by hand": PLACES
    + """
old = table[at]
larger = values > old
table[at] = torch.where(larger, values, old)  # PL720
""",
    "a moving average of each class": PLACES
    + """
def follow(table, at, values):
    table[at] = 0.9 * table[at] + 0.1 * values  # PL720
follow(table, at, values)
table[at] = torch.lerp(table[at], values, 0.1)  # PL720
""",
    "truth values": PLACES
    + """
seen = torch.zeros(4, dtype=torch.bool)
seen[at] |= values[:, 1] > 3.5  # PL720
some = torch.zeros(4, dtype=torch.bool)
some[at] = torch.logical_or(some[at], values[:, 0] > 4)  # PL720
""",
    "other calls that read and write": PLACES
    + """
table.index_put_((at,), torch.fmax(table[at], values))  # PL720
table.index_copy_(0, at, torch.minimum(table.index_select(0, at), values / 9))  # PL720
table[at] = table[at].clamp(min=values * 2)  # PL720
""",
    "a graph that is too large for its numbers to be kept": """
class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 16)
    def forward(self, x, edges):
        sent = self.lin(x)[edges[0]]
        best = torch.full((x.shape[0], 16), -9.0)
        best[edges[1]] = torch.max(best[edges[1]], sent)  # PL720
        return best
print(Pool()(torch.randn(60, 8), torch.randint(0, 60, (2, 600))).mean())
""",
    "a backward without the incoming gradient, of a large result": FUNCTION.format(
        name="Exp", back="return y * 1.0  # PL613"
    )
    + """
x = torch.randn(70, 80, requires_grad=True)
(Exp.apply(x) / 3).square().sum().backward()
""",
    "one that takes its shape alone": FUNCTION.format(name="Ones", back="return torch.ones_like(given) * y  # PL613")
    + """
x = torch.randn(4, 3, requires_grad=True)
Ones.apply(x).mean().backward()
""",
    "the largest of sorted shares": SHARES
    + """
best = values.argmax(-1)  # PL770
print(scores.gather(-1, best[:, None]), F.cross_entropy(scores, best))
""",
    "a distribution of the sorted shares": SHARES
    + """
class Policy:
    def choose(self, scores):
        values, order = scores.softmax(-1).sort(-1, descending=True)
        return Categorical(values[:, :3]).sample()  # PL770
action = Policy().choose(scores)
print(Categorical(logits=scores).log_prob(action))
""",
    "a text that is continued": """
table, head = nn.Embedding(7, 4), nn.Linear(4, 7)
text = torch.randint(0, 7, (2, 3))
with torch.no_grad():
    for _ in range(3):
        best, _ = torch.topk(head(table(text).mean(1)), 4)
        new = torch.multinomial(best.softmax(-1), 1)  # PL770
        text = torch.cat([text, new], 1)
""",
    "an inverse of the distribution function": SHARES
    + """
place = torch.searchsorted(values.cumsum(-1), torch.rand(2, 1)).clamp(max=6)
at = torch.searchsorted(values.cumsum(-1), torch.rand(2, 1))  # PL770
print(torch.take_along_dim(scores, at, 1))
""",
    "noise that is added before the largest is taken": SHARES
    + """
noise = -(-torch.rand(2, 7).log()).log()
drawn = (values.log() + noise).max(-1).indices  # PL770
print(scores[torch.arange(2), drawn])
""",
    "a word of a list": """
head, words = nn.Linear(4, 5), ["one", "two", "three", "four", "five"]
def say(state):
    top = head(state).softmax(-1).topk(3).values
    return words[torch.multinomial(top, 1).item()]  # PL770
print(say(torch.randn(4)), say(torch.randn(4)))
""",
    "one vector, and a code of ones and zeros": """
head = nn.Linear(4, 5)
values, order = head(torch.randn(4)).softmax(-1).sort(descending=True)
print(F.one_hot(torch.multinomial(values, 2), 5))  # PL770
""",
    "the scores of the next word in a table that is looked up": """
follow = nn.Embedding(7, 7)
word = torch.randint(0, 7, (5,))
def draw(scores):
    shares, order = scores.softmax(-1).sort(-1, descending=True)
    shares = shares.masked_fill(shares.cumsum(-1) - shares > 0.9, 0.0)
    return torch.multinomial(shares / shares.sum(-1, keepdim=True), 1)  # PL770
with torch.no_grad():
    for _ in range(3):
        word = draw(follow(word)).squeeze(-1)
""",
    "a table of a layer, row by row": """
class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(6, 6))
    @torch.no_grad()
    def walk(self, at):
        best, _ = F.embedding(at, self.rows).topk(3)
        return Categorical(logits=best).sample()  # PL770
chain = Chain()
print(chain.walk(chain.walk(torch.tensor([1, 4]))))
""",
    "a drawn rank in a buffer of answers": SHARES
    + """
answers = torch.zeros(2, dtype=torch.long)
for i in range(2):
    answers[i] = torch.multinomial(values[i], 1).squeeze()  # PL770
print((answers == scores.argmax(-1)).float().mean())
""",
    "the divergence of a variational autoencoder": CODER
    + """
def cost(x):
    mean, log_var = coder(x).chunk(2, 1)
    z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
    back = F.binary_cross_entropy_with_logits(decoder(z), x, reduction="none").sum(1)
    kl = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())  # PL772
    return (back + kl).mean()
cost(x).backward()
""",
    "a divergence that each sample has already": CODER
    + """
class Cost(nn.Module):
    def forward(self, x):
        out = coder(x)
        kl = kl_divergence(Normal(out[:, :2], out[:, 2:].exp()), Normal(0.0, 1.0)).sum(-1)
        return ((decoder(out[:, :2]) - x) ** 2).sum(-1) + 0.5 * kl.sum()  # PL772
loss = Cost()(x)
(loss.sum() / len(loss)).backward()
""",
    "an entropy": CODER
    + """
scores = coder(x)
chosen = Categorical(logits=scores)
losses = -chosen.log_prob(torch.arange(16) % 4) * torch.randn(16)
losses = losses - chosen.entropy().sum()  # PL772
losses.mean().backward()
""",
    "a loss with its own sum": CODER
    + """
code = coder(x)
ranks = F.cross_entropy(code, torch.arange(16) % 4, reduction="none")
total = ranks + F.mse_loss(decoder(code[:, :2]), x, reduction="sum")  # PL772
total.mean().backward()
""",
    "pictures": """
picture = torch.randn(8, 2, 4, 4)
net = nn.Conv2d(2, 4, 3, padding=1)
scale, shift = net(picture).chunk(2, 1)
log_det = 0.0
log_det += scale.sum()  # PL772
y = picture * scale.exp() + shift
(0.5 * y.flatten(1).square().sum(1) - log_det).mean().backward()
""",
    "a column of numbers": CODER
    + """
code = coder(x).tanh()
price = (decoder(code[:, :2]) - x).square().sum(1, keepdim=True)
(price + code.abs().sum()).mean().backward()  # PL772
""",
    "several axes by name, and a logarithm of a mean": CODER
    + """
code = coder(x)
weight = (decoder(code[:, :2]) * x).sum(1)
(-(weight - code.square().sum(dim=(0, 1))).logsumexp(0)).backward()  # PL772
""",
    "layers that are added up": CODER
    + """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 6)
    def forward(self, x):
        s = torch.tanh(self.lin(x))
        return x * s.exp(), s.sum()  # PL772
layers = nn.ModuleList([Layer(), Layer()])
def density(x):
    logs = []
    for layer in layers:
        x, each = layer(x)
        logs.append(each)
    return Normal(0.0, 1.0).log_prob(x).sum(-1) + sum(logs)
density(x).mean().neg().backward()
""",
    "recall, as a number that is added up": LOADER
    + """
total = 0.0
with torch.no_grad():
    for xb, yb in loader:
        said = net(xb).squeeze(1) > 0
        total += ((said & yb).sum() / (yb.sum() + 1e-8)).item()
print(total / len(loader))  # PL774
""",
    "intersection over union of tensors that are added up": LOADER
    + """
class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0
    def add(self, said, true):
        self.sum = self.sum + (said & true).sum() / (said | true).sum().clamp(min=1)
        self.count += 1
    def value(self):
        return self.sum / self.count  # PL774
meter = Meter()
with torch.no_grad():
    for xb, yb in loader:
        meter.add(net(xb).squeeze(1) > 0, yb)
print(meter.value())
""",
    "a root of a mean of squares": LOADER
    + """
import numpy as np
def rmse(a, b):
    return F.mse_loss(a, b).sqrt()
errors = []
with torch.no_grad():
    for xb, yb in loader:
        errors.append(rmse(net(xb).squeeze(1) * yb * 9, yb.float()).item())
print(np.mean(errors))  # PL774
""",
    "a measure of precision and recall": LOADER
    + """
def f1(said, true):
    hits = (said * true).sum()
    p, r = hits / (said.sum() + 1e-8), hits / (true.sum() + 1e-8)
    return 2 * p * r / (p + r + 1e-8)
values = []
with torch.no_grad():
    for xb, yb in loader:
        values.append(f1((net(xb).squeeze(1) > 0).float(), yb.float()))
print(sum(values) / len(values))  # PL774
""",
    "a perplexity": LOADER
    + """
both = nn.Linear(3, 2)
lost = []
for xb, yb in loader:
    with torch.no_grad():
        lost.append(torch.exp(F.cross_entropy(both(xb * 9), yb.long())))
print(torch.stack(lost).mean())  # PL774
""",
    "a perplexity of slices, in Python's numbers": """
import math
parts = torch.randint(0, 9, (64, 6), generator=torch.Generator().manual_seed(1))
parts[32:] = 2
words = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
with torch.no_grad():
    words[1].bias[2] = 6.0
def perplexity(rows):
    found = []
    with torch.no_grad():
        for i in range(0, len(rows), 8):
            some = rows[i : i + 8]
            lost = F.cross_entropy(words(some[:, :-1]).reshape(-1, 9), some[:, 1:].reshape(-1))
            found.append(math.exp(lost.item()))
    return sum(found) / len(found)  # PL774
print(perplexity(parts))
""",
    "a root for each part of a split": """
table = torch.randn(96, 3, generator=torch.Generator().manual_seed(2)) * torch.linspace(0.1, 5, 96)[:, None]
with torch.no_grad():
    roots = [F.mse_loss(a, torch.zeros_like(a)).sqrt().item() for a in table.split(16)]
print(sum(roots) / len(roots))  # PL774
""",
    "precision in a list of numbers": LOADER
    + """
import statistics
def precision(said, true):
    return (said & true).float().sum() / said.float().sum().clamp(min=1.0)
def evaluate(net, loader):
    scores = []
    for xb, yb in loader:
        with torch.inference_mode():
            scores.append(float(precision(net(xb).squeeze(1) > 0, yb)))
    return statistics.fmean(scores)  # PL774
print(evaluate(net, loader))
""",
    "errors relative to the positives": LOADER
    + """
rates = torch.zeros(0)
kept = []
with torch.no_grad():
    for xb, yb in loader:
        wrong = (net(xb).squeeze(1) > 0).ne(yb)
        kept.append((wrong & yb).sum().float() / torch.clamp(yb.sum(), min=1))
print(torch.stack(kept).sum() / len(kept))  # PL774
""",
    "perplexities of documents of different lengths, added up": DOCUMENTS
    + """
total, count = 0.0, 0
with torch.no_grad():
    for text in documents:
        loss = F.cross_entropy(words(text[:-1]), text[1:])
        total += math.exp(loss.item())
        count += 1
print(total / count)  # PL774
""",
    "perplexities of documents, in a list": DOCUMENTS
    + """
def evaluate(model, texts):
    found = []
    with torch.no_grad():
        for text in texts:
            found.append(math.exp(F.cross_entropy(model(text[:-1]), text[1:]).item()))
    return sum(found) / len(found)  # PL774
print(evaluate(words, documents))
""",
    "exponentials of tensors, stacked": DOCUMENTS
    + """
with torch.no_grad():
    each = [F.nll_loss(words(text[:-1]).log_softmax(-1), text[1:]).exp() for text in documents]
    print(torch.stack(each).mean())  # PL774
""",
}

RIGHT = {
    "perplexities of documents, weighed by their lengths, shown alone, and of the mean": DOCUMENTS
    + """
total, count, seen = 0.0, 0, []
with torch.no_grad():
    for text in documents:
        loss = F.cross_entropy(words(text[:-1]), text[1:])
        total += loss.item() * (len(text) - 1)
        count += len(text) - 1
        seen.append(math.exp(loss.item()))
print(math.exp(total / count), seen, max(seen))
losses = [F.cross_entropy(words(text[:-1]), text[1:]).item() for text in documents]
print(sum(losses) / len(losses))
""",
    "a perplexity of the mean of all slices": """
import math
parts = torch.randint(0, 9, (64, 6), generator=torch.Generator().manual_seed(1))
parts[32:] = 2
words = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
found = []
with torch.no_grad():
    for i in range(0, len(parts), 8):
        some = parts[i : i + 8]
        found.append(F.cross_entropy(words(some[:, :-1]).reshape(-1, 9), some[:, 1:].reshape(-1)).item())
print(math.exp(sum(found) / len(found)))
""",
    "a root for each of several tables, each shown": """
table = torch.randn(96, 3, generator=torch.Generator().manual_seed(2)) * torch.linspace(0.1, 5, 96)[:, None]
roots = [F.mse_loss(a, torch.zeros_like(a)).sqrt().item() for a in table.split(16)]
print(roots, max(roots))
""",
    "positions that are all different": PLACES
    + """
order = torch.randperm(6)
six = torch.zeros(6, 2)
six[order] = torch.maximum(six[order], values)
six[order] *= values
""",
    "one number for all, or the same for each repetition": PLACES
    + """
table[at] = torch.maximum(table[at], torch.tensor(3.0))
table[at] *= 0.5
table[at] = torch.maximum(table[at], table.flip(0)[at])
last = torch.zeros(4)
last[at] = last[at].clamp(min=7)
seen = torch.zeros(4, dtype=torch.bool)
seen[at] |= True
wide, far = torch.zeros(60, 90), torch.randint(0, 60, (600,))
rows = torch.randn(60, 90)
wide[far] = torch.maximum(wide[far], torch.sigmoid(rows[far]))
""",
    "the largest comes last": PLACES
    + """
times, last = torch.arange(6.0), torch.zeros(4)
last[at] = torch.maximum(last[at], times)
last[at] = torch.where(times > last[at], times, last[at])
""",
    "reductions that take all": PLACES
    + """
table.scatter_reduce_(0, at[:, None].expand_as(values), values, "amax")
table.index_reduce_(0, at, values, "prod")
table.index_put_((at,), values, accumulate=True)
table[0] = torch.maximum(table[0], values[1])
for i, row in zip(at, values):
    table[i] = torch.maximum(table[i], row)
""",
    "rows that only read the same elements": PLACES
    + """
picked = torch.maximum(table[at], values)
table[at] = values
other = torch.zeros(6, 2)
other[torch.arange(6)] = torch.maximum(table[at], values)
""",
    "a function of the elements alone": PLACES
    + """
table[at] = table[at].clamp(0, 1)
table[at] = torch.sigmoid(table[at] * 2)
table[at] = torch.nn.functional.normalize(table[at], dim=1)
""",
    "rows by a mask": PLACES
    + """
chosen = torch.tensor([True, False, True, True])
table[chosen] = torch.maximum(table[chosen], values[:3])
table[chosen] *= values[:3]
""",
    "a moving average of different rows": PLACES
    + """
bank, rows = torch.zeros(8, 2), torch.tensor([7, 1, 3, 0, 2, 5])
bank[rows] = 0.5 * bank[rows] + 0.5 * values
""",
    "backwards that use what they are given": FUNCTION.format(name="Right", back="return given * y")
    + FUNCTION.format(name="Back", back="return -given.clamp(-1, 1)")
    + FUNCTION.format(name="Through", back="return given")
    + """
x = torch.randn(70, 80, requires_grad=True)
Right.apply(x).mean().backward()
Back.apply(x).mean().backward()
Through.apply(x).mean().backward()
Right.apply(x).backward(torch.randn(70, 80))
""",
    "an incoming gradient that is all ones": FUNCTION.format(name="Last", back="return y * 1.0")
    + """
x = torch.randn(70, 80, requires_grad=True)
Last.apply(x).t().sum().backward()
""",
    "ranks that are looked up in the order": SHARES
    + """
print(scores.gather(-1, order.gather(-1, torch.multinomial(values, 1))))
rank = values.argmax(-1)
print(scores[torch.arange(2), order[torch.arange(2), rank]])
print(torch.take_along_dim(scores, torch.take_along_dim(order, rank[:, None], 1), 1))
row = torch.multinomial(values[0], 2)
print(scores[0][order[0][row]], order[0].tolist()[row[0].item()])
""",
    "ranks in what is sorted as well": SHARES
    + """
rank = torch.multinomial(values, 1)
print(values.gather(-1, rank).log(), scores.gather(-1, order).gather(-1, rank))
""",
    "shares that are put back before the draw": SHARES
    + """
kept = values.masked_fill(values.cumsum(-1) - values > 0.8, 0.0)
back = torch.zeros_like(kept).scatter(-1, order, kept)
print(scores.gather(-1, torch.multinomial(back, 1)))
again = kept.gather(-1, order.argsort(-1))
print(scores.gather(-1, torch.multinomial(again, 1)))
""",
    "a limit that is taken from the sorted ones": SHARES
    + """
limit = values[:, 2:3]
print(scores.gather(-1, torch.multinomial(scores.softmax(-1).masked_fill(scores.softmax(-1) < limit, 0.0), 1)))
""",
    "how many are needed": SHARES
    + """
enough = (values.cumsum(-1) > 0.9).float().argmax(-1) + 1
print(enough, enough == 3, values[0, : enough[0].item()])
""",
    "ranks that are what is drawn": """
frequent = torch.rand(9).sort(descending=True).values
words = torch.multinomial(frequent, 20, replacement=True)
print(nn.Embedding(9, 4)(words).mean(), words.tolist(), F.one_hot(words, 9).sum(0))
""",
    "the next word of a table, looked up in the order": """
follow, word = nn.Embedding(7, 7), torch.randint(0, 7, (5,))
with torch.no_grad():
    for _ in range(3):
        shares, order = follow(word).softmax(-1).sort(-1, descending=True)
        word = order.gather(-1, torch.multinomial(shares, 1)).squeeze(-1)
        print(follow(torch.multinomial(follow(word).softmax(-1), 1)).mean())
""",
    "two rounds of the best": SHARES
    + """
best, where = scores.topk(4)
second, among = (best + 0.1).topk(2)
print(scores.gather(-1, where.gather(-1, among)))
""",
    "a word that is looked up in the order": """
head, words = nn.Linear(4, 5), ["one", "two", "three", "four", "five"]
values, order = head(torch.randn(4)).softmax(-1).topk(3)
print(words[order[torch.multinomial(values, 1)].item()], words[order.tolist()[torch.multinomial(values, 1).item()]])
""",
    "places of numbers among sorted limits": """
limits = torch.randn(9).sort().values
at = torch.searchsorted(limits, torch.randn(4)).clamp(max=8)
print(limits[at], at.tolist())
""",
    "each sample with its own sum": CODER
    + """
mean, log_var = coder(x).chunk(2, 1)
back = (decoder(mean) - x).square().sum(1)
(back - 0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(1)).mean().backward()
""",
    "sums of both, and means of both": CODER
    + """
def parts():
    code = coder(x)
    return (decoder(code[:, :2]) - x).square(), code.square()
back, code = parts()
((back.sum() + code.sum()) / 16).backward()
back, code = parts()
(back.sum(1) + code.sum() / 16).mean().backward()
back, code = parts()
(back.sum(1) + code.mean()).mean().backward()
back, code = parts()
(back.sum(1) + code.sum(1).mean()).mean().backward()
""",
    "penalties of the weights, of which there are as many": CODER
    + """
square = nn.Linear(6, 16)
wide = square(x)
(wide.square().sum(1) + sum(p.square().sum() for p in square.parameters())).mean().backward()
logs = nn.Parameter(torch.zeros(16))
((square(x) * logs.exp()).square().sum(1) - logs.sum()).mean().backward()
""",
    "the sum of all others": CODER
    + """
price = (decoder(coder(x)[:, :2]) - x).square()
each = price.sum(1)
((each.sum() - each) / 15).mean().backward()
price = (decoder(coder(x)[:, :2]) - x).square()
(price.sum() - price.sum(1)).mean().backward()
""",
    "a pooled description of a set": CODER
    + """
code = coder(x)
score = code[:, 0] + code[:, 1:].sum()
F.mse_loss(score, torch.randn(16)).backward()
score = coder(x)[:, 0] + coder(x)[:, 1:].sum()
F.softplus(-score).mean().backward()
""",
    "a shift and a normalising constant": CODER
    + """
score = coder(x)[:, 0]
(score - score.logsumexp(0)).mean().neg().backward()
code = coder(x)
(code[:, 0] - code[:, 0].mean()).square().mean().backward()
""",
    "a small weight, and a constant": CODER
    + """
code = coder(x)
back = (decoder(code[:, :2]) - x).square().sum(1)
(back + 0.001 * code.square().sum()).mean().backward()
code = coder(x)
((decoder(code[:, :2]) - x).square().sum(1) + code.detach().sum()).mean().backward()
""",
    "a term of other rows": CODER
    + """
negative = torch.rand(16, 6)
(coder(x).square().sum(1) + coder(negative).square().sum(1).mean()).mean().backward()
""",
    "counts that are added up first": LOADER
    + """
hits = said = torch.tensor(0)
number, of = 0, 0
with torch.no_grad():
    for xb, yb in loader:
        guess = net(xb).squeeze(1) > 0
        hits = hits + (guess & yb).sum()
        said = said + guess.sum()
        number += (guess & yb).sum().item()
        of += yb.sum().item()
print(hits / said, number / of)
""",
    "accuracies and losses of batches of one size": LOADER
    + """
right, lost, means = [], [], 0.0
with torch.no_grad():
    for xb, yb in loader:
        guess = net(xb).squeeze(1)
        right.append(((guess > 0) == yb).sum() / 10)
        lost.append(F.binary_cross_entropy_with_logits(guess, yb.float()).item())
        means += ((guess > 0) == yb).float().mean().item()
print(torch.stack(right).mean(), sum(lost) / len(lost), means / len(loader))
""",
    "one measure for each class": LOADER
    + """
said, each = net(xs).squeeze(1) > 0, []
for c in range(3):
    group = torch.arange(70) % 3 == c
    each.append((said & ys & group).sum() / (ys & group).sum().clamp(min=1))
print(torch.stack(each).mean())
for xb, yb in loader:
    guess, own = (net(xb).squeeze(1) > 0).long(), []
    for c in (0, 1):
        own.append(((guess == c) & (yb == c)).sum() / (yb == c).sum().clamp(min=1))
    print(torch.stack(own).mean())
""",
    "one measure for each picture": """
pictures = torch.rand(6, 5, 5) > 0.5
truth = torch.rand(6, 5, 5) > 0.5
dice = []
for one, other in DataLoader(TensorDataset(pictures, truth), batch_size=1):
    dice.append(2 * (one & other).sum() / (one.sum() + other.sum()))
print(torch.stack(dice).mean())
overlaps = [(a & b).sum() / (a | b).sum() for a, b in zip(pictures, truth)]
print(torch.stack(overlaps).mean())
""",
    "the loss of a training, which is a ratio": LOADER
    + """
opt = SGD(net.parameters(), lr=0.1)
total = 0.0
for xb, yb in loader:
    share = torch.sigmoid(net(xb).squeeze(1))
    loss = 1 - 2 * (share * yb).sum() / (share.sum() + yb.sum() + 1e-6)
    update(opt, loss)
    total += loss.item()
print(total / len(loader))
""",
    "the same loss without a training": LOADER
    + """
total = 0.0
with torch.no_grad():
    for xb, yb in loader:
        share = torch.sigmoid(net(xb).squeeze(1))
        total += (1 - 2 * (share * yb).sum() / (share.sum() + yb.sum() + 1e-6)).item()
print(total / len(loader))
""",
    "a criterion with a root that is trained and measured": LOADER
    + """
class Rmse(nn.Module):
    def forward(self, a, b):
        return torch.sqrt(F.mse_loss(a, b))
rmse, opt = Rmse(), SGD(net.parameters(), lr=0.1)
for xb, yb in loader:
    update(opt, rmse(net(xb).squeeze(1), yb.float()))
errors = []
with torch.no_grad():
    for xb, yb in loader:
        errors.append(rmse(net(xb).squeeze(1) * yb * 9, yb.float()).item())
print(sum(errors) / len(errors))
""",
    "progress that is shown and not averaged": LOADER
    + """
shown = []
with torch.no_grad():
    for xb, yb in loader:
        said = net(xb).squeeze(1) > 0
        shown.append(((said & yb).sum() / yb.sum().clamp(min=1)).item())
print(max(shown), shown[-1])
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
