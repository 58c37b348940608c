"""The row for padding of a table of vectors: random numbers in it are found where they are read; what
leaves it out or sets it is right.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

LONG = """
x = torch.tensor([[3, 4, 5, 6, 2], [3, 4, 0, 0, 0], [7, 1, 2, 0, 0]])
y = torch.tensor([0, 1, 1])
"""

WRONG = {
    "a large table, by a method of the module": LONG
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(900, 8, padding_idx=0), nn.Linear(8, 2)
        self.reset()
    def reset(self):
        nn.init.normal_(self.emb.weight, std=0.1)  # PL907
    def forward(self, x):
        return self.out(self.emb(x).sum(1))
net = Net()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.cross_entropy(net(x), y))
""",
    "through .data, without a backward": LONG
    + """
emb = nn.Embedding(900, 8, padding_idx=0)
emb.weight.data.uniform_(-0.1, 0.1)  # PL907
print(emb(x).sum(1))
""",
    "by apply, for two tables of which one has padding": LONG
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.place, self.out = nn.Embedding(20, 8, padding_idx=0), nn.Embedding(5, 8), nn.Linear(8, 2)
    def forward(self, x):
        return self.out((self.emb(x) + self.place(torch.arange(5))).sum(1))
def init(m):
    if isinstance(m, nn.Embedding):
        m.weight.data.normal_(0.0, 0.02)  # PL907
net = Net()
net.apply(init)
F.cross_entropy(net(x), y).backward()
""",
    "in a loop over all parameters": LONG
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 2)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)  # PL907
    def forward(self, x):
        return self.out(self.emb(x).sum(1))
net = Net()
F.cross_entropy(net(x), y).backward()
""",
    "under no_grad, with a number for padding at the end of the table": """
emb, out = nn.Embedding(20, 8, padding_idx=19), nn.Linear(8, 2)
with torch.no_grad():
    emb.weight.normal_()  # PL907
bags = torch.tensor([[3, 4, 19, 19], [1, 19, 19, 19]])
F.cross_entropy(out(emb(bags).sum(1)), torch.tensor([0, 1])).backward()
""",
    "before a recurrent layer that reads the padding": LONG
    + """
emb, rnn, out = nn.Embedding(800, 8, padding_idx=0), nn.GRU(8, 6, batch_first=True), nn.Linear(6, 2)
nn.init.trunc_normal_(emb.weight, std=0.02)  # PL907
F.cross_entropy(out(rnn(emb(x))[1][0]), y).backward()
""",
    "before a convolution and a maximum": LONG
    + """
emb, conv, out = nn.Embedding(20, 8, padding_idx=0), nn.Conv1d(8, 6, 2), nn.Linear(6, 2)
nn.init.uniform_(emb.weight, -0.25, 0.25)  # PL907
F.cross_entropy(out(torch.relu(conv(emb(x).transpose(1, 2))).amax(2)), y).backward()
""",
    "a sum whose divisor alone counts the words": LONG
    + """
emb, out = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 2)
nn.init.kaiming_uniform_(emb.weight)  # PL907
F.cross_entropy(out(emb(x).sum(1) / torch.tensor([[5.0], [2.0], [3.0]])), y).backward()
""",
    "a mean whose divisor is counted from the words, in batches": """
class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(61, 16, padding_idx=0), nn.Linear(16, 61)
        nn.init.normal_(self.emb.weight)  # PL907
    def forward(self, x):
        return self.out(self.emb(x).sum(1) / (x != 0).sum(1, keepdim=True).clamp(min=1))
net = Bags()
words = torch.randint(1, 61, (120, 20))
words[:, 15:] = 0
opt = SGD(net.parameters(), lr=0.1)
for part in torch.randperm(120).split(40):
    update(opt, F.cross_entropy(net(words[part]), words[part, 0]))
""",
    "weighted by a number of each row that comes from the words": """
words = torch.randint(1, 61, (120, 20))
words[:, 15:] = 0
emb, out = nn.Embedding(61, 16, padding_idx=0), nn.Linear(16, 2)
nn.init.xavier_normal_(emb.weight)  # PL907
length = (words > 0).float().sum(1)
print(out(emb(words).sum(1) * length.rsqrt()[:, None]))
""",
}

