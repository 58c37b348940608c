# A trainer class that keeps its scores as attributes; both losses are computed before the first step.
import torch
from torch import nn, optim


class Trainer:
    def __init__(self):
        self.gen = nn.Linear(2, 3)
        self.disc = nn.Sequential(nn.Linear(3, 6), nn.Sigmoid(), nn.Linear(6, 1))
        self.gen_opt = optim.Adam(self.gen.parameters())
        self.disc_opt = optim.Adam(self.disc.parameters())
        self.bce = nn.BCEWithLogitsLoss()

    def step(self, real, noise):
        self.fake = self.gen(noise)
        verdict = self.disc(self.fake)  # saved
        truth = self.disc(real)
        disc_loss = self.bce(truth, torch.ones_like(truth)) + self.bce(verdict, torch.zeros_like(verdict))
        gen_loss = self.bce(verdict, torch.ones_like(verdict))
        self.disc_opt.zero_grad()
        disc_loss.backward(retain_graph=True)
        self.disc_opt.step()  # PL104 changed
        self.gen_opt.zero_grad()
        gen_loss.backward()  # backward
        self.gen_opt.step()
        return disc_loss.item(), gen_loss.item()


torch.manual_seed(0)
trainer = Trainer()
for epoch in range(2):
    print(trainer.step(torch.randn(4, 3), torch.randn(4, 2)))
