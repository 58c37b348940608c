"""torch.profiler with CUDA activity: totals, own times and counts by operator, on both sides."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
x = torch.randn(256, 1024, device="cuda")
for _ in range(3):
    model(x).sum().backward()
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as prof:
    for _ in range(5):
        model(x).sum().backward()
    torch.cuda.synchronize()
rows = [
    {
        "name": row.key,
        "count": row.count,
        "self_cpu_us": row.self_cpu_time_total,
        "cpu_total_us": row.cpu_time_total,
        "self_device_us": row.self_device_time_total,
        "device_total_us": row.device_time_total,
        "device_memory_bytes": row.device_memory_usage,
    }
    for row in prof.key_averages()
]
rows.sort(key=lambda row: -row["self_device_us"])
print(prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=10, max_name_column_width=44))
result = {"rows": rows[:20]}
