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
