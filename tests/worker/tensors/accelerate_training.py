"""Saves a model in every way of Accelerate, Lightning, transformers and verl, with what each of them reads from it.

torchrun --nproc-per-node 2 accelerate_training.py FOLDER
"""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin, merge_fsdp_weights
from accelerate.utils.fsdp_utils import save_fsdp_model
from lightning.fabric.strategies.fsdp import _distributed_checkpoint_save
from lightning.fabric.utilities.load import _load_distributed_checkpoint
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    folder, accelerator = Path(sys.argv[1]), Accelerator(cpu=True)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    model = divided(plain())
    save_fsdp2(folder, accelerator, model)
    save_as_lightning(folder, model)
    save_as_verl(folder, model)
    save_state(folder, accelerator)
    save_shards(folder, accelerator)
    if accelerator.is_main_process:
        save_pretrained(folder)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def plain(seed=0):
    """Return a model whose sizes no world size divides."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(7, 13), nn.BatchNorm1d(13), nn.Linear(13, 5, bias=False))


def divided(model):
    """Divide it by FSDP2; four ranks keep two copies of two halves."""
    count = torch.distributed.get_world_size()
    shape, names = ((2, 2), ("ddp", "fsdp")) if count == 4 else ((count,), ("fsdp",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def expect(folder, name, tensors):
    """Write down what the framework reads."""
    if torch.distributed.get_rank() == 0:
        torch.save(dict(tensors), folder / f"{name}.pt")


def save_fsdp2(folder, accelerator, model):
    """Accelerate's SHARDED_STATE_DICT, by torch.distributed.checkpoint and as files of ranks."""
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    save_fsdp_model(plugin, accelerator, model, folder / "accelerate-fsdp2")
    merge_fsdp_weights(folder / "accelerate-fsdp2" / "pytorch_model_fsdp_0", folder / "merged")
    expect(folder, "accelerate-fsdp2", load_file(folder / "merged" / "model.safetensors"))
    save_fsdp_model(plugin, accelerator, model, folder / "accelerate-fsdp2-ranks", use_dcp=False)
    expect(folder, "accelerate-fsdp2-ranks", load_file(folder / "merged" / "model.safetensors"))


def save_as_lightning(folder, model):
    """The folder that Lightning's FSDP and model-parallel strategies save, by their own function."""
    _distributed_checkpoint_save({"model": model.state_dict()}, folder / "lightning-fsdp.ckpt")
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        torch.save({"epoch": 3, "global_step": 30}, folder / "lightning-fsdp.ckpt" / "meta.pt")
        expect(folder, "lightning-fsdp.ckpt", _load_distributed_checkpoint(folder / "lightning-fsdp.ckpt")["model"])
    torch.distributed.barrier()


def save_as_verl(folder, model):
    """The files that verl's FSDP workers save, each rank its DTensors."""
    rank, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
    actor = folder / "verl" / "actor"
    actor.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), actor / f"model_world_size_{count}_rank_{rank}.pt")
    torch.save({"state": {}}, actor / f"optim_world_size_{count}_rank_{rank}.pt")
    full = {
        name: getattr(value, "full_tensor", lambda value=value: value)() for name, value in model.state_dict().items()
    }
    expect(folder, "verl", full)


def save_state(folder, accelerator):
    """A state of one model, and one of two."""
    model = accelerator.prepare(plain())
    accelerator.save_state(folder / "accelerate-state")
    expect(folder, "accelerate-state", accelerator.unwrap_model(model).state_dict())
    other = accelerator.prepare(plain(seed=1))
    accelerator.save_state(folder / "accelerate-two-models")
    both = {"model": accelerator.unwrap_model(model), "model_1": accelerator.unwrap_model(other)}
    expect(
        folder,
        "accelerate-two-models",
        {f"{name}.{key}": value for name, one in both.items() for key, value in one.state_dict().items()},
    )


def save_shards(folder, accelerator):
    """Shards with an index."""
    model = accelerator.prepare(plain())
    accelerator.save_model(model, folder / "accelerate-shards", max_shard_size=200)
    expect(folder, "accelerate-shards", accelerator.unwrap_model(model).state_dict())
    accelerator.wait_for_everyone()


def save_pretrained(folder):
    """A model with tied embeddings, in shards."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=17, n_positions=9)
    GPT2LMHeadModel(config).save_pretrained(folder / "transformers-shards", max_shard_size="2KB")
    loaded = GPT2LMHeadModel.from_pretrained(folder / "transformers-shards")
    expect(folder, "transformers-shards", loaded.state_dict())


if __name__ == "__main__":
    main()
