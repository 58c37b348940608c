"""Samples with a graph whose log-probability is weighed, and losses that are left in an opponent's gradients."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

POLICY = """
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
spread = nn.Parameter(torch.zeros(2))
opt = Adam([*net.parameters(), spread], lr=0.01)
goal = torch.tensor([0.5, -0.5])
def earned(action):
    return -(action - goal).square().sum(-1)
"""
PLAYERS = """
make, judge = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)), nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt_m, opt_j = SGD(make.parameters(), lr=0.01), SGD(judge.parameters(), lr=0.01)
def real():
    return torch.randn(6, 3) + 2
"""  # noqa: E501

WRONG = {
    "rewards from NumPy, as advantages": POLICY
    + """
for _ in range(2):
    dist = Normal(net(torch.randn(6, 3)), spread.exp())
    action = dist.rsample()
    gain = torch.from_numpy(earned(action.detach()).numpy() * 2)
    better = (gain - gain.mean()) / (gain.std() + 1e-8)
    update(opt, -(dist.log_prob(action).sum(1) * better).mean())  # PL526
""",
    "an independent distribution, in a method": POLICY
    + """
class Agent:
    def act(self, seen):
        self.dist = Independent(Normal(net(seen), 0.3), 1)
        self.action = self.dist.rsample()
        return self.action.detach()
    def learn(self, gain):
        update(opt, (-self.dist.log_prob(self.action) * gain).sum())  # PL526
agent = Agent()
for _ in range(2):
    agent.learn(earned(agent.act(torch.randn(5, 3))))
""",
    "drawn by hand": POLICY
    + """
for _ in range(2):
    mean = net(torch.randn(6, 3))
    move = mean + spread.exp() * torch.randn_like(mean)
    with torch.no_grad():
        gain = earned(move)
    score = Normal(mean, spread.exp()).log_prob(move)  # PL526
    update(opt, -(score.sum(-1) * gain).mean())
""",
    "with a whole covariance, and a baseline that learns": POLICY
    + """
base = nn.Linear(3, 1)
both = Adam([*net.parameters(), *base.parameters()], lr=0.01)
for _ in range(2):
    seen = torch.randn(6, 3)
    policy = MultivariateNormal(net(seen), torch.eye(2))
    action = policy.rsample()
    gain = earned(action.detach())
    guess = base(seen).squeeze(1)
    loss = -(policy.log_prob(action) * (gain - guess.detach())).mean() + F.mse_loss(guess, gain)  # PL526
    update(both, loss)
""",
    "steps of an episode, one by one": POLICY
    + """
for _ in range(2):
    at, scores, gains = torch.randn(3), [], []
    for _ in range(3):
        dist = Laplace(net(at), 1.0)
        action = dist.rsample()
        scores.append(dist.log_prob(action).sum())  # PL526
        at = torch.cat([action.detach(), at[:1]])
        gains.append(earned(action.detach()))
    update(opt, -(torch.stack(scores) * torch.stack(gains)).sum())
""",
    "several steps of the critic, the maker cleared before them": PLAYERS
    + """
for _ in range(3):
    opt_m.zero_grad()
    for _ in range(3):
        opt_j.zero_grad()
        (judge(make(torch.randn(6, 2))).mean() - judge(real()).mean()).backward()  # PL656
        opt_j.step()
    (-judge(make(torch.randn(6, 2))).mean()).backward()
    opt_m.step()
""",
    "a condition beside the sample, in functions": PLAYERS
    + """
judge = nn.Linear(4, 1)
opt_j = Adam(judge.parameters())
def score(sample, kind):
    return judge(torch.cat([sample, kind], 1))
def train_judge(kind):
    opt_j.zero_grad()
    loss = F.softplus(score(make(torch.randn(6, 2)), kind)).mean() + F.softplus(-score(real(), kind)).mean()
    loss.backward()  # PL656
    opt_j.step()
def train_maker(kind):
    F.softplus(-score(make(torch.randn(6, 2)), kind)).mean().backward()
    opt_m.step()
