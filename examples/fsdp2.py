"""FSDP2 (`fully_shard`): parameters divided over the ranks, saved with torch.distributed.checkpoint.

By hand:        torchrun --standalone --nproc-per-node 2 examples/fsdp2.py
With Rankzero:  rankzero launch examples/fsdp2.py --gpus-per-node 2
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.tensorboard import SummaryWriter

WORDS, LENGTH, WIDTH = 64, 16, 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=16, help="per GPU")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--save-every", type=int, default=30)
    parser.add_argument("--resume", default="", help="a folder saved by an earlier run")
    args = parser.parse_args()

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same first weights on every rank
    model = make_model().to(kind)
    translation = torch.randperm(WORDS, device=kind)
    mesh = init_device_mesh(kind, (world_size,))
    for layer in model[1:-1]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    first_step = load(args.resume, model, optimizer) if args.resume else 0

    torch.manual_seed(1 + rank)  # from here on every rank draws its own samples
    writer = SummaryWriter("logs") if rank == 0 else None
    for step in range(first_step + 1, args.steps + 1):
        inputs = torch.randint(WORDS, (args.batch_size, LENGTH), device=kind)
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), translation[inputs].flatten())
        optimizer.zero_grad()
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        optimizer.step()
        mean = loss.detach() / world_size
        dist.all_reduce(mean)
        if writer:
            writer.add_scalar("loss", mean.item(), step)
            writer.add_scalar("grad_norm", grad_norm.item(), step)
        if step % args.save_every == 0:
            dcp.save(state_of(model, optimizer, step), checkpoint_id=f"checkpoints/step_{step}")
    if writer:
        writer.close()
    dist.barrier()
    dist.destroy_process_group()


def make_model():
    layers = [nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True) for _ in range(2)]
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *layers, nn.Linear(WIDTH, WORDS))


def state_of(model, optimizer, step):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "step": step}


def load(folder, model, optimizer):
    """Read what each rank needs of it, in place; the number of ranks may have changed."""
    state = state_of(model, optimizer, 0)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return state["step"]


if __name__ == "__main__":
    main()
