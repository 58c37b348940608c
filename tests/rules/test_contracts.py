"""Training that goes the wrong way without an error: in other forms than on the rules' pages, and
right programs that resemble it.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import DATA, together

WRONG = {
    "forecasts that a function returns are kept with their graphs": DATA
    + """
def forecast(model, batches):
    model.eval()
    return torch.cat([model(batch) for batch in batches])
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
kept = []
for _ in range(5):
    update(opt, F.mse_loss(net(x), y))
    guess = forecast(net, x.split(4))
    kept.append(guess)  # PL511
print(len(kept))
""",
    "large pictures of bytes for a decoder that ends in a sigmoid": """
pictures = torch.randint(0, 256, (40, 1, 20, 20)).float()
pictures[..., :12] = 0
code, back = nn.Linear(400, 8), nn.Sequential(nn.Linear(8, 400), nn.Sigmoid())
opt = Adam([*code.parameters(), *back.parameters()])
measure = nn.MSELoss()
for batch in pictures.flatten(1).split(20):
    update(opt, measure(back(code(batch / 255)), batch))  # PL950
""",
    "labels of minus one and one for a loss of probabilities": """
x = torch.randn(12, 3)
signs = torch.sign(x[:, :1])
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, nn.BCEWithLogitsLoss()(net(x), signs))  # PL950
""",
    "cosines of layers along the batch, and along the tokens": """
embed = nn.Linear(4, 6)
opt = SGD(embed.parameters(), lr=0.1)
one, other = torch.randn(5, 4), torch.randn(5, 7, 4)
alike = nn.CosineSimilarity()
for _ in range(2):
    update(opt, 1 - F.cosine_similarity(embed(one), torch.relu(embed(one + 1)), dim=0).mean())  # PL411
    update(opt, 1 - alike(embed(other), embed(other).relu()).mean())  # PL411
""",
    "a divergence between distributions is subtracted in a function": """
x = torch.randn(8, 3)
encode, decode = nn.Linear(3, 4), nn.Linear(2, 3)
opt = Adam([*encode.parameters(), *decode.parameters()])
def bound(x, beta=0.5):
    mean, log_scale = encode(x).chunk(2, 1)
    latent = Normal(mean, log_scale.exp())
    far = kl_divergence(latent, Normal(torch.zeros_like(mean), torch.ones_like(mean)))  # PL956
    return F.mse_loss(decode(latent.rsample()), x) - beta * far.sum(1).mean()
for _ in range(2):
    update(opt, bound(x))
""",
    "rates of 0 by a division of whole numbers, by hand, and after the end of a schedule": DATA
    + """
def train(opt, scheduler=None, before=None):
    for epoch in range(6):
        if before is not None:
            before(epoch)
        for a, b in zip(x.split(4), y.split(4)):
            update(opt, F.mse_loss(net(a), b))
        if scheduler is not None:
            scheduler.step()
net = nn.Linear(3, 1)
def factor(epoch):
    return epoch // 4