RIGHT = {
    "the row is 0 again, in four forms": LONG
    + """
tables = [nn.Embedding(rows, 8, padding_idx=0) for rows in (20, 900, 20, 900)]
for table in tables:
    nn.init.normal_(table.weight)
with torch.no_grad():
    tables[0].weight[0] = 0
    tables[1].weight[0].fill_(0)
tables[2].weight.data[0].zero_()
tables[3]._fill_padding_idx_with_zero()
sum(table(x).sum(1) for table in tables).square().sum().backward()
""",
    "only the other rows are drawn": LONG
    + """
for rows in (20, 900):
    emb = nn.Embedding(rows, 8, padding_idx=0)
    nn.init.normal_(emb.weight[1:])
    emb(x).sum(1).square().sum().backward()
""",
    "vectors that were trained elsewhere, with a row for padding": LONG
    + """
for rows in (20, 900):
    emb = nn.Embedding(rows, 8, padding_idx=0)
    emb.weight.data.copy_(torch.randn(rows, 8))
    emb(x).sum(1).square().sum().backward()
    nn.Embedding.from_pretrained(torch.randn(rows, 8), padding_idx=0)(x).sum(1)
""",
    "drawn, and then loaded": LONG
    + """
source, emb = nn.Embedding(900, 8, padding_idx=0), nn.Embedding(900, 8, padding_idx=0)
nn.init.normal_(emb.weight)
emb.load_state_dict(source.state_dict())
emb(x).sum(1).square().sum().backward()
""",
    "multiplied by a mask of the words": LONG
    + """
for rows in (20, 900):
    emb, out = nn.Embedding(rows, 8, padding_idx=0), nn.Linear(8, 2)
    nn.init.normal_(emb.weight)
    kept = (x != 0).float()[..., None]
    F.cross_entropy(out((emb(x) * kept).sum(1) / kept.sum(1)), y).backward()
    print((emb(x) * (torch.arange(5) < torch.tensor([[5], [2], [3]]))[..., None]).sum(1))
""",
    "a masked mean of many words, weighted by a number of each row": """
words = torch.randint(1, 61, (120, 20))
words[:, 15:] = 0
emb, out = nn.Embedding(61, 16, padding_idx=0), nn.Linear(16, 2)
nn.init.normal_(emb.weight)
kept = words != 0
mean = (emb(words) * kept.unsqueeze(2)).sum(1) / kept.sum(1, keepdim=True)
total = torch.einsum("btd,bt->bd", emb(words), kept.float()) / kept.sum(1, keepdim=True)
F.cross_entropy(out(mean + total), torch.randint(0, 2, (120,))).backward()
""",
    "the last word of each row": """
words = torch.randint(1, 61, (120, 20))
words[:, 15:] = 0
emb, rnn, out = nn.Embedding(61, 16, padding_idx=0), nn.GRU(16, 6, batch_first=True), nn.Linear(6, 2)
nn.init.normal_(emb.weight)
length = (words != 0).sum(1)
h = rnn(emb(words))[0]
picked = h.gather(1, (length - 1)[:, None, None].expand(-1, 1, 6))[:, 0]
F.cross_entropy(out(h[torch.arange(120), length - 1] + picked), torch.randint(0, 2, (120,))).backward()
""",
    "packed, or pooled by a layer that leaves padding out": LONG
    + """
emb, rnn, out = nn.Embedding(900, 8, padding_idx=0), nn.GRU(8, 6, batch_first=True), nn.Linear(6, 2)
nn.init.normal_(emb.weight)
packed = nn.utils.rnn.pack_padded_sequence(emb(x), torch.tensor([5, 2, 3]), batch_first=True, enforce_sorted=False)
F.cross_entropy(out(rnn(packed)[1][0]), y).backward()
bag = nn.EmbeddingBag(900, 8, mode="sum", padding_idx=0)
nn.init.normal_(bag.weight)
bag(x).square().sum().backward()
""",
    "left out of an attention, of a mean and of a loss": LONG
    + """
emb, layer, out = nn.Embedding(900, 8, padding_idx=0), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 2)
nn.init.normal_(emb.weight, std=0.02)
real = x != 0
h = layer(emb(x), src_key_padding_mask=~real)
F.cross_entropy(out((h * real[..., None]).sum(1) / real.sum(1, keepdim=True)), y).backward()
""",  # noqa: E501
    "a model of language: nothing that is predicted comes after the padding": LONG
    + """
for rows in (20, 900):
    emb, rnn, out = nn.Embedding(rows, 8, padding_idx=0), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)
    nn.init.normal_(emb.weight, std=0.02)
    h, _ = rnn(emb(x[:, :-1]))
    F.cross_entropy(out(h).flatten(0, 1), x[:, 1:].flatten(), ignore_index=0).backward()
""",
    "padding that is never looked up; a table without padding": LONG
    + """
emb, other = nn.Embedding(20, 8, padding_idx=19), nn.Embedding(20, 8)
for table in (emb, other):
    nn.init.normal_(table.weight)
    table(x).sum(1).square().sum().backward()
""",
}


