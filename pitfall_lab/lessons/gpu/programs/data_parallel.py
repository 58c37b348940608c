"""DataParallel around a model: the names that change, the chunks, and the devices that are visible."""

import os

import torch
from torch import nn

model = nn.Linear(4, 2).cuda()
wrapped = nn.DataParallel(model)
print("visible devices:", torch.cuda.device_count(), "- CUDA_VISIBLE_DEVICES =", os.environ.get("CUDA_VISIBLE_DEVICES"))
print("device_ids:", wrapped.device_ids)
print("keys:", list(wrapped.state_dict()))
print("a model goes to:", next(model.parameters()).device)
chunks = {f"{n} samples on {k} devices": [len(c) for c in torch.arange(n).chunk(k)] for n, k in ((10, 4), (5, 4), (8, 4))}
for text, sizes in chunks.items():
    print(f"{text}: {sizes}")
same = torch.equal(wrapped(torch.ones(3, 4, device="cuda")), model(torch.ones(3, 4, device="cuda")))
print("one device: same result as the bare model:", same)
result = {
    "devices": torch.cuda.device_count(), "device_ids": wrapped.device_ids, "keys": list(wrapped.state_dict()), "chunks": chunks, "same_result": same,
    "default_device_of_a_model": str(next(model.parameters()).device),
}