slow = SGD(net.parameters(), lr=0.1)
train(slow, torch.optim.lr_scheduler.LambdaLR(slow, factor))  # PL668
def by_hand(epoch):
    for group in still.param_groups:
        group["lr"] = 0.1 * (epoch // 100)
still = Adam(net.parameters(), lr=0.1)  # PL668
train(still, None, by_hand)
over = SGD(net.parameters(), lr=0.1)
train(over, torch.optim.lr_scheduler.PolynomialLR(over, total_iters=4))  # PL668
""",
    "a generator that learns to be recognised: labels with names, a hinge, and logarithms": """
true, false = torch.full((8, 1), 0.9), torch.zeros(8, 1)
def networks():
    make, judge = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    return make, judge, Adam(make.parameters()), Adam(judge.parameters())
make, judge, make_opt, judge_opt = networks()
def judged(examples, wanted):
    return F.mse_loss(judge(examples), wanted)
for _ in range(2):
    with torch.no_grad():
        made = make(torch.randn(8, 3))
    update(judge_opt, 0.5 * (judged(torch.randn(8, 2) + 3, true) + judged(made, false)))
    update(make_opt, F.mse_loss(judge(make(torch.randn(8, 3))), false))  # PL670
make, judge, make_opt, judge_opt = networks()
for _ in range(2):
    made = make(torch.randn(8, 3))
    update(judge_opt, F.relu(1 - judge(torch.randn(8, 2))).mean() + F.relu(1 + judge(made.detach())).mean())
    score = judge(made)  # PL670
    update(make_opt, score.mean())
make, judge, make_opt, judge_opt = networks()
for _ in range(2):
    made = make(torch.randn(8, 3))
    update(judge_opt, -(F.logsigmoid(judge(torch.randn(8, 2))) + F.logsigmoid(-judge(made.detach()))).mean())
    update(make_opt, -F.logsigmoid(-judge(made)).mean())  # PL670
""",  # noqa: E501
    "an anchor that is its own positive": """
embed = nn.Linear(4, 6)
opt = SGD(embed.parameters(), lr=0.1)
points, kinds = torch.randn(12, 4), torch.arange(12) % 3
def apart(one, same, other):
    return ((one - same).square().sum(1) - (one - other).square().sum(1) + 1).relu().mean()  # PL518
for _ in range(2):
    update(opt, nn.TripletMarginLoss()(embed(points), embed(points), embed(torch.randn(12, 4))))  # PL518
    z = embed(points)
    update(opt, apart(z, z, embed(torch.randn(12, 4))))
    z = embed(points)
    far, same = torch.cdist(z, z), kinds[:, None] == kinds
    near = far.masked_fill(~same, torch.inf).argmin(1)  # PL954
    update(opt, nn.TripletMarginLoss()(z, z[near], z[far.masked_fill(same, torch.inf).argmin(1)]))
""",
    "the best of a dictionary is the sum itself": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
seen = {"best": torch.full((1,), 1e9)}
epoch_loss = torch.zeros(1)
for _ in range(4):
    epoch_loss.fill_(0)
    for a, b in zip(x.split(4), y.split(4)):
        update(opt, loss := F.mse_loss(net(a), b))
        with torch.no_grad():
            epoch_loss.add_(loss)
    if seen["best"] > epoch_loss:  # PL734
        seen["best"] = epoch_loss
""",
    "copies of examples with labels in another order, by expand and by cat": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
def views(x, count):
    return (x.unsqueeze(1) + 0.1 * torch.randn(1, count, 1)).reshape(-1, 3)
for _ in range(2):
    copies = x.unsqueeze(1).expand(-1, 3, -1).reshape(24, 3)
    update(opt, F.mse_loss(2 * net(copies), torch.cat([y, y, y])))  # PL436
    both = torch.cat([x, x + torch.randn_like(x)])
    update(opt, (net(both) - y.repeat_interleave(2, 0)).abs().mean())  # PL436
    scores = net(x.tile(3, 1)).reshape(8, 3)  # PL436
    update(opt, scores.logsumexp(1).mean())
""",
    "labels turned with a photograph": """
photo, labels = torch.rand(2, 3, 6, 6), torch.randint(0, 4, (2, 6, 6), dtype=torch.uint8)
net = nn.Conv2d(3, 4, 3, padding=1)
opt = SGD(net.parameters(), lr=0.1)
def turn(images, grid):
    return F.grid_sample(images, grid, align_corners=False)  # PL936
turned = F.affine_grid(torch.eye(2, 3).flip(0).expand(2, 2, 3), (2, 3, 6, 6), align_corners=False)
update(opt, F.cross_entropy(net(turn(photo, turned)), turn(labels[:, None].float(), turned)[:, 0].to(torch.int64)))
""",
    "vectors in a group of their own": """
class Texts(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.words = nn.EmbeddingBag.from_pretrained(embeddings=vectors)  # PL672
        self.head = nn.Linear(3, 2)
    def forward(self, texts):
        return self.head(self.words(texts))
texts, kinds = torch.randint(0, 9, (6, 4)), torch.randint(0, 2, (6,))
net = Texts(torch.randn(9, 3))
opt = Adam([{"params": net.words.parameters(), "lr": 1e-4}, {"params": net.head.parameters()}])
for _ in range(2):
    update(opt, F.cross_entropy(net(texts), kinds))
""",
    "policies whose rewards and advantages enter with plus": """
policy, states = nn.Linear(4, 3), torch.randn(16, 4)
opt = Adam(policy.parameters())
best = states[:, :3].argmax(1)
for _ in range(2):
    chosen = Categorical(logits=policy(states))
    actions = chosen.sample()
    reward = (actions == best).float()
    update(opt, (chosen.log_prob(actions) * (reward - reward.mean())).mean())  # PL952
old, gain = Categorical(logits=policy(states)).log_prob(best).detach(), torch.randn(16)
for _ in range(2):
    ratio = (Categorical(logits=policy(states)).log_prob(best) - old).exp()
    objective = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)  # PL952
    update(opt, objective.mean())
""",
    "halves of one data set, one of them with noise": """
class Noisy(Dataset):
    def __init__(self):
        self.x, self.y, self.noise = torch.randn(12, 3), torch.randn(12, 1), 0.0
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i] + self.noise * torch.randn(3), self.y[i]
def halves(data):
    learned, kept = torch.utils.data.random_split(data, (0.75, 0.25), generator=torch.Generator().manual_seed(1))
    learned.dataset.noise = 0.1  # PL738
    return DataLoader(learned, batch_size=3), DataLoader(kept, batch_size=3)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
