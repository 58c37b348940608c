# Printing, repr, comparison, truth, len, iteration, copying, pickling of tensors.
import copy
import pickle

import torch

x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
print(x, repr(x[0]), str(x.sum()), f"{x.mean():.2f}", len(x), bool(x[0, 0] > 0), x.size(), x.dim(), x.numel(), x.shape[1])
for row in x:
    print(row)
y = copy.deepcopy(x)
z = pickle.loads(pickle.dumps(x.detach()))
print(torch.equal(x, y), torch.allclose(x, z), x is not y, hash(x) == id(x), x in [x])
a, b = torch.tensor([1, 2]).unbind()
print(a.item() + b.item(), sorted([torch.tensor(2), torch.tensor(1)]))
