"""Samples whose own log-probability is all that trains their distribution, and losses in which it is not."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

FIT = """
x, y = torch.randn(20, 2), torch.randn(20)
mean, raw = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
opt = Adam([mean, raw], lr=0.05)
def likelihood(w):
    return -((y - w @ x.T) ** 2).sum(-1)
"""
POLICY = """
x, y = torch.randn(12, 3), torch.randn(12, 2)
net = nn.Linear(3, 4)
opt = SGD(net.parameters(), lr=0.1)
"""

WRONG = {
    "a posterior of weights, in a function": FIT
    + """
def bound():
    q = Normal(mean, F.softplus(raw))
    w = q.sample((8,))  # PL550
    prior = Normal(0.0, 2.0).log_prob(w).sum(1)
    return (likelihood(w) + prior - q.log_prob(w).sum(1)).mean()
for _ in range(3):
    update(opt, -bound())
""",
    "positive numbers, drawn without a graph": FIT
    + """
for _ in range(3):
    q = LogNormal(mean, raw.exp())
    with torch.no_grad():
        w = q.sample((8,))  # PL550
    update(opt, 0.1 * q.log_prob(w).sum() - likelihood(w).mean())
""",
    "an independent normal of one network, used by nothing else that is trained": POLICY
    + """
for _ in range(3):
    mean, raw = net(x).chunk(2, 1)
    q = Independent(Normal(mean, raw.exp()), 1)
    z = q.sample()  # PL550
    gap = ((z - y) ** 2).sum(1)
    update(opt, (gap + 0.5 * q.log_prob(z)).mean())
""",
    "actions without their reward": POLICY
    + """
for _ in range(3):
    policy = Categorical(logits=net(x))
    action = policy.sample()  # PL550
    reward = (action == 2).float()
    update(opt, -policy.log_prob(action).mean())
    print(reward.mean())
""",
    "labels that the network drew for itself": POLICY
    + """
for _ in range(3):
    scores = net(x)
    drawn = torch.multinomial(scores.softmax(1), 1).squeeze(1)  # PL550
    update(opt, F.cross_entropy(scores, drawn))
""",
}

RIGHT = {
    "drawn with a path": FIT
    + """
for _ in range(3):
    q = Normal(mean, raw.exp())
    w = q.rsample((8,))
    update(opt, 0.1 * q.log_prob(w).sum() - likelihood(w).mean())
""",
    "weighed by what the samples are worth": FIT
    + """
for _ in range(3):
    q = Normal(mean, raw.exp())
    w = q.sample((8,))
    worth = likelihood(w)
    update(opt, -((worth - worth.mean()) * q.log_prob(w).sum(1)).mean())
""",
    "actions weighed by rewards, with an entropy": POLICY
    + """
for _ in range(3):
    policy = Categorical(logits=net(x))
    action = policy.sample()
    reward = (action == 2).float()
    update(opt, -(reward * policy.log_prob(action)).mean() - 0.01 * policy.entropy().mean())
""",
    "the best of the samples": FIT
    + """
for _ in range(3):
    q = Normal(mean, raw.exp())
    w = q.sample((20,))
    best = w[likelihood(w).topk(5).indices]
    update(opt, -q.log_prob(best).sum(1).mean())
    q = Normal(mean, raw.exp())
    w = q.sample((20,))
    score = q.log_prob(w).sum(1)
    update(opt, -score[likelihood(w) > -300].sum())
""",
    "given data, and data of another distribution": FIT
    + """
teacher = Normal(torch.tensor([1.0, 2.0]), torch.ones(2))
for _ in range(3):
    q = Normal(mean, raw.exp())
    update(opt, -q.log_prob(x).sum(1).mean())
    q = Normal(mean, raw.exp())
    update(opt, -q.log_prob(teacher.sample((9,))).sum(1).mean())
""",
    "labels drawn for another view of the examples": POLICY
    + """
for _ in range(3):
    with torch.no_grad():
        drawn = torch.multinomial(net(x).softmax(1), 1).squeeze(1)
    update(opt, F.cross_entropy(net(x + 0.1 * torch.randn_like(x)), drawn))
""",
    "own samples beside the data": POLICY
    + """
given = torch.randint(0, 4, (12,))
for _ in range(3):
    policy = Categorical(logits=net(x))
    update(opt, policy.log_prob(policy.sample()).mean() - policy.log_prob(given).mean())
""",
}


def test_a_distribution_trained_by_its_own_samples_alone_is_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL550",))


def test_samples_that_are_used_get_a_path(shop: Workshop) -> None:
    """The other programs want a weight for each sample, which no edit can know."""
    parts = {name: text for name, text in WRONG.items() if "in a function" in name or "independent" in name}
    assert_found(shop, together(parts), only=("PL550",), repaired=True)


def test_samples_with_a_weight_or_a_path_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
