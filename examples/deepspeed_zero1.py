"""DeepSpeed ZeRO-1: optimizer states divided over the ranks; TensorBoard through its own monitor.

On a CPU it compiles a C++ extension first, so it needs a compiler, ninja and a minute. A build that was killed
leaves a lock behind that hangs all later ones: give the run a place of its own with TORCH_EXTENSIONS_DIR.

By hand:        TORCH_EXTENSIONS_DIR=/tmp/extensions torchrun --standalone --nproc-per-node 2 \
                    examples/deepspeed_zero1.py
With Rankzero:  rankzero launch examples/deepspeed_zero1.py --gpus-per-node 2 \
                    --env TORCH_EXTENSIONS_DIR=/tmp/extensions
"""

import argparse

import deepspeed
import torch
from torch import nn
from torch.utils.data import TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=16, help="per GPU")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--save-every", type=int, default=30)
    args = parser.parse_args()

    deepspeed.init_distributed()
    torch.manual_seed(0)
    inputs = torch.randn(4096, 16)
    data = TensorDataset(inputs, inputs[:, :4].argmax(1))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    config = {
        "train_micro_batch_size_per_gpu": args.batch_size,
        "zero_optimization": {"stage": 1},
        "tensorboard": {"enabled": True, "output_path": "tensorboard", "job_name": "zero1"},
        "steps_per_print": 10,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    engine, _, loader, _ = deepspeed.initialize(model=model, optimizer=optimizer, training_data=data, config=config)

    for step, (batch, targets) in zip(range(1, args.steps + 1), loader, strict=False):
        logits = engine(batch.to(engine.device))
        loss = nn.functional.cross_entropy(logits, targets.to(engine.device))
        engine.backward(loss)
        engine.step()
        if torch.distributed.get_rank() == 0:  # on DeepSpeed's own axis, which counts samples
            engine.monitor.write_events([("Train/loss", loss.item(), engine.global_samples)])
        if step % args.save_every == 0:
            engine.save_checkpoint("checkpoints")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
