"""Two views of each example in a contrastive loss: joined in one order and paired in another is found;
one order for both is right.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

PAIRS = """
x, net = torch.randn(5, 3), nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
def seen():
    return x + 0.1 * torch.randn_like(x)
a, b = net(seen()), net(seen())
n, own = 5, torch.eye(10, dtype=torch.bool)
away, beside = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]), torch.arange(2 * n) ^ 1
def loss_of(z, partners):
    z = F.normalize(z, dim=1)
    scores = (z @ z.t() / 0.5).masked_fill(own, float("-inf"))
    F.cross_entropy(scores, partners).backward()
"""

WRONG = {
    "stacked beside each other, partners half away, in training": """
def nt_xent(z1, z2, temperature=0.2):
    n, dim = z1.shape
    z = F.normalize(torch.stack([z1, z2], dim=1).view(2 * n, dim), dim=1)  # PL456
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    return F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(0, n)]))
data, net = torch.randn(40, 3), nn.Linear(3, 4)
opt = Adam(net.parameters())
for _ in range(2):
    batch = data[torch.randint(0, 40, (12,))]
    update(opt, nt_xent(net(batch + torch.randn_like(batch)), net(batch + torch.randn_like(batch))))
""",
    "joined behind each other, the partner beside": PAIRS
    + """
loss_of(torch.cat([a, b], dim=0), beside)  # PL456
""",
    "the examples repeated one by one before the network": PAIRS
    + """
rows = x.repeat_interleave(2, dim=0)  # PL456
loss_of(net(rows + 0.1 * torch.randn_like(rows)), away)
""",
    "the batch repeated as a whole before the network": PAIRS
    + """
rows = x.repeat(2, 1)  # PL456
loss_of(net(rows + 0.1 * torch.randn_like(rows)), beside)
""",
    "views that a loader puts beside each other, flattened": """
class Twice(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return torch.stack([torch.randn(3) + i, torch.randn(3) + i])
net = nn.Linear(3, 4)
for pairs in DataLoader(Twice(), batch_size=6):
    z = F.normalize(net(pairs.flatten(0, 1)), dim=-1)  # PL456
    sim = torch.mm(z, z.T).masked_fill(torch.eye(12) > 0, -1e9)
    F.cross_entropy(sim, (torch.arange(12) + 6) % 12).backward()
""",
    "positives on a diagonal that is half away": PAIRS
    + """
z = F.normalize(torch.stack((a, b), 1).reshape(-1, 4), dim=-1)  # PL456
sim = torch.exp(z @ z.T / 0.5)
positive = torch.cat([torch.diag(sim, n), torch.diag(sim, -n)])
(-torch.log(positive / (sim.sum(1) - sim.diag()))).mean().backward()
""",
    "a cosine of all with all": PAIRS
    + """
z = torch.stack([a, b], dim=1).flatten(0, 1)  # PL456
sim = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=-1) / 0.1
F.cross_entropy(sim.masked_fill(own, -9e15), away).backward()
""",
    "halves, cut apart and joined again, with columns of noise": PAIRS
    + """
def loss_of_halves(z):
    z1, z2 = F.normalize(z, dim=1).chunk(2)
    z = torch.cat([z1, z2])
    F.cross_entropy((z @ z.T).masked_fill(own, float("-inf")), torch.arange(10).roll(5)).backward()
rows = x[:, :2].repeat_interleave(2, dim=0)  # PL456
loss_of_halves(net(torch.cat([rows, torch.randn(10, 1)], dim=1)))
""",
    "halves compared row by row": PAIRS
    + """
z = net(torch.stack([seen(), seen()], dim=1).flatten(0, 1))  # PL456
(1 - F.cosine_similarity(z[:n], z[n:])).mean().backward()
""",
    "halves in a table with the answers on the diagonal": PAIRS
    + """
z = F.normalize(net(x.repeat_interleave(2, dim=0) + 0.1 * torch.randn(10, 3)), dim=1)  # PL456
left, right = z.split(n)
F.cross_entropy(left @ right.t() / 0.1, torch.arange(n)).backward()
""",
    "even and odd rows of views behind each other": PAIRS
    + """
z = net(x.repeat(2, 1) + 0.1 * torch.randn(10, 3))  # PL456
(z[::2] * z[1::2]).sum(-1).mean().backward()
""",
    "a table of pairs made of views behind each other": PAIRS
    + """
pairs = net(torch.cat([seen(), seen()])).view(n, 2, 4)  # PL456
F.mse_loss(pairs[:, 0], pairs[:, 1]).backward()
""",
    "equal labels weigh the logarithms": PAIRS
    + """
z = F.normalize(torch.cat([a, b]), dim=1)  # PL456
labels = torch.arange(n).repeat_interleave(2)
same = (labels[:, None] == labels[None, :]).float() * (1 - own.float())
logs = (z @ z.T / 0.5).masked_fill(own, -1e9).log_softmax(1)
(-(same * logs).sum(1) / same.sum(1)).mean().backward()
""",
}

RIGHT = {
    "labels of few classes, of many rows": """
net = nn.Linear(5, 6)
x, kinds = torch.randn(96, 2, 5), torch.tensor([1, 1, 0, 2, 2, 2] * 16)
z = F.normalize(net(x.flatten(0, 1)).view(96, 2, -1), dim=-1)
rows, kind = z.transpose(0, 1).reshape(192, 6), kinds.repeat(2)
alone = torch.eye(192, dtype=torch.bool)
scores = (rows @ rows.T / 0.1).masked_fill(alone, float("-inf"))
same = (kind[:, None] == kind[None, :]) & ~alone
chance = (scores - scores.logsumexp(1, keepdim=True)).masked_fill(~same, 0.0)
(-(chance.sum(1) / same.sum(1)).mean()).backward()
""",
    "halves and even rows, each as they were joined": PAIRS
    + """
