"""Hold some of a GPU's memory until standard input ends: holder.py BYTES."""

import sys

import torch

held = torch.zeros(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("holding", flush=True)
sys.stdin.read()
