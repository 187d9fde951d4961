"""Rank 0 prepares data first, so that rank 1's event file in the same folder is the older one."""
import time, torch, torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter
dist.init_process_group("gloo"); rank = dist.get_rank(); torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1)); opt = torch.optim.SGD(model.parameters(), lr=0.1)
time.sleep(1.5 if rank == 0 else 0); writer = SummaryWriter("tb")
for step in range(30):
    loss = ((model(torch.randn(16, 4)) - 1) ** 2).mean(); opt.zero_grad(); loss.backward(); opt.step(); time.sleep(0.1)
    writer.add_scalar("train/loss", loss.item() + 100 * rank, step)
writer.close(); dist.destroy_process_group()
