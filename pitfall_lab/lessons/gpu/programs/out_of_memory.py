"""What torch says when the device is full, and that the program can go on."""

import torch

free, total = torch.cuda.mem_get_info()
try:
    torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    said = "fine"
except torch.OutOfMemoryError as error:
    said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
print(said)
print("afterwards a small tensor can be made:", torch.ones(3, device="cuda").sum().item() == 3)
result = {"text": said}
