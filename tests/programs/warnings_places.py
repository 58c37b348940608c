"""Warnings name the line that they would name, whatever number of frames torch counts to it, and come as often."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F

x = torch.ones(2, 3, requires_grad=True)
wrong = torch.ones(3)
for warns in (
    lambda: nn.Softmax()(x), lambda: nn.Sequential(nn.LogSoftmax())(x), lambda: F.softmax(x), lambda: nn.MSELoss()(x, wrong),
    lambda: F.l1_loss(x, wrong), lambda: F.mse_loss(x, x.detach(), reduce=False), lambda: nn.Dropout2d()(torch.ones(2, 2, 2)),
    lambda: nn.LSTM(2, 3, dropout=0.5), lambda: F.kl_div(x, x.detach()), lambda: (x * 2).grad, lambda: torch.ones(2, 2, 2).T,
    lambda: torch.tensor(wrong), lambda: torch.complex(wrong, wrong).float(), lambda: torch.add(wrong, torch.ones(3), out=torch.ones(2)),
    lambda: nn.init.xavier_uniform(torch.empty(2, 2)), lambda: x.sum().backward(create_graph=True),
):  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warns()
    for warning in caught:
        place = warning.filename.rpartition("torch/")[2]
        print(warning.category.__name__, place, warning.lineno, str(warning.message)[:40])
x.grad = None

for action in ("default", "once", "module"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter(action)
        for _ in range(3):
            F.softmax(x)
            nn.Softmax()(x)
            F.mse_loss(x, wrong)
    print(action, len(caught))

with warnings.catch_warnings():
    warnings.simplefilter("error")
    for warns in (lambda: nn.Softmax()(x), lambda: F.mse_loss(x, wrong), lambda: (x * 2).grad):
        try:
            warns()
        except UserWarning as error:
            print(str(error)[:40])
