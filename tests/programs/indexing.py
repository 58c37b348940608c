# Indexing: views by integers, slices, None and ellipsis; copies by lists, tensors and masks.
import torch

x = torch.arange(12.0).view(3, 4)
views = [x[0], x[1:], x[:, 1], x[..., -1], x[None], x[::2, 1:3], x[1, 2], x[torch.tensor(1)]]
copies = [x[[0, 2]], x[torch.tensor([1, 1])], x[x > 5], x[:, [3, 0]], x[[0, 1], [2, 3]]]
for t in views:
    print("view", tuple(t.shape), t.stride(), t.storage_offset(), t._base is x)
for t in copies:
    print("copy", tuple(t.shape), t.tolist(), t._base is x)
views[0][0] = 100.0
copies[0][0, 0] = -1.0
print(x)
