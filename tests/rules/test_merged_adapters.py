"""PL967: an adapter merged without the factor that it was trained with; and merges that keep what was trained."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

LAYER = """
class Adapted(nn.Module):
    def __init__(self, base, rank=2, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, base.in_features) / 2)
        self.B = nn.Parameter(torch.randn(base.out_features, rank) / 9)
        self.scale = alpha / rank
    def forward(self, x):
        return self.base(x) + %s
    @torch.no_grad()
    def merge(self):
        %s
        return self.base
torch.manual_seed(0)
x, y = torch.randn(20, 4), torch.randn(20, 3)
layer = Adapted(nn.Linear(4, 3))
opt = torch.optim.SGD([layer.A, layer.B], lr=0.1)
for _ in range(3):
    loss = F.mse_loss(layer(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print(F.mse_loss(layer(x), y))
    print(F.mse_loss(layer.merge()(x), y))
"""
WRONG = {
    "added in place": LAYER
    % ("self.scale * (x @ self.A.T @ self.B.T)", "self.base.weight += self.B @ self.A  # PL967"),
    "by layers, through data": LAYER
    % (
        "F.linear(F.linear(F.dropout(x, 0.1), self.A), self.B) * self.scale",
        "self.base.weight.data = self.base.weight.data + torch.mm(self.B, self.A)  # PL967",
    ),
    "a product of both first": LAYER
    % ("x @ (self.B @ self.A).T * self.scale", "self.base.weight.add_(torch.matmul(self.B, self.A))  # PL967"),
    "two layers beside another, a factor of the program": """
torch.manual_seed(0)
GAIN = 0.5
main, down, up = nn.Linear(4, 3), nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
x, y = torch.randn(20, 4), torch.randn(20, 3)
main.requires_grad_(False)
opt = torch.optim.SGD([*down.parameters(), *up.parameters()], lr=0.1)
for _ in range(3):
    loss = F.mse_loss(main(x) + GAIN * up(down(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
whole = nn.Linear(4, 3)
with torch.no_grad():
    whole.weight.copy_(main.weight + up.weight @ down.weight)  # PL967
    whole.bias.copy_(main.bias)
    print(F.mse_loss(whole(x), y))
""",
}
RIGHT = {
    "with the factor": LAYER
    % ("self.scale * (x @ self.A.T @ self.B.T)", "self.base.weight += self.scale * (self.B @ self.A)"),
    "as alpha": LAYER
    % ("self.scale * (x @ self.A.T @ self.B.T)", "self.base.weight.add_(self.B @ self.A, alpha=self.scale)"),
    "in one of the matrices": LAYER
    % ("self.scale * (x @ self.A.T @ self.B.T)", "self.base.weight += (self.B * self.scale) @ self.A"),
    "no factor at all": LAYER % ("x @ self.A.T @ self.B.T", "self.base.weight += self.B @ self.A"),
    "at another strength, on purpose": LAYER
    % ("self.scale * (x @ self.A.T @ self.B.T)", "self.base.weight += 0.5 * self.scale * (self.B @ self.A)"),
    "a divisor that is undone": LAYER % ("(x @ self.A.T @ self.B.T) / 2 * 2", "self.base.weight += self.B @ self.A"),
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL967",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
