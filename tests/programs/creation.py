# Creation: every factory that the chapters use, with values that do not depend on luck.
import torch

made = [
    torch.tensor([1, 2, 3]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor(7.5), torch.tensor([True, False]),
    torch.zeros(2, 3), torch.ones((2, 2)), torch.full((3,), 0.25), torch.arange(5), torch.arange(1.0, 2.0, 0.25),
    torch.linspace(0, 1, 5), torch.eye(3), torch.empty(0), torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.float64),
]
made += [torch.zeros_like(made[1]), torch.ones_like(made[4]), torch.full_like(made[1], 9.0), made[1].new_zeros(2), made[1].new_tensor([5.0])]
for tensor in made:
    print(tuple(tensor.shape), tensor.dtype, tensor.tolist())
