"""Densities, samples, positions and derivatives in a loss: silent pitfalls in other forms, and right
programs that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

AUTO = """
x = torch.randn(6, 3)
enc, dec = nn.Linear(3, 4), nn.Linear(2, 3)
opt = Adam([*enc.parameters(), *dec.parameters()], lr=0.01)
"""
SPREAD = """
x, y = torch.randn(8, 3), torch.randn(8, 1)
net, criterion = nn.Linear(3, 2), nn.GaussianNLLLoss()
opt = SGD(net.parameters(), lr=0.01)
"""
VALUES = """
q, fixed = nn.Linear(3, 4), nn.Linear(3, 4)
opt = Adam(q.parameters(), lr=0.01)
state, after, reward, act = torch.randn(6, 3), torch.randn(6, 3), torch.rand(6), torch.randint(0, 4, (6,))
"""
POLICY = """
net = nn.Linear(3, 2)
opt = SGD(net.parameters(), lr=0.1)
seen = torch.randn(6, 3)
"""
FIELD = """
net = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
opt = Adam(net.parameters(), lr=0.01)
t = torch.linspace(0, 1, 7)[:, None].requires_grad_()
def slope(u, at, **given):
    return torch.autograd.grad(u, at, torch.ones_like(u), **given)[0]
"""
CRITIC = """
critic = nn.Sequential(nn.Conv2d(2, 3, 3), nn.LeakyReLU(), nn.Flatten(), nn.Linear(12, 1))
opt = Adam(critic.parameters(), lr=0.01)
real, made = torch.randn(5, 2, 4, 4), torch.randn(5, 2, 4, 4)
def mixed():
    share = torch.rand(5, 1, 1, 1)
    return (share * real + (1 - share) * made).requires_grad_()
