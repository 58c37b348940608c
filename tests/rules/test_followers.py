"""Copies of a network that should follow it: averages that never arrive in them, and those that do."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

TWO = """
import copy
x, reward = torch.randn(8, 3), torch.randn(8, 1)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
slow = copy.deepcopy(net)
opt = Adam(net.parameters(), lr=0.01)
def learn():
    with torch.no_grad():
        goal = reward + 0.9 * slow(x)
    update(opt, F.mse_loss(net(x), goal))
"""

WRONG = {
    "entries of a state_dict, in a function": TWO
    + """
def follow(target, online, tau):
    goal, new = target.state_dict(), online.state_dict()
    for key in goal:
        goal[key] = (1 - tau) * goal[key] + tau * new[key]  # PL744
for _ in range(4):
    learn()
    follow(slow, net, 0.05)
""",
    "a dictionary of the named parameters, with lerp": TWO
    + """
for _ in range(4):
    learn()
    own = dict(slow.named_parameters())
    with torch.no_grad():
        for name, p in net.named_parameters():
            own[name] = torch.lerp(own[name], p, 0.05)  # PL744
""",
    "a list of the parameters": TWO
    + """
for _ in range(4):
    learn()
    with torch.no_grad():
        weights = list(slow.parameters())
        for i, p in enumerate(net.parameters()):
            weights[i] = weights[i] * 0.95 + p * 0.05  # PL744
""",
    "a dictionary made at once, in a class": TWO
    + """
class Agent:
    def __init__(self):
        self.online, self.target = net, slow
    def follow(self):
        new = self.online.state_dict()
        mixed = {k: 0.99 * v + 0.01 * new[k] for k, v in self.target.state_dict().items()}  # PL744
agent = Agent()
for _ in range(4):
    learn()
    agent.follow()
""",
    "moved by a part of the gap": TWO
    + """
for _ in range(4):
    learn()
    for key, p in net.state_dict().items():
        slow.state_dict()[key] = slow.state_dict()[key] + 0.1 * (p - slow.state_dict()[key])  # PL744
""",
}

RIGHT = {
    "entries that are loaded": TWO
    + """
for _ in range(4):
    learn()
    goal, new = slow.state_dict(), net.state_dict()
    for key in goal:
        goal[key] = 0.9 * goal[key] + 0.1 * new[key]
    slow.load_state_dict(goal)
""",
    "entries that are written": TWO
    + """
for _ in range(4):
    learn()
    goal, new = slow.state_dict(), net.state_dict()
    for key in goal:
        goal[key].copy_(0.9 * goal[key] + 0.1 * new[key])
""",
    "the data of parameters replaced": TWO
    + """
for _ in range(4):
    learn()
    for p, q in zip(slow.parameters(), net.parameters()):
        p.data = 0.9 * p.data + 0.1 * q.data
""",
    "a mixture of a fixed network and a trained one, used by functional_call": TWO
    + """
for _ in range(4):
    learn()
    old, new = slow.state_dict(), net.state_dict()
    mixed = {k: 0.5 * old[k] + 0.5 * new[k] for k in old}
    print(torch.func.functional_call(net, mixed, (x,)).mean().item())
""",
    "an average of the weights kept beside, loaded at the end": TWO
    + """
mean = {k: v.clone() for k, v in net.state_dict().items()}
for _ in range(4):
    learn()
    for k, v in net.state_dict().items():
        mean[k] = 0.9 * mean[k] + 0.1 * v
net.load_state_dict(mean)
print(net(x).mean().item())
""",
    "how far the two are apart": TWO
    + """
for _ in range(4):
    learn()
    gaps = [(p - q).norm().item() for p, q in zip(slow.parameters(), net.parameters())]
    ways = {}
    for (name, p), q in zip(slow.named_parameters(), net.parameters()):
        ways[name] = (p + 2 * q).detach()
    print(max(gaps), sum(w.sum().item() for w in ways.values()))
""",
}

TAUGHT = """
x, y = torch.randn(24, 3), torch.randint(0, 4, (24,))
class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.out = nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)
    def forward(self, given):
        return self.out(F.relu(self.norm(self.inner(given))))
teacher, student = Body(), nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4))
opt = Adam(teacher.parameters(), lr=0.01)
for _ in range(2):
    update(opt, F.cross_entropy(teacher(x), y))
