# Views of one storage: view, reshape, transpose, permute, expand, squeeze, unsqueeze, flatten, detach.
import torch

a = torch.arange(6.0)
m = a.view(2, 3)
shapes = [
    m, m.t(), m.T, m.transpose(0, 1), m.permute(1, 0), a.reshape(3, 2), m.T.reshape(6), a.unsqueeze(0), a.unsqueeze(-1),
    a.view(1, 6).squeeze(0), a.view(6, 1).squeeze(), a.view(1, 6).expand(4, 6), a.expand(2, -1), m.flatten(), m.detach(), m.clone(),
    m.contiguous(), m.T.contiguous(), m.view(-1), m.narrow(1, 0, 2), torch.broadcast_to(a, (2, 6)),
]
for t in shapes:
    print(tuple(t.shape), t.stride(), t.storage_offset(), t.data_ptr() == a.data_ptr())
m.mul_(2)
print(a)
