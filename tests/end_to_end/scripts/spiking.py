"""Gradient descent whose curvature grows in the middle: with a rate above 2/30 the loss then grows without end."""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

HARDER_AT = 130
"""Step from which the loss is steeper."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--resume", default="")
    parser.add_argument("--stop-file", type=Path, required=True)
    args = parser.parse_args()
    first, weight = torch.load(args.resume, weights_only=True).values() if args.resume else (0, torch.tensor(3.0))
    weight = weight.double().requires_grad_()
    with SummaryWriter("runs") as writer:
        for step in range(first, args.steps):
            target = random.Random(step).gauss(0.0, 0.1)
            loss = 1.0 + 0.5 * (30.0 if step >= HARDER_AT else 1.0) * (weight - target) ** 2
            (gradient,) = torch.autograd.grad(loss, weight)
            with torch.no_grad():
                weight -= args.lr * gradient
            writer.add_scalar("train/loss", loss.item(), step)
            if step % 20 == 0 and step:
                torch.save({"step": step + 1, "weight": weight.detach()}, f"step_{step}.pt")
            if args.stop_file.exists():
                break
            time.sleep(0.05)


if __name__ == "__main__":
    main()