learned, kept = halves(Noisy())
for a, b in learned:
    update(opt, F.mse_loss(net(a), b))
with torch.no_grad():
    print(sum(F.mse_loss(net(a), b) for a, b in kept))
""",
}

RIGHT = {
    "forecasts that were computed without a graph, or that a loss needs": DATA
    + """
@torch.no_grad()
def forecast(model, batches):
    return torch.cat([model(batch) for batch in batches])
def guesses(model, batches):
    return torch.cat([model(batch) for batch in batches])
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
kept = []
for _ in range(4):
    needed = []
    for _ in range(3):
        part = guesses(net, x.split(4))
        needed.append(part)
    update(opt, F.mse_loss(torch.stack(needed).mean(0), y))
    guess = forecast(net, x.split(4))
    kept.append(guess)
print(len(kept))
""",
    "pictures in the range, soft labels, and a few targets a little beyond the end": """
pictures = torch.rand(40, 400)
code, back = nn.Linear(400, 8), nn.Sequential(nn.Linear(8, 400), nn.Tanh())
opt = Adam([*code.parameters(), *back.parameters()])
for batch in pictures.split(20):
    update(opt, F.mse_loss(back(code(batch)), batch * 2.1 - 1))
    update(opt, F.binary_cross_entropy_with_logits(code(batch), torch.full((20, 8), 0.9)))
    update(opt, F.mse_loss(code(batch), torch.randn(20, 8) * 100))
""",
    "cosines of vectors, of every pair, and of the columns of predictions and targets": DATA
    + """
embed = nn.Linear(3, 6)
opt = SGD(embed.parameters(), lr=0.1)
words = torch.randn(5, 7, 3)
update(opt, 1 - F.cosine_similarity(embed(x), embed(x + 1)).mean())
update(opt, 1 - F.cosine_similarity(embed(words), embed(words + 1), dim=-1).mean())
z = embed(x)
update(opt, F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2).mean())
wanted, guess = torch.randn(8, 6), embed(x)
update(opt, 1 - F.cosine_similarity(guess - guess.mean(0), wanted - wanted.mean(0), dim=0).mean())
""",
    "a bound that is negated as a whole, counts, and weights that are learned": """
x, counts = torch.randn(8, 3), torch.randint(0, 5, (8, 1)).float()
encode, decode, rate = nn.Linear(3, 4), nn.Linear(2, 3), nn.Linear(3, 1)
weight = torch.zeros(1, requires_grad=True)
opt = Adam([*encode.parameters(), *decode.parameters(), *rate.parameters(), weight])
for _ in range(2):
    mean, logvar = encode(x).chunk(2, 1)
    latent = Normal(mean, (0.5 * logvar).exp())
    far = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
    update(opt, -(-F.mse_loss(decode(latent.rsample()), x) - far))
    logs = rate(x)
    update(opt, (logs.exp() - counts * logs).mean())
    mean, logvar = encode(x).chunk(2, 1)
    update(opt, (logvar + (x[:, :2] - mean) ** 2 / logvar.exp()).mean())
    update(opt, (torch.exp(-weight) * F.mse_loss(decode(torch.randn(8, 2)), x) + weight).sum())
    update(opt, -Normal(mean.detach(), weight.exp()).log_prob(x[:, :2]).mean())
