# One storage, several names: id, data_ptr, assignment, +=, out=, slice assignment.
import torch

x = torch.tensor([1.0, 2.0])
alias = x
y = torch.zeros(2)
before = y.data_ptr()
y[:] = x + y
torch.add(x, y, out=y)
print(y, y.data_ptr() == before, alias is x)
y = y + 1
print(y.data_ptr() == before)
alias += 1
print(x, x.untyped_storage().nbytes())
picked = [torch.index_select(x, 0, torch.tensor([0])), torch.masked_select(x, x > 2), torch.gather(x, 0, torch.tensor([1])), x.clone()]
print([p.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for p in picked])