"""

WRONG = {
    "a variance by which noise is multiplied, in a class": AUTO
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.spread, self.back = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(2, 3)
    def draw(self, mean, log_v):
        return mean + log_v.exp() * torch.randn_like(mean)  # PL676
    def forward(self, given):
        mean, log_v = self.mean(given), self.spread(given)
        return self.back(self.draw(mean, log_v)), mean, log_v
model = Model()
opt = SGD(model.parameters(), lr=0.01)
for _ in range(2):
    out, mean, log_v = model(x)
    kl = 0.5 * torch.sum(log_v.exp() + mean.pow(2) - 1.0 - log_v)
    update(opt, F.mse_loss(out, x, reduction="sum") + kl)
""",
    "a variance from softplus, its logarithm in the divergence": AUTO
    + """
for _ in range(2):
    mean, raw = enc(x).split(2, 1)
    v = F.softplus(raw) + 1e-3
    z = torch.randn(6, 2) * v + mean  # PL676
    kl = 0.5 * (v + mean**2 - v.log() - 1).sum(1).mean()
    update(opt, F.mse_loss(dec(z), x) + kl)
""",
    "a deviation learned by its logarithm, taken for a variance in the divergence": AUTO
    + """
for _ in range(2):
    mean, logs = enc(x).chunk(2, -1)
    z = mean + torch.exp(logs) * torch.randn_like(mean)  # PL676
    kl = -0.5 * torch.mean(1 + logs - mean.square() - torch.exp(logs))
    update(opt, (dec(z) - x).square().mean() + 0.1 * kl)
""",
    "a deviation given to the loss, and an interval of two of them": SPREAD
    + """
for _ in range(2):
    mean, raw = net(x).chunk(2, 1)
    update(opt, criterion(mean, y, F.softplus(raw)))  # PL678
with torch.no_grad():
    mean, raw = net(x).chunk(2, 1)
    spread = F.softplus(raw)
    print((y > mean - 2 * spread).float().mean(), (y < mean + 2 * spread).float().mean())
""",
    "a deviation that a layer makes positive, squared for a report": """
x, y = torch.randn(8, 3), torch.randn(8)
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.spread = nn.Linear(3, 1), nn.Sequential(nn.Linear(3, 1), nn.Softplus())
    def forward(self, given):
        return self.mean(given).squeeze(1), self.spread(given).squeeze(1)
net = Two()
opt = Adam(net.parameters(), lr=0.01)
for _ in range(2):
    mean, std = net(x)
    update(opt, F.gaussian_nll_loss(mean, y, var=std))  # PL678
print((net(x)[1] ** 2).mean().item())
""",
    "a limit of the absolute distance, by a network with two heads": """
x, y = torch.randn(8, 3), torch.randn(8, 1)
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.mean, self.raw = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
    def forward(self, given):
        h = self.body(given).tanh()
        return self.mean(h), F.softplus(self.raw(h)) + 1e-3
net, criterion = Heads(), nn.GaussianNLLLoss(reduction="sum")
opt = Adam(net.parameters(), lr=0.01)
for _ in range(2):
    mean, std = net(x)
    update(opt, criterion(mean, y, std))  # PL678
with torch.no_grad():
    mean, std = net(x)
    print(((y - mean).abs() < 1.96 * std).float().mean())
""",
    "a limit without a factor, and the other way round": SPREAD
    + """
for _ in range(2):
    mean, raw = net(x).chunk(2, 1)
    sigma = raw.exp()
    update(opt, F.gaussian_nll_loss(mean, y, sigma))  # PL678
    print(sigma.ge(torch.abs(mean - y)).sum())
""",
    "distances in deviations": SPREAD
    + """
for _ in range(2):
    mean, raw = net(x).chunk(2, 1)
    update(opt, criterion(mean, y, F.softplus(raw)))  # PL678
mean, raw = net(x).chunk(2, 1)
score = (y - mean) / F.softplus(raw)
print(score.abs().amax())
""",
    "a share of distances above two deviations": SPREAD
    + """
for _ in range(2):
    mean, raw = net(x).split(1, 1)
    spread = raw.exp() + 1e-6
    update(opt, F.gaussian_nll_loss(mean, y, var=spread))  # PL678
    outliers = (mean - y).abs() / (spread * 2) > 1
    print(outliers.float().mean())
""",
    "a limit by a quantile": SPREAD
    + """
for _ in range(2):
    mean, raw = net(x).split(1, 1)
    spread = raw.exp() + 1e-6
    update(opt, criterion(mean, y, spread))  # PL678
    z = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(0.9))
    print(((y - mean).abs() <= z * spread).float().mean())
""",
    "a deviation that is sampled with": SPREAD
    + """
class Gauss(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 2)
    def forward(self, given):
        mean, raw = self.body(given).unbind(1)
        return mean, raw.exp()
model = Gauss()
opt = SGD(model.parameters(), lr=0.01)
for _ in range(2):
    mean, sigma = model(x)
    update(opt, F.gaussian_nll_loss(mean, y[:, 0], sigma))  # PL678
with torch.no_grad():
    mean, sigma = model(x)
    print(mean + sigma * torch.randn(8))
""",
    "the best action's number in place of its value": VALUES
    + """
for _ in range(2):
    with torch.no_grad():
        goal = reward + 0.9 * fixed(after).argmax(dim=1)  # PL680
    update(opt, F.mse_loss(q(state).gather(1, act[:, None]).squeeze(1), goal))
""",
    "the second of two results, in a method": VALUES
    + """
class Learner:
    def target(self):
        _, best = fixed(after).max(dim=-1)  # PL680
        return (reward + 0.9 * best).detach()
    def learn(self):
        return F.smooth_l1_loss(q(state)[torch.arange(6), act], self.target())
learner = Learner()
for _ in range(2):
    update(opt, learner.learn())
""",
    "the number of a class compared with a share": """
net = nn.Linear(3, 5)
with torch.no_grad():
    shares = net(torch.randn(20, 3)).softmax(1)
    sure = shares.argmax(1) > 0.9  # PL680
    print(sure.float().mean(), shares.argmax(1)[sure])
""",
    "a second sample for the log-probability, in an agent": POLICY
    + """
class Agent:
    def act(self, given):
        dist = Categorical(logits=net(given))
        action = dist.sample()
        return action, dist.log_prob(dist.sample())  # PL682
agent = Agent()
for _ in range(3):
    action, score = agent.act(seen)
    earned = (action == 0).float()
    update(opt, -(score * (earned - earned.mean())).mean())
""",
    "a second sample of a normal distribution": POLICY
    + """
for _ in range(3):
    dist = Normal(net(seen), 0.5)
    move = dist.sample()
    cost = move.square().sum(1)
    score = dist.log_prob(dist.sample()).sum(1)  # PL682
    update(opt, (score * cost).mean())
""",
    "one step after the other, the logarithm of a second draw": POLICY
    + """
for _ in range(3):
    scores, earned = [], []
    for row in seen:
        chances = net(row).softmax(0)
        action = torch.multinomial(chances, 1)
        scores.append(chances.log().gather(0, torch.multinomial(chances, 1)))  # PL682
        earned.append(float(action.item() == 0))
    update(opt, -(torch.cat(scores) * torch.tensor(earned)).sum())
""",
    "a first derivative without a graph": FIELD
    + """
for _ in range(2):
    u = net(t)
    du = torch.autograd.grad(u, t, torch.ones_like(u), retain_graph=True)[0]  # PL509
    residual = du - 0.5 * u * (1 - u)
    update(opt, residual.pow(2).mean() + (net(torch.zeros(1, 1)) - 0.1).pow(2).mean())
""",
    "a second derivative without a graph, in an equation of a class": FIELD
    + """
class Problem(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
    def forward(self, at):
        u = self.net(at)
        first, = torch.autograd.grad(u.sum(), at, create_graph=True)
        second, = torch.autograd.grad(first.sum(), at, retain_graph=True)  # PL509
        return F.mse_loss(second + 4 * u, torch.zeros_like(u))
problem = Problem()
opt = SGD(problem.parameters(), lr=0.01)
for _ in range(2):
    update(opt, problem(t))
""",
    "two derivatives, one with a graph": FIELD
    + """
flow = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1))
opt = SGD(flow.parameters(), lr=0.01)
place, time = (torch.rand(6, 1, requires_grad=True) for _ in range(2))
for _ in range(2):
    u = flow(torch.cat([place, time], 1))
    ut = slope(u, time, create_graph=True)
    ux, = torch.autograd.grad(u.sum(), place, retain_graph=True)  # PL509
    update(opt, (ut + 0.3 * ux).abs().mean())
""",
    "a length for each pixel": CRITIC
    + """
for _ in range(2):
    at = mixed()
    grad, = torch.autograd.grad(critic(at).sum(), at, create_graph=True)
    penalty = 10 * ((torch.sqrt(grad.pow(2).sum(dim=1) + 1e-8) - 1) ** 2).mean()  # PL684
    update(opt, critic(made).mean() - critic(real).mean() + penalty)
""",
    "one length of all examples": CRITIC
    + """
for _ in range(2):
    at = mixed()
    scores = critic(at)
    grad = torch.autograd.grad(scores, at, torch.ones_like(scores), create_graph=True, retain_graph=True)[0]
    grad = grad.reshape(5, -1)
    update(opt, critic(made).mean() - critic(real).mean() + (torch.linalg.vector_norm(grad) - 1).square())  # PL684
""",
    "a length of each feature over the examples": """
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = Adam(critic.parameters(), lr=0.01)
for _ in range(2):
    at = torch.randn(6, 3, requires_grad=True)
    grad = torch.autograd.grad(critic(at).sum(), at, create_graph=True)[0]
    update(opt, F.relu(grad.norm(dim=0) - 1).mean() + critic(torch.ones(2, 3)).mean())  # PL684
""",
    "shares of one score each, in a weighted sum over time": """
gru, score, out = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1), nn.Linear(4, 2)
opt = SGD([*gru.parameters(), *score.parameters(), *out.parameters()], lr=0.01)
for _ in range(2):
    h, _ = gru(torch.randn(6, 5, 3))
    w = F.softmax(score(h), dim=-1)  # PL408
    update(opt, F.cross_entropy(out((w * h).sum(1)), torch.randint(0, 2, (6,))))
    w = torch.softmax(score(h.detach()), 2)  # PL408
    update(opt, F.cross_entropy(out((w.transpose(1, 2) @ h.detach()).squeeze(1)), torch.randint(0, 2, (6,))))
""",
    "shares of the parts of one bag": """
class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.out, self.shares = nn.Linear(4, 1), nn.Linear(4, 2), nn.Softmax(dim=1)
    def forward(self, parts):
        return self.out((self.shares(self.score(parts)) * parts).sum(0))  # PL408
net = Bag()
opt = SGD(net.parameters(), lr=0.01)
for _ in range(2):
    update(opt, F.cross_entropy(net(torch.randn(7, 4)), torch.tensor(1)))
""",
}

