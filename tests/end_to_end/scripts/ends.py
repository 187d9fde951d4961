"""Two ranks that step together; KIND says how rank 1 leaves them after step 20, or what the script asks."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

asked = False


def note(number, frame):
    global asked
    asked = True


signal.signal(signal.SIGTERM, note)
dist.init_process_group("gloo")
rank, kind = dist.get_rank(), sys.argv[1]
if kind == "input" and rank == 0:
    input("Overwrite? ")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(400):
    loss = model(torch.randn(4, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.05)
    print(f"step {step}/400: loss {loss.item():.4f}", flush=True)
    if rank == 1 and step == 20 and kind == "osexit":
        os._exit(0)
    if rank == 1 and step == 20 and kind == "sysexit":
        sys.exit(0)
    flag = torch.tensor(float(asked))
    dist.all_reduce(flag)
    if flag.item():
        break
dist.destroy_process_group()