opt = Adam(student.parameters(), lr=0.01)
"""

TEACHING = {
    "shares of a trained teacher": TAUGHT
    + """
for part in x.split(6):
    with torch.no_grad():
        soft = F.softmax(teacher(part) / 2, dim=1)  # PL940
    update(opt, F.kl_div(F.log_softmax(student(part) / 2, dim=1), soft, reduction="batchmean"))
""",
    "the directions of the teacher's scores": TAUGHT
    + """
for part in x.split(6):
    with torch.no_grad():
        goal = F.normalize(teacher(part), dim=1)  # PL940
    update(opt, 1 - F.cosine_similarity(student(part), goal).mean())
""",
    "in a method, beside the labels": TAUGHT
    + """
class Distiller:
    def __init__(self, old, new):
        self.old, self.new = old, new
    @torch.no_grad()
    def goal(self, part):
        return self.old(part)  # PL940
    def loss(self, part, answer):
        out = self.new(part)
        return F.cross_entropy(out, answer) + F.smooth_l1_loss(out, self.goal(part))
distiller = Distiller(teacher, student)
for part, answer in zip(x.split(6), y.split(6)):
    update(opt, distiller.loss(part, answer))
""",
    "features of a network of convolutions": """
images = torch.randn(12, 1, 6, 6)
known = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
small = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())
opt = SGD(small.parameters(), lr=0.1)
for part in images.split(4):
    with torch.no_grad():
        features = known(part)  # PL940
    update(opt, (small(part) - features).square().mean())
""",
    "labels made by the teacher": TAUGHT
    + """
for part in x.split(6):
    with torch.no_grad():
        shares = teacher(part).softmax(1)  # PL940
    update(opt, -(shares * student(part).log_softmax(1)).sum(1).mean())
""",
}

CALM = {
    "a teacher in evaluation mode": TAUGHT
    + """
teacher.eval()
for part in x.split(6):
    with torch.no_grad():
        soft = F.softmax(teacher(part) / 2, dim=1)
    update(opt, F.kl_div(F.log_softmax(student(part) / 2, dim=1), soft, reduction="batchmean"))
""",
    "a teacher that follows the student by an average": TAUGHT
    + """
import copy
net = Body()
mean, opt = copy.deepcopy(net), Adam(net.parameters(), lr=0.01)
for part in x.split(6):
    with torch.no_grad():
        goal = mean(part)
    update(opt, F.mse_loss(net(part), goal))
    with torch.no_grad():
        for p, q in zip(mean.parameters(), net.parameters()):
            p.lerp_(q, 0.1)
""",
    "statistics estimated anew, and the results unused": TAUGHT
    + """
for part in x.split(6):
    with torch.no_grad():
        teacher(part)
    update(opt, F.cross_entropy(student(part), y[:6]))
""",
    "both networks trained in turn": TAUGHT
    + """
both = Adam(teacher.parameters(), lr=0.01)
for part, answer in zip(x.split(6), y.split(6)):
    with torch.no_grad():
        goal = teacher(part)
    update(opt, F.mse_loss(student(part), goal))
    update(both, F.cross_entropy(teacher(part), answer))
""",
    "a generator's images for its critic": TAUGHT
    + """
maker, critic = Body(), nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
own, other = Adam(maker.parameters(), lr=0.01), Adam(critic.parameters(), lr=0.01)
for part in x.split(6):
    with torch.no_grad():
        made = maker(part)
    update(other, F.softplus(critic(made)).mean() + F.softplus(-critic(torch.randn(6, 4))).mean())
""",
}


def test_a_teacher_that_normalises_by_each_batch_is_found_and_put_into_evaluation_mode(shop: Workshop) -> None:
    parts = {name: text for name, text in TEACHING.items() if "method" not in name}
    assert_found(shop, together(TEACHING), only=("PL940",))
    assert_found(shop, together(parts), only=("PL940",), repaired=True)


def test_teachers_that_are_calm_or_move_on_purpose_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(CALM))


def test_averages_that_no_copy_gets_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL744",))


def test_the_averages_are_loaded_or_written_by_a_fix(shop: Workshop) -> None:
    """All but the dictionary that is made and forgotten, which has no entry to write into."""
    parts = {name: text for name, text in WRONG.items() if "at once" not in name}
    assert_found(shop, together(parts), only=("PL744",), repaired=True)


def test_averages_that_arrive_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
