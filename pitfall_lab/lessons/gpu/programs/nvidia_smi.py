"""What nvidia-smi counts as used, beside what PyTorch counts."""

import shutil
import subprocess

import torch

MIB = 1 << 20
x = torch.randn(100_000_000, device="cuda")
y = torch.randn(100_000_000, device="cuda")
del y
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
found = {"allocated_mib": torch.cuda.memory_allocated() / MIB, "reserved_mib": torch.cuda.memory_reserved() / MIB, "driver_used_mib": (total - free) / MIB, "total_mib": total / MIB}
for name, value in found.items():
    print(f"{name:20}{value:12.1f}")
smi = shutil.which("nvidia-smi")
query = "--query-gpu=utilization.gpu,memory.used,memory.free,power.draw,temperature.gpu"
outputs = {}
if smi:
    for words in ([query, "--format=csv"], []):
        done = subprocess.run([smi, *words], capture_output=True, text=True, check=False)
        outputs[" ".join(["nvidia-smi", *words])] = done.stdout
        print("\n$ nvidia-smi", *words)
        print(done.stdout)
else:
    print("nvidia-smi is not on the PATH")
result = {**found, "outputs": outputs}
