"""Training that goes the wrong way without an error: in other forms than on the rules' pages, and right programs that resemble it."""

from __future__ import annotations

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import met, plain
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
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    program = together(WRONG)
    trace = shop.trace(Subject(plain(program), "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    assert met([f for f in find(trace) if f.severity != "info" or f.rule in program], program) == ""


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    trace = shop.trace(Subject(together(RIGHT), "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    assert [(f.rule, f.message.en) for f in find(trace) if f.severity != "info"] == []
