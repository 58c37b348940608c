# The two steps of a GAN in two functions; what the second needs is changed by the first.
import torch
import torch.nn as nn
import torch.nn.functional as F


def make(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 8), nn.LeakyReLU(0.2), nn.Linear(8, outputs))


def train_discriminator(opt, real_score, fake_score):
    opt.zero_grad()
    loss = F.softplus(-real_score).mean() + F.softplus(fake_score).mean()
    loss.backward(retain_graph=True)
    opt.step()  # PL104 changed
    return loss.item()


def train_generator(opt, fake_score):
    opt.zero_grad()
    loss = F.softplus(-fake_score).mean()
    loss.backward()  # backward
    opt.step()
    return loss.item()


def main(steps=2):
    torch.manual_seed(3)
    gen, disc = make(3, 2), make(2, 1)
    opt_gen = torch.optim.SGD(gen.parameters(), lr=0.05)
    opt_disc = torch.optim.SGD(disc.parameters(), lr=0.05)
    for _ in range(steps):
        fake = gen(torch.randn(6, 3))
        real_score = disc(torch.rand(6, 2))
        fake_score = disc(fake)  # saved
        d = train_discriminator(opt_disc, real_score, fake_score)
        g = train_generator(opt_gen, fake_score)
        print(f"{d:.3f} {g:.3f}")


if __name__ == "__main__":
    main()
