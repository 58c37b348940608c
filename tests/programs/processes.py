# Processes that the program forks do not know that it is recorded, and end as they would; the parent goes on.
import os
import sys
import threading

import torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader, Dataset


def around():
    return torch._C._len_torch_function_stack(), sys.gettrace(), sys.getprofile(), threading.getprofile()


class Squares(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor(float(index)) ** 2, str(around())


def work(queue):
    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    queue.put((x.grad.tolist(), around()))


w = torch.ones(3, requires_grad=True)
reads, writes = os.pipe()
child = os.fork()
if child == 0:
    (w * 2).sum().backward()
    os.write(writes, repr((w.grad.tolist(), around())).encode())
    os._exit(7)
print(os.read(reads, 1000), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
loss = (w * 5).sum()
loss.backward()
print(w.grad)

forking = multiprocessing.get_context("fork")
queue = forking.SimpleQueue()
process = forking.Process(target=work, args=(queue,))
process.start()
print(queue.get())
process.join()
print(process.exitcode)

for squares, states in DataLoader(Squares(), batch_size=2, num_workers=1, multiprocessing_context="fork"):
    print(squares * 2, states)


def forks(gradient):
    child = os.fork()
    if child == 0:
        os._exit(len((gradient * 2).tolist()))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


w.register_hook(forks)
(w * w).sum().backward()
print(w.grad)