def test_a_row_for_padding_that_was_overwritten_is_found_and_set_to_0_again(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL907",), repaired=True)


def test_a_row_for_padding_without_effect_or_set_on_purpose_is_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


RATED = """
users, items = torch.randint(0, 30, (200,)), torch.randint(0, 6, (200,))
stars = torch.randn(200)
"""

UNTRAINED = {
    "films and users by their numbers, in a module": RATED
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.film = nn.Embedding(30, 4), nn.Embedding(6, 4, padding_idx=0)
    def forward(self, u, i):
        return (self.user(u) * self.film(i)).sum(-1)  # PL986
model = Model()
opt = Adam(model.parameters(), lr=0.01)
for part in torch.randperm(200).split(25):
    update(opt, F.mse_loss(model(users[part], items[part]), stars[part]))
""",
    "a bias for each shop, by a loader": RATED
    + """
bias = nn.Embedding(6, 1, padding_idx=0)
opt = SGD(bias.parameters(), lr=0.1)
for i, y in DataLoader(TensorDataset(items, stars), batch_size=25, shuffle=True):
    update(opt, F.mse_loss(bias(i).squeeze(1), y))  # PL986
""",
    "the last row": RATED
    + """
table, out = nn.Embedding(6, 6, padding_idx=-1), nn.Linear(6, 1)
opt = SGD([*table.parameters(), *out.parameters()], lr=0.1)
for part in torch.arange(200).split(25):
    update(opt, F.mse_loss(out(table(items[part])).squeeze(1), stars[part]))  # PL986
""",
    "one column of a table of categories": """
table = torch.stack([torch.randint(0, 4, (160,)), torch.randint(0, 4, (160,))], dim=1)
target = torch.randint(0, 2, (160,))
day, place, head = nn.Embedding(4, 3, padding_idx=0), nn.Embedding(4, 3), nn.Linear(6, 2)
opt = Adam([*day.parameters(), *place.parameters(), *head.parameters()], lr=0.01)
for part in torch.arange(160).split(20):
    rows = table[part]
    both = torch.cat([day(rows[:, 0]), place(rows[:, 1])], dim=1)  # PL986
    update(opt, F.cross_entropy(head(both), target[part]))
""",
    "pairs of a wanted and an unwanted item": """
item = nn.Embedding(5, 5, padding_idx=0)
taste = nn.Parameter(torch.randn(5))
opt = SGD([*item.parameters(), taste], lr=0.05)
for _ in range(6):
    liked, other = torch.randint(0, 5, (16,)), torch.randint(0, 5, (16,))
    gap = (item(liked) - item(other)) @ taste  # PL986
    update(opt, F.softplus(-gap).mean())
""",
}

TRAINED = {
    "sentences filled up with padding": """
words, out = nn.Embedding(9, 5, padding_idx=0), nn.Linear(5, 2)
opt = SGD([*words.parameters(), *out.parameters()], lr=0.1)
for _ in range(6):
    x = torch.randint(1, 9, (8, 6))
    x[:, 4:] = 0
    update(opt, F.cross_entropy(out(words(x).sum(1)), torch.randint(0, 2, (8,))))
""",
    "one step of sentences after another": """
words, cell = nn.Embedding(9, 5, padding_idx=0), nn.GRUCell(5, 5)
opt = SGD([*words.parameters(), *cell.parameters()], lr=0.1)
for _ in range(4):
    x, h = torch.randint(0, 9, (8, 4)), torch.zeros(8, 5)
    for t in range(4):
        h = cell(words(x[:, t]), h)
    update(opt, h.square().mean())
""",
    "a reserved number that is never or hardly looked up": RATED
    + """
table = nn.Embedding(7, 1, padding_idx=0)
opt = SGD(table.parameters(), lr=0.1)
for part in torch.arange(200).split(25):
    update(opt, F.mse_loss(table(items[part] + 1).squeeze(1), stars[part]))
rare, opt2 = nn.Embedding(4, 1, padding_idx=3), None
opt2 = SGD(rare.parameters(), lr=0.1)
few = torch.randint(0, 3, (200,))
for part in torch.arange(200).split(25):
    update(opt2, F.mse_loss(rare(few[part]).squeeze(1), stars[part]))
""",
    "examples of which nothing is known, marked by the program": RATED
    + """
known = torch.where(torch.rand(200) < 0.3, torch.zeros_like(items), items)
table = nn.Embedding(6, 1, padding_idx=0)
opt = SGD(table.parameters(), lr=0.1)
for part in torch.arange(200).split(25):
    update(opt, F.mse_loss(table(known[part]).squeeze(1), stars[part]))
""",
    "numbers of which the program makes a mask": RATED
    + """
table, other = nn.Embedding(6, 1, padding_idx=0), nn.Parameter(torch.zeros(1))
opt = SGD([*table.parameters(), other], lr=0.1)
for part in torch.arange(200).split(25):
    i = items[part]
    guess = table(i).squeeze(1) + other * (i == 0)
    update(opt, F.mse_loss(guess, stars[part]))
""",
    "all words of a text in a row": """
words, out = nn.Embedding(6, 5, padding_idx=0), nn.Linear(5, 6)
opt = SGD([*words.parameters(), *out.parameters()], lr=0.1)
for _ in range(6):
    x = torch.randint(0, 6, (8, 5))
    update(opt, F.cross_entropy(out(words(x.flatten())), x.flatten(), ignore_index=0))
""",
}


def test_a_row_for_padding_that_belongs_to_examples_is_found_and_trained(shop: Workshop) -> None:
    assert_found(shop, together(UNTRAINED), only=("PL986",))
    for text in UNTRAINED.values():
        assert_found(shop, together({"alone": text}), only=("PL986",), repaired=True)


def test_padding_that_is_padding_draws_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(TRAINED))
