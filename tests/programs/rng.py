# Random numbers: seeds, generators, dropout, permutations; recording must not consume any.
import random

import numpy as np
import torch

torch.manual_seed(5)
random.seed(5)
np.random.seed(5)
g = torch.Generator().manual_seed(9)
print(torch.rand(2), torch.randn(2, generator=g), torch.randint(0, 10, (3,)), torch.randperm(4))
print(torch.nn.functional.dropout(torch.ones(6), 0.5), torch.empty(3).uniform_(), torch.bernoulli(torch.full((4,), 0.5)))
print(torch.normal(0.0, 1.0, (2,)), torch.multinomial(torch.ones(4), 2), random.random(), np.random.rand())
print(torch.rand(1), torch.initial_seed())
