# Sparse tensors: mirrored, never refused.
import torch

i = torch.tensor([[0, 1], [1, 0]])
s = torch.sparse_coo_tensor(i, torch.tensor([2.0, 3.0]), (2, 2))
d = torch.eye(2, requires_grad=True)
out = torch.sparse.mm(s.coalesce(), d)
out.sum().backward()
print(s.to_dense(), d.grad, s.is_sparse, torch.eye(2).to_sparse_csr().values())
