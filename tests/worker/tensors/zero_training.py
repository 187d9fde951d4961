"""Trains and saves by DeepSpeed ZeRO 1 to 3, and writes beside each save what DeepSpeed itself reads from it.

torchrun --nproc-per-node 2 zero_training.py FOLDER
"""

import sys
from pathlib import Path

import deepspeed
import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from torch import nn

CASES = {
    **{f"zero{stage}-fp32": (stage, False, {}) for stage in (1, 2, 3)},
    **{f"zero{stage}-bf16": (stage, True, {}) for stage in (1, 2, 3)},
    "zero2-aligned": (2, False, {"parameter_alignment": True}),
}
"""Name of the save -> stage, whether it trains in bf16, and further options: paddings between parameters."""


class Model(nn.Module):
    """Tied weights, frozen parameters, buffers of two types, and sizes that no world size divides."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.frozen = nn.Linear(5, 7)
        self.register_buffer("offset", torch.linspace(-1, 1, 7))
        self.register_buffer("count", torch.tensor(12))
        self.hidden = nn.Linear(7, 5)
        self.out = nn.Linear(5, 11, bias=False)
        self.out.weight = self.embedding.weight
        self.frozen.requires_grad_(False)

    def forward(self, tokens):
        """Return scores of the next token."""
        features = self.frozen(self.embedding(tokens))
        return self.out(self.hidden(features + self.offset.to(features.dtype)))


def main():
    folder = Path(sys.argv[1])
    deepspeed.init_distributed("gloo")
    for name, case in CASES.items():
        engine = trained(*case)
        engine.save_checkpoint(folder / name)
        if torch.distributed.get_rank() == 0:
            torch.save(get_fp32_state_dict_from_zero_checkpoint(folder / name), folder / f"{name}.pt")
        torch.distributed.barrier()
        engine.destroy()
    torch.distributed.destroy_process_group()


def trained(stage, is_bf16, options):
    """Return the engine after three steps."""
    torch.manual_seed(0)
    model = Model()
    groups = [
        {"params": [p for p in model.parameters() if p.requires_grad and p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.requires_grad and p.dim() < 2], "weight_decay": 0.0},
    ]
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0, **options},
        "bf16": {"enabled": is_bf16},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for _ in range(3):
        tokens = torch.randint(0, 11, (4,))
        engine.backward(nn.functional.cross_entropy(engine(tokens).float(), tokens.roll(1)))
        engine.step()
    return engine


if __name__ == "__main__":
    main()