z = net(x.repeat(2, 1) + 0.1 * torch.randn(10, 3))
z1, z2 = F.normalize(z, dim=1).chunk(2)
loss_of(torch.cat([z1, z2]), away)
z1, z2 = net(x.repeat(2, 1) + 0.1 * torch.randn(10, 3)).chunk(2)
F.cross_entropy(z1 @ z2.T, torch.arange(n)).backward()
y = net(x.repeat_interleave(2, dim=0) + 0.1 * torch.randn(10, 3))
(F.cosine_similarity(y[::2], y[1::2]).mean() + F.mse_loss(*y.view(n, 2, 4).unbind(1))).backward()
y = net(x.repeat_interleave(2, dim=0) + 0.1 * torch.randn(10, 3))
loss_of(torch.cat([y[::2], y[1::2]]), away)
y = net(torch.cat([seen(), seen()]))
F.mse_loss(y[:n], y[n:]).backward()
""",
    "halves that are mixed, and halves of other rows": PAIRS
    + """
y = net(x.repeat_interleave(2, dim=0) + 0.1 * torch.randn(10, 3))
(0.3 * y[:n] + 0.7 * y[n:]).mean().backward()
y = net(torch.randn(10, 3))
F.mse_loss(y[:n], y[n:]).backward()
y = net(torch.cat([torch.randn(5, 3), torch.randn(5, 3)]))
F.mse_loss(y[::2], y[1::2]).backward()
""",
    "both orders, each with its partners": PAIRS
    + """
loss_of(torch.cat([a, b]), away)
loss_of(torch.stack([net(seen()), net(seen())], dim=1).view(10, 4), beside)
loss_of(torch.stack([net(seen()), net(seen())], dim=0).view(10, 4), away)
loss_of(torch.stack([net(seen()), net(seen())], dim=1).transpose(0, 1).reshape(10, 4), away)
rows = x.repeat_interleave(2, dim=0)
loss_of(net(rows + 0.1 * torch.randn_like(rows)), beside)
rows = x.repeat(2, 1)
loss_of(net(rows + 0.1 * torch.randn_like(rows)), away)
""",
    "halves of a batch whose views are beside each other": """
net, pairs = nn.Linear(3, 4), torch.randn(6, 2, 3)
rows = pairs.flatten(0, 1)
z = F.normalize(torch.cat([net(rows[:6]), net(rows[6:])]), dim=1)
F.cross_entropy((z @ z.T).masked_fill(torch.eye(12).bool(), -1e9), torch.arange(12) ^ 1).backward()
""",
    "one table of scores for two batches": PAIRS
    + """
scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
((F.cross_entropy(scores, torch.arange(5)) + F.cross_entropy(scores.T, torch.arange(5))) / 2).backward()
""",
    "equal labels in the order of the rows": PAIRS
    + """
for z, labels in ((torch.cat([a, b]), torch.arange(n).repeat(2)),
                  (torch.stack([net(seen()), net(seen())], 1).view(10, 4), torch.arange(n).repeat_interleave(2))):
    z = F.normalize(z, dim=1)
    same = (labels[:, None] == labels[None, :]).float() * (1 - own.float())
    logs = (z @ z.T / 0.5).masked_fill(own, -1e9).log_softmax(1)
    (-(same * logs).sum(1) / same.sum(1)).mean().backward()
""",
    "diagonals that fit": PAIRS
    + """
z = F.normalize(torch.cat([a, b]), dim=-1)
sim = torch.exp(z @ z.T / 0.5)
positive = torch.cat([torch.diag(sim, n), torch.diag(sim, -n)])
(-torch.log(positive / (sim.sum(1) - sim.diag()))).mean().backward()
""",
    "classes of a square table of logits": """
net = nn.Linear(3, 10)
F.cross_entropy(net(torch.randn(10, 3)), torch.arange(10) ^ 1).backward()
net = nn.Linear(3, 10)
F.cross_entropy(net(torch.stack([torch.randn(5, 3), torch.randn(5, 3)], 1).view(10, 3)), (torch.arange(10) + 5) % 10).backward()
""",  # noqa: E501
    "labels of classes, with several rows of each": PAIRS
    + """
z, y = F.normalize(torch.cat([a, b]), dim=1), torch.tensor([0, 0, 1, 1, 2]).repeat(2)
same = (y[:, None] == y[None, :]).float() * (1 - own.float())
logs = (z @ z.T / 0.5).masked_fill(own, -1e9).log_softmax(1)
(-(same * logs).sum(1) / same.sum(1)).mean().backward()
""",
    "two different batches behind each other, each with pairs": """
net = nn.Linear(3, 4)
z = F.normalize(torch.cat([net(torch.randn(3, 2, 3).flatten(0, 1)), net(torch.randn(3, 2, 3).flatten(0, 1))]), dim=1)
F.cross_entropy((z @ z.T).masked_fill(torch.eye(12).bool(), -1e9), torch.arange(12) ^ 1).backward()
""",
}


def test_views_that_are_paired_in_another_order_are_found_and_joined_anew(shop: Workshop) -> None:
    for title, text in WRONG.items():  # each alone: a fix would be tried on all of them together
        assert_found(shop, together({title: text}), repaired=True)


def test_views_in_the_order_of_their_pairs_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