""",
    "a warm-up by batches, a schedule that ends with the training, and a rate of 0 on purpose": DATA
    + """
net = nn.Linear(3, 1)
warm, ends, still = SGD(net.parameters(), lr=0.1), Adam(net.parameters(), lr=0.1), SGD(net.parameters(), lr=0)
by_batch = torch.optim.lr_scheduler.LambdaLR(warm, lambda step: min(1.0, step / 4))
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(ends, T_max=5)
for _ in range(5):
    for a, b in zip(x.split(4), y.split(4)):
        for opt in (warm, ends, still):
            update(opt, F.mse_loss(net(a), b))
        by_batch.step()
    cosine.step()
""",
    "networks against each other in every usual form, and one that helps the other": """
def networks():
    make, judge = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    return make, judge, Adam(make.parameters()), Adam(judge.parameters())
true, false = torch.full((8, 1), 0.9), torch.zeros(8, 1)
label = torch.full((8, 1), 1.0)
make, judge, make_opt, judge_opt = networks()
for _ in range(2):
    real, made = torch.randn(8, 2), make(torch.randn(8, 3))
    update(judge_opt, F.mse_loss(judge(real), true) + F.mse_loss(judge(made.detach()), false))
    update(make_opt, F.mse_loss(judge(made), true) + 0.1 * F.mse_loss(made, real))
    made = make(torch.randn(8, 3))
    update(judge_opt, F.relu(1 - judge(real)).mean() + F.relu(1 + judge(made.detach())).mean())
    update(make_opt, -judge(made).mean())
    made = make(torch.randn(8, 3))
    update(judge_opt, F.softplus(-judge(real)).mean() + F.softplus(judge(made.detach())).mean())
    update(make_opt, torch.log(1 - torch.sigmoid(judge(made))).mean())
    made = make(torch.randn(8, 3))
    judge_opt.zero_grad()
    F.binary_cross_entropy_with_logits(judge(real), label.fill_(1)).backward()
    F.binary_cross_entropy_with_logits(judge(made.detach()), label.fill_(0)).backward()
    judge_opt.step()
    update(make_opt, F.binary_cross_entropy_with_logits(judge(made), label.fill_(1)))
make, judge, make_opt, judge_opt = networks()
for _ in range(8):
    for _ in range(3):
        with torch.no_grad():
            made = make(torch.randn(8, 3))
        critic = judge(made).mean() - judge(torch.randn(8, 2)).mean()
        judge_opt.zero_grad()
        critic.backward()
        judge_opt.step()
    fooled = -judge(make(torch.randn(8, 3))).mean()
    make_opt.zero_grad()
    fooled.backward()
    make_opt.step()
body, head = nn.Linear(3, 4), nn.Linear(4, 1)
first, second = SGD(body.parameters(), lr=0.1), SGD(head.parameters(), lr=0.1)
for _ in range(2):
    update(second, F.mse_loss(head(body(torch.randn(8, 3)).detach()), torch.ones(8, 1)) + F.mse_loss(head(torch.randn(8, 4)), false))
    update(first, F.mse_loss(head(body(torch.randn(8, 3))), torch.full((8, 1), 0.5)))
