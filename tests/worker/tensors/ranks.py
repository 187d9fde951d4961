"""A training's ranks: each saves one model in the ways of torch, and rank 0 what it is when whole.

Started by torchrun with the folder to write to. The model and its optimizer are the same for every world size.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    """Rows that no number of ranks divides evenly, several types, and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.norm = nn.BatchNorm1d(6)
        self.low = nn.Linear(6, 5).to(torch.bfloat16)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Use every parameter."""
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden)).sum() + self.low(hidden.to(torch.bfloat16)).sum()


def trained(wrap) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A wrapped model after one step."""
    torch.manual_seed(0)
    model = wrap(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.arange(11)).backward()
    optimizer.step()
    return model, optimizer


def sharded(model: Model) -> Model:
    """As FSDP2 shards it."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (*model.layers, model.low):  # a group has one type
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def save(folder: Path) -> None:
    """Save the sharded model in three ways, and the replicated one."""
    model, optimizer = trained(sharded)
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder / "fsdp2")
    dcp.save({"app": {"model": weights, "optim": states}}, checkpoint_id=folder / "nested")
    untied = {name: tensor for name, tensor in weights.items() if name != "head.weight"}  # this writer refuses them
    dcp.save(untied, storage_writer=HuggingFaceStorageWriter(str(folder / "hf"), save_distributed=True))
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    replicated, _ = trained(DistributedDataParallel)
    dcp.save({"state_dict": replicated.state_dict()}, checkpoint_id=folder / "ddp")
    if dist.get_rank() == 0:
        torch.save(whole, folder / "fsdp2.pt")
        torch.save({"model": replicated.state_dict(), "step": 1}, folder / "ddp.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    save(Path(sys.argv[1]))
    dist.destroy_process_group()
