"""PL951: partial likelihoods that compare each event with earlier ones; and those that do not."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
time, died = torch.rand(30) * 10, (torch.rand(30) > 0.3).float()
x = torch.randn(30, 4)
net = torch.nn.Linear(4, 1)
risk = net(x).squeeze(1)
"""
END = """
loss.backward()
print(loss.item())
"""
WRONG = {
    "sorted by time": """
order = time.argsort()
s, e = risk[order], died[order]
loss = -((s - s.logcumsumexp(0)) * e).mean()  # PL951
""",
    "a mask times hazards": """
at_risk = (time[None, :] <= time[:, None]).float()
loss = -(died * (risk - torch.log((at_risk * risk.exp()[None]).sum(1)))).sum() / died.sum()  # PL951
""",
    "the columns are the samples": """
at_risk = time.unsqueeze(0) >= time.unsqueeze(1)
total = (at_risk * risk.exp().unsqueeze(1)).sum(dim=0)  # PL951
loss = -((risk - (total + 1e-8).log()) * died).mean()
""",
    "a product of matrices": """
at_risk = torch.le(time.view(1, -1), time.view(-1, 1)).float()
hazard = torch.exp(risk - risk.max())
total = (at_risk @ hazard).log() + risk.max()  # PL951
loss = -(risk - total)[died.bool()].mean()
""",
    "a column of hazards, in a function": """
def cox(score, time, event):
    mask = torch.ge(time, time.reshape(-1, 1)).float().t()
    total = torch.mm(mask, score.exp())  # PL951
    return -torch.sum((score - torch.log(total)).squeeze() * event) / event.sum()
loss = cox(net(x), time, died)
""",
    "filled with minus infinity": """
later = time[None] > time[:, None]
total = risk[None].expand(30, 30).masked_fill(later, -torch.inf).logsumexp(1)  # PL951
loss = -(risk[died == 1] - total[died == 1]).mean()
""",
    "chosen by where, two sums": """
keep = ~(time[None] >= time[:, None])
total = torch.where(keep, risk.exp()[None], torch.zeros(())).sum(1).clamp(min=1e-6).log()  # PL951
loss = (total * died).sum() - (risk * died).sum()
""",
    "the logarithm of a mask added": """
at_risk = (time[:, None] >= time[None]).float()
total = torch.logsumexp(risk[None] + at_risk.log(), dim=1)  # PL951
loss = -((risk - total) * died).sum()
""",
}
RIGHT = {
    "later times": """
at_risk = (time[None, :] >= time[:, None]).float()
loss = -(died * (risk - torch.log((at_risk * risk.exp()[None]).sum(1)))).sum() / died.sum()
""",
    "the columns are the samples": """
at_risk = (time[None, :] <= time[:, None]).float()
loss = -(died * (risk - torch.log((at_risk * risk.exp()[:, None]).sum(0)))).mean()
""",
    "transposed": """
at_risk = (time[None, :] <= time[:, None]).float().T
loss = -(died * (risk - torch.log(at_risk @ risk.exp()))).mean()
""",
    "the rest of earlier times": """
at_risk = 1 - (time[None, :] < time[:, None]).float()
loss = -(died * (risk - torch.log(at_risk @ risk.exp()))).mean()
earlier = time[None, :] < time[:, None]
loss = loss - ((risk - risk.expand(30, 30).masked_fill(earlier, -torch.inf).logsumexp(1)) * died).mean()
""",
    "negative times": """
age = -time
at_risk = (age[None, :] <= age[:, None]).float()
loss = -(died * (risk - torch.log(at_risk @ risk.exp()))).mean()
""",
    "with a time of entry": """
entry = time * torch.rand(30)
at_risk = (entry[None] <= time[:, None]) & (time[None] >= time[:, None])
loss = -(died * (risk - torch.log(at_risk.float() @ risk.exp()))).mean()
""",
    "places in an order, the latest first": """
order = time.argsort(descending=True)
s, e, place = risk[order], died[order], torch.arange(30)
at_risk = (place[None] <= place[:, None]).float()
loss = -(e * (s - torch.log(at_risk @ s.exp()))).mean()
""",
    "likelihood of a ranking by relevance": """
below = (time[None] <= time[:, None]).float()
loss = (torch.log(below @ risk.exp()) - risk).mean()
loss = loss + ((torch.log(below @ risk.exp()) - risk) * torch.rand(30)).mean()
""",
    "a hazard of other scores": """
below = (time[None] <= time[:, None]).float()
base = torch.log(below @ torch.exp(x[:, 0]))
loss = ((risk - base).square() * died).mean()
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_risk_sets_of_earlier_times_are_found(shop: Workshop, case: str) -> None:
    assert_found(shop, HEAD + WRONG[case] + END, repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_risk_sets_of_later_times_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, HEAD + RIGHT[case] + END)
