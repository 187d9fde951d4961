"""Hugging Face Accelerate: an own loop, its TensorBoard tracker, its save_state and save_model.

By hand:        accelerate launch --num_processes 2 examples/accelerate_loop.py
                ACCELERATE_USE_CPU=1 torchrun --standalone --nproc-per-node 2 examples/accelerate_loop.py
With Rankzero:  rankzero launch examples/accelerate_loop.py --gpus-per-node 2
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--resume", default="", help="a folder of save_state")
    args = parser.parse_args()

    accelerator = Accelerator(log_with="tensorboard", project_dir="output")
    accelerator.init_trackers("regression", config={"lr": args.lr, "batch_size": args.batch_size})
    set_seed(0)
    inputs = torch.randn(2048, 8)
    data = TensorDataset(inputs, inputs.prod(1, keepdim=True).tanh())
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, args.epochs * len(loader))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    if args.resume:
        accelerator.load_state(args.resume)

    step = 0
    for epoch in range(args.epochs):
        for batch, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(batch), targets)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            step += 1
            if step % 5 == 0:
                mean = accelerator.reduce(loss.detach(), "mean").item()
                accelerator.log({"train/loss": mean, "train/lr": schedule.get_last_lr()[0]}, step=step)
        accelerator.save_state(f"output/epoch_{epoch + 1}")
        accelerator.print(f"epoch {epoch + 1} loss {mean:.4f}")
    accelerator.wait_for_everyone()
    accelerator.save_model(model, "output/model")
    accelerator.end_training()


if __name__ == "__main__":
    main()