RIGHT = {
    "shares over time and over the parts of a bag": """
score, out = nn.Linear(4, 1), nn.Linear(4, 2)
opt = SGD([*score.parameters(), *out.parameters()], lr=0.01)
h, parts = torch.randn(6, 5, 4), torch.randn(7, 4)
for _ in range(2):
    update(opt, F.cross_entropy(out((score(h).softmax(1) * h).sum(1)), torch.randint(0, 2, (6,))))
    update(opt, F.cross_entropy(out((score(parts).softmax(0) * parts).sum(0)), torch.tensor(1)))
""",
    "noise multiplied by the root of the variance": AUTO
    + """
for _ in range(2):
    mean, log_v = enc(x).chunk(2, 1)
    z = mean + (0.5 * log_v).exp() * torch.randn_like(mean)
    update(opt, F.mse_loss(dec(z), x) - 0.5 * (1 + log_v - mean**2 - log_v.exp()).mean())
    mean, v = enc(x).chunk(2, 1)
    v = F.softplus(v) + 1e-3
    z = mean + v.sqrt() * torch.randn_like(mean)
    update(opt, F.mse_loss(dec(z), x) + 0.5 * (v + mean**2 - v.log() - 1).mean())
""",
    "the logarithm of a deviation, squared in the divergence": AUTO
    + """
for _ in range(2):
    mean, logs = enc(x).chunk(2, 1)
    z = mean + logs.exp() * torch.randn_like(mean)
    update(opt, F.mse_loss(dec(z), x) + (0.5 * (logs.exp() ** 2 + mean**2 - 1) - logs).mean())
    mean, std = enc(x).chunk(2, 1)
    std = F.softplus(std) + 1e-3
    z = mean + std * torch.randn_like(mean)
    update(opt, F.mse_loss(dec(z), x) + 0.5 * (std**2 + mean**2 - 1 - (std**2).log()).mean())
    std = F.softplus(enc(x)[:, 2:]) + 1e-3
    kl = kl_divergence(Normal(mean.detach(), std), Normal(0.0, 1.0))
    update(opt, F.mse_loss(dec(mean.detach() + std * torch.randn(6, 2)), x) + kl.mean())
""",
    "noise on an input, scaled by what is not in the divergence": AUTO
    + """
scale = torch.tensor(0.1)
for _ in range(2):
    mean, log_v = enc(x + scale * torch.randn(6, 3)).chunk(2, 1)
    z = mean + (log_v / 2).exp() * torch.randn_like(mean)
    update(opt, F.mse_loss(dec(z), x) - 0.5 * (1 + log_v - mean**2 - log_v.exp()).mean())
""",
    "variances given to the loss, and their roots for the interval": SPREAD
    + """
for _ in range(2):
    mean, raw = net(x).chunk(2, 1)
    v = F.softplus(raw) + 1e-6
    update(opt, criterion(mean, y, v))
    mean, logs = net(x).chunk(2, 1)
    update(opt, criterion(mean, y, logs.exp().square()))
    update(opt, criterion(*net(x).chunk(2, 1)[:1], y, torch.full((8, 1), 0.1)))
with torch.no_grad():
    mean, raw = net(x).chunk(2, 1)
    std = (F.softplus(raw) + 1e-6).sqrt()
    print((y > mean - 2 * std).float().mean(), (std**2).mean(), mean + std * torch.randn(8, 1))
""",
    "squared distances divided by the variance, limits from its root, and other distances": SPREAD
    + """
for _ in range(2):
    mean, raw = net(x).chunk(2, 1)
    v = F.softplus(raw) + 1e-6
    update(opt, criterion(mean, y, v))
    print(((y - mean) ** 2 / v).mean(), ((y - mean) / v.sqrt()).std(), (y - mean).abs() < 1.96 * v.sqrt())
    print(((y - mean).square() < 4 * v).float().mean(), (y - y.mean()).abs() < v, v < 0.3, v / v.sum())
    weight = 1 / v
    print((weight * mean).sum() / weight.sum())
""",
    "positions by which values are chosen": VALUES
    + """
for _ in range(2):
    with torch.no_grad():
        best = q(after).argmax(1, keepdim=True)
        goal = reward + 0.9 * fixed(after).gather(1, best).squeeze(1)
        other = reward + 0.9 * fixed(after).max(1)[0]
    chosen = q(state)[torch.arange(6), act]
    update(opt, F.mse_loss(chosen, torch.minimum(goal, other)))
""",
    "a position that is to be predicted": """
net = nn.Linear(6, 6)
opt = SGD(net.parameters(), lr=0.01)
maps = torch.rand(6, 6)
for _ in range(2):
    out = net(maps)
    update(opt, F.mse_loss(out[:, 0], maps.argmax(1) / 6) + F.cross_entropy(out, maps.argmax(1)))
    soft = (net(maps).softmax(1) * torch.arange(6)).sum(1)
    update(opt, F.l1_loss(soft, maps.max(1)[1].float()))
with torch.no_grad():
    print((net(maps).argmax(1) - maps.argmax(1)).abs().float().mean(), net(maps).argmax(1) > 2, net(maps).amax(1) > 0.9)
""",
    "the sample that is carried out is scored": POLICY
    + """
for _ in range(3):
    dist = Categorical(logits=net(seen))
    action, other = dist.sample(), dist.sample()
    earned, base = (action == 0).float(), (other == 0).float()
    update(opt, -(dist.log_prob(action) * (earned - base)).mean() - 0.01 * dist.entropy().mean())
    dist = Categorical(logits=net(seen))
    first, second = dist.sample(), dist.sample()
    gap = (first == 0).float() - (second == 0).float()
    update(opt, -((dist.log_prob(first) - dist.log_prob(second)) * gap).mean())
""",
    "one distribution explored, another trained": POLICY
    + """
kept = []
for _ in range(3):
    with torch.no_grad():
        action = Categorical(logits=net(seen)).sample()
    kept.append((seen, action, (action == 0).float()))
for given, action, earned in kept:
    update(opt, -(Categorical(logits=net(given)).log_prob(action) * earned).mean())
for _ in range(2):
    dist = Normal(net(seen), 0.5)
    move = dist.rsample()
    update(opt, move.square().mean() + 0.1 * dist.log_prob(move).mean() + 0.1 * dist.log_prob(dist.rsample()).mean())
""",
    "derivatives that record themselves, and one that is only watched": FIELD
    + """
for _ in range(2):
    u = net(t)
    du = slope(u, t, create_graph=True)
    d2u = slope(du, t, create_graph=True)
    update(opt, (d2u + u).square().mean() + (du - 1).square().mean())
    u = net(t)
    print((slope(u, t, retain_graph=True) + u).square().mean().item())
    update(opt, (u - 1).square().mean())
""",
    "an action moved along the derivative of its value": FIELD
    + """
actor, value = nn.Linear(3, 2), nn.Linear(5, 1)
opt = SGD([*actor.parameters(), *value.parameters()], lr=0.01)
seen = torch.randn(6, 3)
for _ in range(2):
    action = actor(seen)
    up, = torch.autograd.grad(value(torch.cat([seen, action], 1)).sum(), action)
    update(opt, F.mse_loss(action, action.detach() + up) + (value(torch.ones(2, 5)) - 1).square().mean())
""",
    "words moved against their loss": """
table, head = nn.Embedding(9, 4), nn.Linear(4, 2)
opt = SGD([*table.parameters(), *head.parameters()], lr=0.01)
words, kind = torch.randint(0, 9, (6, 3)), torch.randint(0, 2, (6,))
for _ in range(2):
    rows = table(words)
    loss = F.cross_entropy(head(rows.mean(1)), kind)
    grad, = torch.autograd.grad(loss, rows, retain_graph=True)
    moved = rows + 0.1 * grad / grad.norm(dim=2, keepdim=True)
    update(opt, loss + F.cross_entropy(head(moved.square().mean(1)), kind))
""",
    "a step of a sampler, and pictures moved by an attack": """
energy = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
opt = SGD(energy.parameters(), lr=0.01)
data = torch.randn(6, 2)
for _ in range(2):
    at = torch.randn(6, 2)
    for _ in range(3):
        at.requires_grad_()
        grad, = torch.autograd.grad(energy(at).sum(), at)
        at = (at - 0.1 * grad + 0.01 * torch.randn(6, 2)).detach()
    low, high = energy(data), energy(at)
    update(opt, (low - high).mean() + 0.1 * (low**2 + high**2).mean())
""",
    "one length for each example": CRITIC
    + """
for _ in range(2):
    at = mixed()
    grad, = torch.autograd.grad(critic(at).sum(), at, create_graph=True)
    lengths = [grad.flatten(1).norm(2, dim=1), grad.pow(2).sum(dim=(1, 2, 3)).sqrt(), torch.linalg.vector_norm(grad, dim=(1, 2, 3))]
    penalty = sum(((each - 1) ** 2).mean() for each in lengths) + grad.square().sum((1, 2, 3)).mean()
    update(opt, critic(made).mean() - critic(real).mean() + penalty)
    grad, = torch.autograd.grad(critic(at).mean(), at, create_graph=True)
    update(opt, (grad.view(5, -1).norm(dim=-1) - 1).relu().mean() + critic(real).mean())
""",  # noqa: E501
    "points of which each has a value, and lengths that are only watched": CRITIC
    + """
field = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = SGD(field.parameters(), lr=0.01)
for _ in range(2):
    points = torch.randn(2, 5, 3, requires_grad=True)
    height = field(points)
    grad, = torch.autograd.grad(height.sum(), points, create_graph=True)
    update(opt, (grad.norm(dim=-1) - 1).square().mean() + height.abs().mean())
    at = mixed()
    grad, = torch.autograd.grad(critic(at).sum(), at)
    print((grad.norm() - 1).square(), (grad.norm(dim=1) - 1).abs().mean())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
