"""Hugging Face Trainer: a tiny GPT-2 made from its configuration learns to count; nothing is downloaded.

Without a GPU it needs ACCELERATE_USE_CPU=1, else each rank trains alone; Rankzero sets it.

By hand:        torchrun --standalone --nproc-per-node 2 examples/hf_trainer.py
With Rankzero:  rankzero launch examples/hf_trainer.py --gpus-per-node 2
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

WORDS, LENGTH = 32, 24


class Counting(Dataset):
    """Sequences that count up from somewhere, modulo the number of words."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        ids = (torch.arange(LENGTH) + index) % WORDS
        return {"input_ids": ids, "labels": ids}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=8, help="per device")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--resume", default=None, help="a checkpoint-N folder")
    args = parser.parse_args()

    set_seed(0)
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir="output",
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size,
            learning_rate=args.lr,
            logging_steps=5,
            eval_strategy="steps",
            eval_steps=30,
            save_steps=30,
            report_to="tensorboard",
            disable_tqdm=True,
        ),
        train_dataset=Counting(2048),
        eval_dataset=Counting(64),
    )
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model("output/final")


if __name__ == "__main__":
    main()
