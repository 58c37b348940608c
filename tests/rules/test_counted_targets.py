"""Losses divided by the number of all targets though some are left out, and weights of the positive class that are
upside down: in other forms, and right programs that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

WORDS = """
net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
words = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 5, 0, 0, 0], [3, 3, 2, 1, 0, 0]])
inputs, tags = words[:, :-1], words[:, 1:].clone()
"""
RARE = """
x, y = torch.randn(64, 3), (torch.arange(64) % 8 == 0).float()
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
WRONG = {
    "a sum over the number of elements": WORDS + """
loss = F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0, reduction="sum")
update(opt, loss / tags.numel())  # PL929
""",
    "batch times length, by a module": WORDS + """
criterion = nn.CrossEntropyLoss(ignore_index=0, reduction="sum")
def cost(scores, tags):
    n, length = tags.shape
    return criterion(scores.reshape(n * length, -1), tags.reshape(-1)).div(n * length)  # PL929
update(opt, cost(net(inputs), tags))
""",
    "a mean of the losses of all targets": WORDS + """
tags[inputs == 0] = -100
tags[tags == 0] = -100
losses = F.cross_entropy(net(inputs).transpose(1, 2), tags, reduction="none")
update(opt, losses.mean())  # PL929
""",
    "negative log-likelihoods, by torch.mean": WORDS + """
class Model(nn.Module):
    def forward(self, x, t):
        each = F.nll_loss(net(x).log_softmax(-1).flatten(0, 1), t.flatten(), reduction="none", ignore_index=0)
        return torch.mean(each.view_as(t))  # PL929
update(opt, Model()(inputs, tags))
""",
    "a perplexity": WORDS + """
with torch.no_grad():
    total = F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0, reduction="none").sum()
    total /= len(tags.flatten())  # PL929
print(total.exp())
""",
    "by a tensor": WORDS + """
count = torch.tensor(float(tags.shape[0] * tags.shape[1]))
loss = F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0, reduction="sum")
update(opt, torch.div(loss, count))  # PL929
""",
    "by the reciprocal": WORDS + """
loss = F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0, reduction="sum")
update(opt, loss * (1 / tags.nelement()))  # PL929
""",
    "segments of pictures": """
net = nn.Conv2d(1, 3, 3, padding=1)
mask = torch.randint(0, 3, (2, 5, 5))
mask[:, 0] = 255
lost = F.cross_entropy(net(torch.randn(2, 1, 5, 5)), mask, ignore_index=255, reduction="none")
lost.mean().backward()  # PL929
""",
    "positives over negatives": RARE + """
ratio = y.sum() / (y == 0).sum()
update(opt, F.binary_cross_entropy_with_logits(net(x).squeeze(1), y, pos_weight=ratio))  # PL761
""",
    "by Python's numbers": RARE + """
ones = int(y.sum())
weight = torch.tensor([ones / (len(y) - ones)])
criterion = nn.BCEWithLogitsLoss(pos_weight=weight)  # PL761
update(opt, criterion(net(x), y[:, None]))
""",
    "the share of the positives": RARE + """
criterion = nn.BCEWithLogitsLoss(pos_weight=y.mean())  # PL761
update(opt, criterion(net(x).squeeze(1), y))
""",
    "counted by bincount, in batches": RARE + """
def weight_of(labels):
    none, one = torch.bincount(labels.long())
    return one / none
class Task:
    def __init__(self):
        self.weight = weight_of(y)
    def loss(self, xb, yb):
        return F.binary_cross_entropy_with_logits(net(xb).squeeze(1), yb, pos_weight=self.weight)  # PL761
task = Task()
for xb, yb in DataLoader(TensorDataset(x, y), batch_size=16):
    update(opt, task.loss(xb, yb))
""",
    "several classes": """
x, y = torch.randn(60, 3), (torch.rand(60, 3) < torch.tensor([0.1, 0.2, 0.4])).float()
net = nn.Linear(3, 3)
some = y.sum(0)
criterion = nn.BCEWithLogitsLoss(pos_weight=some / (len(y) - some))  # PL761
criterion(net(x), y).backward()
""",
    "the positives are more": """
x, y = torch.randn(50, 3), (torch.arange(50) % 5 != 0).float()
net = nn.Linear(3, 1)
positive = torch.count_nonzero(y)
lost = F.binary_cross_entropy_with_logits(net(x).squeeze(1), y, pos_weight=positive / (50 - positive))  # PL761
lost.backward()
""",
}  # fmt: skip
RIGHT = {
    "a sum over the number of targets that count": WORDS + """
loss = F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0, reduction="sum")
update(opt, loss / (tags != 0).sum())
""",
    "the mean of the loss itself": WORDS + """
update(opt, F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0))
""",
    "for each text": WORDS + """
loss = F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0, reduction="sum")
update(opt, loss / len(tags))
""",
    "none is left out": """
net = nn.Linear(4, 3)
tags = torch.randint(0, 3, (12,))
lost = F.cross_entropy(net(torch.randn(12, 4)), tags, reduction="none")
lost.mean().backward()
""",
    "a mean that is scaled back": WORDS + """
lost = F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0, reduction="none")
update(opt, lost.mean() * tags.numel() / (tags != 0).sum())
""",
    "a part of the losses": WORDS + """
lost = F.cross_entropy(net(inputs).flatten(0, 1), tags.flatten(), ignore_index=0, reduction="none")
update(opt, lost[tags.flatten() != 0].mean())
""",
    "the sum of several batches, at the end": WORDS + """
total, count = 0.0, 0
for xb, tb in ((inputs, tags), (inputs[:2], tags[:2])):
    with torch.no_grad():
        total = total + F.cross_entropy(net(xb).flatten(0, 1), tb.flatten(), ignore_index=0, reduction="sum")
    count += (tb != 0).sum()
print((total / count).exp())
""",
    "negatives over positives": RARE + """
ratio = (y == 0).sum() / y.sum()
criterion = nn.BCEWithLogitsLoss(pos_weight=ratio)
for xb, yb in DataLoader(TensorDataset(x, y), batch_size=8):
    update(opt, criterion(net(xb).squeeze(1), yb))
    print(yb.sum())
""",
    "less than the whole ratio": RARE + """
ratio = ((y == 0).sum() / y.sum()).sqrt()
update(opt, F.binary_cross_entropy_with_logits(net(x).squeeze(1), y, pos_weight=ratio))
""",
    "a number": RARE + """
update(opt, F.binary_cross_entropy_with_logits(net(x).squeeze(1), y, pos_weight=torch.tensor(0.5)))
""",
    "classes alike": """
x, y = torch.randn(40, 3), (torch.arange(40) % 2 == 0).float()
net = nn.Linear(3, 1)
F.binary_cross_entropy_with_logits(net(x).squeeze(1), y, pos_weight=y.sum() / (y == 0).sum()).backward()
""",
    "the positives are more, and weighted less": """
x, y = torch.randn(50, 3), (torch.arange(50) % 5 != 0).float()
net = nn.Linear(3, 1)
F.binary_cross_entropy_with_logits(net(x).squeeze(1), y, pos_weight=(y == 0).sum() / y.sum()).backward()
""",
    "a batch that is upside down by chance": RARE + """
z = (torch.arange(64) % 4 == 0).float()
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
for i in (0, 4, 8):
    update(opt, criterion(net(x[i : i + 4]).squeeze(1), 1 - z[i : i + 4]))
""",
    "several classes, the right way up": """
x, y = torch.randn(60, 3), (torch.rand(60, 3) < torch.tensor([0.1, 0.2, 0.4])).float()
net = nn.Linear(3, 3)
some = y.sum(0)
nn.BCEWithLogitsLoss(pos_weight=(len(y) - some) / some)(net(x), y).backward()
""",
}  # fmt: skip


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