""",  # noqa: E501
    "bests that are copies or new tensors, and comparisons of a tensor with its own columns": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
best, total, best_of_all = torch.full((1,), 1e9), torch.zeros(1), None
for _ in range(4):
    total.zero_()
    for a, b in zip(x.split(4), y.split(4)):
        update(opt, loss := F.mse_loss(net(a), b))
        total += loss.detach()
    if total < best:
        best = total.clone()
    fresh = total + 0
    if best_of_all is None or fresh < best_of_all:
        best_of_all = fresh
    print((total[:, None] <= total).sum(), (x == x).all(), x.sub_(0.1).gt(x.mean()).sum())
""",
    "copies and labels in one order, all pairs, and folds that fit": DATA
    + """
net, pair = nn.Linear(3, 1), nn.Linear(6, 1)
opt = SGD([*net.parameters(), *pair.parameters()], lr=0.1)
update(opt, F.mse_loss(net(x.repeat(2, 1)), torch.cat([y, y])))
update(opt, F.mse_loss(net(x.repeat_interleave(2, 0)), y.unsqueeze(1).expand(-1, 2, -1).reshape(-1, 1)))
scores = net(x.repeat(3, 1)).view(3, 8)
update(opt, scores.mean(0).sum() + net(x.repeat_interleave(3, 0)).view(8, 3).mean())
others = torch.randn(5, 3)
every = torch.cat([x.repeat_interleave(5, 0), others.repeat(8, 1)], dim=1)
update(opt, F.mse_loss(pair(every).view(8, 5), torch.zeros(8, 5)))
every = torch.cat([x.repeat_interleave(8, 0), x.repeat(8, 1)], dim=1)
update(opt, F.mse_loss(pair(every), torch.cdist(x, x).view(-1, 1)))
positions = torch.arange(4).repeat(3).view(3, 4)
print(positions.sum(), torch.arange(3).repeat_interleave(4).view(3, 4).sum())
""",
    "photographs of bytes, shares of classes, and labels by the nearest number": """
photo, labels = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8), torch.randint(0, 4, (2, 8, 8))
net = nn.Conv2d(3, 4, 3, padding=1)
opt = SGD(net.parameters(), lr=0.1)
small = F.interpolate(photo.float(), size=(4, 4), mode="bilinear").round().to(torch.uint8)
nearest = F.interpolate(labels[:, None].float(), size=(4, 4))[:, 0].long()
shares = F.interpolate(F.one_hot(labels, 4).permute(0, 3, 1, 2).float(), size=(4, 4), mode="area")
update(opt, F.cross_entropy(net(small.float() / 255), nearest) + F.cross_entropy(net(small.float() / 255), shares))
update(opt, F.cross_entropy(net(small.float() / 255), shares.argmax(1)))
""",
    "vectors that are frozen with the word for it, or thawed later": """
texts, kinds = torch.randint(0, 9, (6, 4)), torch.randint(0, 2, (6,))
fixed, thawed = nn.Embedding.from_pretrained(torch.randn(9, 3), freeze=True), nn.Embedding.from_pretrained(torch.randn(9, 3), False)
head = nn.Linear(3, 2)
opt = Adam([*fixed.parameters(), *thawed.parameters(), *head.parameters()])
for _ in range(2):
    update(opt, F.cross_entropy(head((fixed(texts) + thawed(texts)).mean(1)), kinds))
""",  # noqa: E501
    "policies with a minus, with costs, and an entropy with its temperature": """
policy, states = nn.Linear(4, 3), torch.randn(16, 4)
temperature = torch.zeros(1, requires_grad=True)
opt = Adam(policy.parameters())
best = states[:, :3].argmax(1)
old, gain = Categorical(logits=policy(states)).log_prob(best).detach(), torch.randn(16)
for _ in range(2):
    chosen = Categorical(logits=policy(states))
    actions = chosen.sample()
    reward, cost = (actions == best).float(), (actions != best).float()
    update(opt, -(chosen.log_prob(actions) * reward).mean())
    chosen = Categorical(logits=policy(states))
    update(opt, (chosen.log_prob(actions) * (0.5 - reward)).mean() + (chosen.log_prob(actions) * cost).mean())
    ratio = (Categorical(logits=policy(states)).log_prob(best) - old).exp()
    update(opt, -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean())
    drawn = Normal(policy(states), 1.0)
    move = drawn.rsample()
    update(opt, (temperature.exp().detach() * drawn.log_prob(move) - move.tanh()).mean())
""",
    "parts of data whose setting is meant for all, or switched for each phase": """
class Scaled(TensorDataset):
    scale = 1.0
    def __getitem__(self, i):
        return tuple(t * self.scale for t in super().__getitem__(i))
data = Scaled(torch.randn(12, 3), torch.randn(12, 1))
one, other = torch.utils.data.random_split(data, [8, 4])
data.scale = 0.5
one.dataset.factor = 2
other.dataset.factor = 2
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    one.dataset.scale = 0.9
    for a, b in DataLoader(one, batch_size=4):
        update(opt, F.mse_loss(net(a), b))
    other.dataset.scale = 1.0
    with torch.no_grad():
        print(sum(F.mse_loss(net(a), b) for a, b in DataLoader(other, batch_size=4)))
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
