"""The same sum twice: atomic additions arrive in another order each time."""

import torch

torch.manual_seed(0)
index = torch.randint(0, 10, (1_000_000,), device="cuda")
values = torch.randn(1_000_000, device="cuda")


def sums():
    return torch.zeros(10, device="cuda").index_add_(0, index, values)


first = sums()
differences = [(sums() - first).abs().max().item() for _ in range(20)]
print("largest difference between 20 runs of the same index_add_:", max(differences))
torch.use_deterministic_algorithms(True)
steady = sums()
same = [torch.equal(sums(), steady) for _ in range(20)]
print("with use_deterministic_algorithms(True) all runs equal:", all(same))
result = {"largest_difference": max(differences), "runs_that_differ": sum(d > 0 for d in differences), "deterministic_all_equal": all(same)}
