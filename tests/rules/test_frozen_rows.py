"""PL669 where the optimizer has other parameters too: the weight decay is taken from the frozen rows alone."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import examined

PROGRAM = """import torch
from torch import nn
torch.manual_seed(0)
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(6, 3), nn.Linear(3, 2)
        self.words.weight.register_hook(self.only_new)
    def only_new(self, grad):
        grad = grad.clone()
        grad[:4] = 0
        return grad
    def forward(self, x):
        return self.head(self.words(x).mean(1))
net = Tagger()
opt = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)
for _ in range(4):
    loss = nn.functional.cross_entropy(net(torch.arange(6).view(2, 3)), torch.tensor([0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net.words.weight[:4].norm().item())
"""


def test_frozen_rows_get_a_group_without_weight_decay(shop: Workshop) -> None:
    (finding,) = [each for each in examined(shop, PROGRAM) if each.rule == "PL669"]
    assert finding.fixes[0].verified
    assert '{"params": [net.words.weight], "weight_decay": 0.0}' in finding.fixes[0].edits[0].text
