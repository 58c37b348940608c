"""Lists that are joined in the order of their lengths: labels that stay behind are found,
those that come along are not.
"""

from __future__ import annotations

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import plain
from pitfall_lab.rules.kit.source import apply
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

LISTS = """
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence
def drawn(kinds=2):
    rows = [torch.randn(n, 3) for n in (2, 5, 3, 6, 4)]
    return rows, torch.tensor([2, 5, 3, 6, 4]), torch.randint(0, kinds, (5,))
class Reader(nn.Module):
    def __init__(self, kind=nn.GRU):
        super().__init__()
        self.rnn, self.head = kind(3, 6, batch_first=True), nn.Linear(6, 2)
    def forward(self, packed):
        last = self.rnn(packed)[1]
        return self.head((last[0] if isinstance(last, tuple) else last)[-1])
net = Reader()
opt = Adam(net.parameters())
"""

PADDED = """
def padded():
    lengths = torch.tensor([2, 5, 3, 6, 4])
    return torch.randn(5, 6, 3) * (torch.arange(6) < lengths[:, None])[..., None], lengths
"""
WRONG = {
    "in a function that returns the packed rows": """
def collate(rows):
    lengths = torch.tensor([len(each) for each in rows])
    lengths, order = lengths.sort(descending=True)
    padded = pad_sequence([rows[i] for i in order], batch_first=True)  # PL414
    return pack_padded_sequence(padded, lengths, batch_first=True)
for _ in range(2):
    rows, _, y = drawn()
    update(opt, F.cross_entropy(net(collate(rows)), y))
""",
    "by argsort, as plain numbers, for an LSTM": """
net = Reader(nn.LSTM)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    rows, lengths, y = drawn()
    order = torch.argsort(lengths, descending=True)
    padded = pad_sequence([rows[i] for i in order.tolist()], batch_first=True)  # PL414
    update(opt, F.cross_entropy(net(pack_padded_sequence(padded, lengths[order], batch_first=True)), y))
""",
    "with a loop, in a class": """
class Packed:
    def __init__(self, rows):
        ordered = []
        self.lengths, order = torch.tensor([len(row) for row in rows]).sort(descending=True)
        for place in order:
            ordered.append(rows[place])
        self.padded = pad_sequence(ordered, batch_first=True)  # PL414
    def __call__(self):
        return pack_padded_sequence(self.padded, self.lengths, batch_first=True)
for _ in range(2):
    rows, _, y = drawn()
    update(opt, F.cross_entropy(net(Packed(rows)()), y))
""",
    "the mean over time, for numbers": """
flat = nn.Linear(3, 1)
learns = SGD(flat.parameters(), lr=0.1)
for _ in range(2):
    rows, lengths, _ = drawn()
    wanted = torch.tensor([row.sum().item() for row in rows])
    order = lengths.argsort()
    padded = pad_sequence([rows[i] for i in order], batch_first=True)  # PL414
    guess = flat(padded).sum(1).squeeze(1)
    update(learns, F.mse_loss(guess, wanted))
""",
    "stacked summaries": """
flat = nn.Linear(3, 2)
learns = SGD(flat.parameters(), lr=0.1)
for _ in range(2):
    rows, lengths, y = drawn()
    means = [row.mean(0) for row in rows]
    _, order = torch.sort(lengths, descending=True)
    update(learns, F.cross_entropy(flat(torch.stack([means[i] for i in order])), y))  # PL414
""",
    "lengths under another name": """
for _ in range(2):
    rows, lengths, y = drawn()
    falling, order = torch.sort(lengths, 0, True)
    padded = pad_sequence([rows[int(i)] for i in order], True)  # PL414
    logits = net(pack_padded_sequence(padded, falling, batch_first=True))
    loss = F.nll_loss(logits.log_softmax(1), y)
    update(opt, loss)
""",
    "all steps, padded again": """
body, head = nn.GRU(3, 6, batch_first=True), nn.Linear(6, 2)
learns = Adam([*body.parameters(), *head.parameters()])
for _ in range(2):
    rows, lengths, y = drawn()
    lengths, order = lengths.sort(descending=True)
    packed = pack_padded_sequence(pad_sequence([rows[i] for i in order], batch_first=True), lengths, batch_first=True)  # PL414
    out, _ = pad_packed_sequence(body(packed)[0], batch_first=True)
    update(learns, F.cross_entropy(head(out.mean(1)), y))
""",  # noqa: E501
    "time in the first axis, labels as floats": """
body, head = nn.RNN(3, 6), nn.Linear(6, 1)
learns = Adam([*body.parameters(), *head.parameters()])
for _ in range(2):
    rows, lengths, y = drawn()
    lengths, order = lengths.sort(descending=True)
    packed = pack_padded_sequence(pad_sequence([rows[i] for i in order]), lengths)  # PL414
    update(learns, F.binary_cross_entropy_with_logits(head(body(packed)[1][-1]).squeeze(1), y.float()))
""",
    "targets computed from padded rows, before a method sorts these": PADDED
    + """
class Sorting(Reader):
    def forward(self, x, lengths):
        lengths, order = lengths.sort(descending=True)
        return super().forward(pack_padded_sequence(x[order], lengths, batch_first=True))  # PL414
net = Sorting()
opt = Adam(net.parameters())
for _ in range(2):
    x, lengths = padded()
    update(opt, F.cross_entropy(net(x, lengths), (x[..., 0].sum(1) > 0).long()))
""",
    "sums of the rows, sorted by argsort and index_select": PADDED
    + """
for _ in range(2):
    x, lengths = padded()
    y = x[:, 0].tanh() + x.sum(1)
    order = lengths.argsort(descending=True)
    given = x.index_select(0, order)  # PL414
    update(opt, F.mse_loss(net(pack_padded_sequence(given, lengths[order], batch_first=True)), y[:, :2]))
""",
    "lengths counted from the rows, and no packing": PADDED
    + """
flat = nn.Linear(3, 1)
learns = SGD(flat.parameters(), lr=0.1)
for _ in range(2):
    x, _ = padded()
    y = x.abs().amax((1, 2)).log()
    lengths = (x != 0).any(2).sum(1)
    _, order = torch.sort(lengths, 0, True)
    out = flat(x[order]).sum(1)  # PL414
    update(learns, F.l1_loss(out.squeeze(1), y))
""",
}