for _ in range(4):
    for p in make.parameters():
        p.grad = None
    train_judge(torch.ones(6, 1))
    train_judge(torch.zeros(6, 1))
    train_maker(torch.ones(6, 1))
""",
}
RIGHT = {
    "plain samples, and a sample that is detached where it is scored": POLICY
    + """
for _ in range(2):
    dist = Normal(net(torch.randn(6, 3)), spread.exp())
    action = dist.sample()
    update(opt, -(dist.log_prob(action).sum(1) * earned(action)).mean())
    dist = Normal(net(torch.randn(6, 3)), spread.exp())
    action = dist.rsample()
    update(opt, -(dist.log_prob(action.detach()).sum(1) * earned(action.detach())).mean())
""",
    "a critic that values the sample, and its entropy": POLICY
    + """
value, warmth = nn.Linear(5, 1), torch.tensor(0.2)
opt = Adam([*net.parameters(), *value.parameters(), spread], lr=0.01)
for _ in range(2):
    seen = torch.randn(6, 3)
    dist = Normal(net(seen), spread.exp())
    action = dist.rsample()
    update(opt, (warmth * dist.log_prob(action).sum(1) - value(torch.cat([seen, action], 1)).squeeze(1)).mean())
    dist = Normal(net(seen), spread.exp())
    action = dist.rsample()
    update(opt, -(earned(action) - 0.1 * dist.log_prob(action).sum(1)).mean())
""",
    "a code that is decoded, its log-probability weighed for each example": POLICY
    + """
back = nn.Linear(2, 3)
opt = Adam([*net.parameters(), *back.parameters(), spread], lr=0.01)
for _ in range(2):
    x, weights = torch.randn(6, 3), torch.rand(6)
    q = Normal(net(x), spread.exp())
    z = q.rsample()
    bound = Normal(0.0, 1.0).log_prob(z).sum(1) - q.log_prob(z).sum(1) - (back(z) - x).square().sum(1)
    update(opt, -(bound * weights).sum())
    q = Normal(net(x), spread.exp())
    z = q.rsample()
    update(opt, ((back(z) - x).square().sum(1) + q.log_prob(z).sum(1) * weights).sum())
""",
    "the ratio of a new policy to the old one": POLICY
    + """
seen = torch.randn(6, 3)
with torch.no_grad():
    old = Normal(net(seen), spread.exp())
    action = old.rsample()
    before = old.log_prob(action).sum(1)
for _ in range(2):
    ratio = (Normal(net(seen), spread.exp()).log_prob(action).sum(1) - before).exp()
    update(opt, -(ratio * earned(action)).mean())
""",
    "data whose likelihood is weighed": POLICY
    + """
x, y, weights = torch.randn(6, 3), torch.randn(6, 2), torch.rand(6)
for _ in range(2):
    update(opt, -(Normal(net(x), spread.exp()).log_prob(y + 0.1 * torch.randn(6, 2)).sum(1) * weights).mean())
""",
    "detached, drawn without a graph, and cleared before the maker's own loss": PLAYERS
    + """
for _ in range(3):
    for _ in range(3):
        opt_j.zero_grad()
        (judge(make(torch.randn(6, 2)).detach()).mean() - judge(real()).mean()).backward()
        opt_j.step()
    opt_m.zero_grad()
    (-judge(make(torch.randn(6, 2))).mean()).backward()
    opt_m.step()
    with torch.no_grad():
        made = make(torch.randn(6, 2))
    opt_j.zero_grad()
    (judge(made).mean() - judge(real()).mean()).backward()
    opt_j.step()
for _ in range(3):
    opt_j.zero_grad()
    (judge(make(torch.randn(6, 2))).mean() - judge(real()).mean()).backward()
    opt_j.step()
    opt_m.zero_grad()
    (-judge(make(torch.randn(6, 2))).mean()).backward()
    opt_m.step()
""",
}


def test_a_scored_sample_with_a_graph_and_a_loss_left_in_the_maker_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_what_looks_like_them_and_is_right_draws_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
