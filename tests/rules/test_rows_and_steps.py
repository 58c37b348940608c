"""Sequences cut into tables, and layers that attend along the examples: other forms of the
mistakes, and right programs.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

TEXT = """
words = torch.randint(0, 12, (97,))
table, out = nn.Embedding(12, 6), nn.Linear(6, 12)
opt = SGD([*table.parameters(), *out.parameters()], lr=0.1)
"""
CLASSES = """
pictures, classes = torch.randn(12, 5, 8), torch.randint(0, 3, (12,))
head = nn.Linear(8, 3)
"""
WRONG = {
    "a function that cuts, with reshape": TEXT
    + """
def batches(ids, columns):
    rows = len(ids) // columns
    return ids[:rows * columns].reshape(rows, columns)  # PL447
data = batches(words, 6)
for i in range(0, 12, 4):
    x, y = data[i:i + 4], data[i + 1:i + 5]
    update(opt, F.cross_entropy(out(table(x)).flatten(0, 1), y.flatten()))
""",
    "a recurrent net, and targets by view": TEXT
    + """
rnn = nn.GRU(6, 6)
opt = SGD([*rnn.parameters(), *table.parameters(), *out.parameters()], lr=0.1)
data = words[:96].view(-1, 4)  # PL447
state = None
for i in (0, 8):
    y, state = rnn(table(data[i:i + 8]), state)
    state = state.detach()
    update(opt, F.cross_entropy(out(y).view(-1, 12), data[i + 1:i + 9].view(-1)))
""",
    "a class token of an encoder": CLASSES
    + """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)
    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        return self.head(self.encoder(x)[:, 0])  # PL410
reader = Reader()
opt = SGD(reader.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.cross_entropy(reader(pictures), classes))
""",  # noqa: E501
}
RIGHT = {
    "columns that hold stretches of the text": TEXT
    + """
data = words[:96].view(6, -1).t().contiguous()
for i in range(0, 12, 4):
    update(opt, F.cross_entropy(out(table(data[i:i + 4])).flatten(0, 1), data[i + 1:i + 5].flatten()))
""",
    "rows that hold stretches of the text": TEXT
    + """
data = words[:96].view(6, -1)
for i in range(0, 12, 4):
    x, y = data[:, i:i + 4], data[:, i + 1:i + 5]
    update(opt, F.cross_entropy(out(table(x)).flatten(0, 1), y.reshape(-1)))
""",
    "windows of one text, one after the other": TEXT
    + """
windows = words[:96].view(-1, 8)
for row in windows:
    update(opt, F.cross_entropy(out(table(row[:-1])), row[1:]))
for x, y in zip(windows[:4].split(2), windows[4:8].split(2)):
    update(opt, F.cross_entropy(out(table(x[:, :-1])).flatten(0, 1), x[:, 1:].flatten()))
""",
    "a table that was flat for a while": TEXT
    + """
measured = torch.randint(0, 12, (16, 6))
flat = measured.reshape(-1)
data = flat.view(16, 6)
for i in range(0, 12, 4):
    update(opt, F.cross_entropy(out(table(data[i:i + 4])).flatten(0, 1), data[i + 1:i + 5].flatten()))
""",
    "a class token where the examples come first": CLASSES
    + """
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
opt = SGD([*layer.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    update(opt, F.cross_entropy(head(layer(pictures)[:, 0]), classes))
""",
    "a class token where the steps come first": CLASSES
    + """
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
opt = SGD([*layer.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    update(opt, F.cross_entropy(head(layer(pictures.transpose(0, 1))[0]), classes))
""",
    "all steps of one example": CLASSES
    + """
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
opt = SGD([*layer.parameters(), *head.parameters()], lr=0.1)
labels = torch.randint(0, 3, (12, 5))
for _ in range(2):
    update(opt, F.cross_entropy(head(layer(pictures)[:, 0]), labels[:, 0]))
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