PACK = """
def packed(rows, lengths):
    lengths, order = lengths.sort(descending=True)
    return pack_padded_sequence(pad_sequence([rows[i] for i in order], batch_first=True), lengths, batch_first=True), order
"""  # noqa: E501
RIGHT = {
    "inside a batch of drawn examples, with the classes, or put back": """
everything, _, classes = drawn()
for _ in range(2):
    chosen = torch.randperm(len(classes))[:4]
    some = [everything[i] for i in chosen.tolist()]
    lengths, order = torch.tensor([len(row) for row in some]).sort(descending=True)
    packed = pack_padded_sequence(pad_sequence(some, batch_first=True)[order], lengths, batch_first=True)
    update(opt, F.cross_entropy(net(packed), classes[chosen][order]))
    update(opt, F.cross_entropy(net(packed)[order.argsort()], classes[chosen]))
""",
    "labels by the same order": PACK
    + """
for _ in range(2):
    rows, lengths, y = drawn()
    given, order = packed(rows, lengths)
    update(opt, F.cross_entropy(net(given), y[order]))
""",
    "results put back": PACK
    + """
for _ in range(2):
    rows, lengths, y = drawn()
    given, order = packed(rows, lengths)
    update(opt, F.cross_entropy(net(given)[order.argsort()], y))
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order))
    update(opt, F.cross_entropy(net(given).index_select(0, inverse), y))
""",
    "results written back": PACK
    + """
for _ in range(2):
    rows, lengths, y = drawn()
    given, order = packed(rows, lengths)
    back = torch.zeros(5, 2).index_copy(0, order, net(given))
    update(opt, F.cross_entropy(back, y))
    update(opt, F.cross_entropy(torch.zeros(5, 2).scatter(0, order.unsqueeze(1).expand(5, 2), net(given)), y))
""",
    "results put back one by one": PACK
    + """
for _ in range(2):
    rows, lengths, y = drawn()
    given, order = packed(rows, lengths)
    logits, place = net(given), {int(j): i for i, j in enumerate(order)}
    update(opt, F.cross_entropy(torch.stack([logits[place[j]] for j in range(5)]), y))
""",
    "labels taken one by one": PACK
    + """
for _ in range(2):
    rows, lengths, y = drawn()
    given, order = packed(rows, lengths)
    update(opt, F.cross_entropy(net(given), torch.stack([y[i] for i in order])))
    numbers = y.tolist()
    update(opt, F.cross_entropy(net(given), torch.tensor([numbers[i] for i in order.tolist()])))
""",
    "pairs that are sorted together": """
for _ in range(2):
    rows, lengths, y = drawn()
    pairs = sorted(zip(rows, y.tolist()), key=lambda pair: -len(pair[0]))
    padded = pad_sequence([row for row, _ in pairs], batch_first=True)
    lengths = torch.tensor([len(row) for row, _ in pairs])
    update(opt, F.cross_entropy(net(pack_padded_sequence(padded, lengths, batch_first=True)), torch.tensor([kind for _, kind in pairs])))
""",  # noqa: E501
    "left to the packing": """
for _ in range(2):
    rows, lengths, y = drawn()
    given = pack_padded_sequence(pad_sequence(rows, batch_first=True), lengths, batch_first=True, enforce_sorted=False)
    update(opt, F.cross_entropy(net(given), y))
    update(opt, F.cross_entropy(net(pack_sequence(rows, enforce_sorted=False)), y))
""",
    "rows that come sorted": PACK
    + """
for _ in range(2):
    rows = [torch.randn(n, 3) for n in (6, 5, 4, 3, 2)]
    given, _ = packed(rows, torch.tensor([6, 5, 4, 3, 2]))
    update(opt, F.cross_entropy(net(given), torch.tensor([0, 1, 1, 0, 1])))
""",
    "the sorted rows themselves are the target": """
same = nn.Linear(3, 3)
learns = SGD(same.parameters(), lr=0.1)
for _ in range(2):
    rows, lengths, y = drawn()
    padded = pad_sequence([rows[i] for i in lengths.argsort()], batch_first=True)
    update(learns, F.mse_loss(same(padded), padded))
""",
    "targets computed from the sorted rows, or taken by their order, or results put back": PADDED
    + """
for _ in range(2):
    x, lengths = padded()
    lengths, order = lengths.sort(descending=True)
    logits = net(pack_padded_sequence(x[order], lengths, batch_first=True))
    update(opt, F.cross_entropy(logits, (x[order][..., 0].sum(1) > 0).long()))
    x, lengths = padded()
    y = (x[..., 0].sum(1) > 0).long()
    lengths, order = lengths.sort(descending=True)
    update(opt, F.cross_entropy(net(pack_padded_sequence(x[order], lengths, batch_first=True)), y[order]))
    logits = net(pack_padded_sequence(x[order], lengths, batch_first=True))
    update(opt, F.cross_entropy(logits[order.argsort()], y))
""",
    "one computed target for each, whatever its place": PADDED
    + """
for _ in range(2):
    x, lengths = padded()
    level = x.mean().expand(5).sigmoid()
    lengths, order = lengths.sort(descending=True)
    logits = net(pack_padded_sequence(x[order], lengths, batch_first=True))
    update(opt, F.binary_cross_entropy_with_logits(logits[:, 0], level))
""",
    "one label for all": PACK
    + """
for _ in range(2):
    rows, lengths, y = drawn()
    real = torch.ones(5, dtype=torch.long)
    given, _ = packed(rows, lengths)
    update(opt, F.cross_entropy(net(given), real))
""",
}


def test_labels_that_stay_while_a_list_is_sorted_are_found(shop: Workshop) -> None:
    assert_found(shop, together({name: LISTS + text for name, text in WRONG.items()}))


def test_labels_that_come_along_and_results_that_are_put_back_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together({name: LISTS + text for name, text in RIGHT.items()}))


def test_the_sort_is_left_to_the_packing(shop: Workshop) -> None:
    trace = shop.trace(
        Subject(plain(together({"one": LISTS + WRONG["by argsort, as plain numbers, for an LSTM"]})), "program.py")
    )
    fixed = [
        apply(trace.sources[0].text, fix.edits)
        for finding in find(trace)
        for fix in finding.fixes
        if finding.rule == "PL414"
    ]
    assert len(fixed) == 1
    assert "pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)" in fixed[0]
    assert "padded = pad_sequence(rows, batch_first=True)" in fixed[0]
    assert "order" not in fixed[0]
