"""Lightning: the same module and data under any of its strategies.

Lightning refuses fsdp and deepspeed without a GPU: "The strategy `fsdp` requires a GPU accelerator, but
received `accelerator='cpu'`", "The DeepSpeed strategy is only supported on CUDA GPUs".

By hand:        torchrun --standalone --nproc-per-node 2 examples/lightning_trainer.py --strategy ddp
                python examples/lightning_trainer.py --strategy ddp_spawn --devices 2
With Rankzero:  rankzero launch examples/lightning_trainer.py --gpus-per-node 2 -- --strategy ddp
                rankzero launch examples/lightning_trainer.py --launcher python --gpus-per-node 2 \
                    -- --strategy ddp_spawn --devices 2
"""

import argparse

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.layers(inputs), targets)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        logits = self.layers(inputs)
        self.log("val_loss", nn.functional.cross_entropy(logits, targets), sync_dist=True)
        self.log("val_acc", (logits.argmax(1) == targets).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="ddp", choices=["ddp", "ddp_spawn", "fsdp", "deepspeed"])
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--max-epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per device")
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    L.seed_everything(0)
    train_set, validation_set = three_clouds(4096)
    trainer = L.Trainer(
        accelerator="auto",
        devices=args.devices,
        strategy=args.strategy,
        max_epochs=args.max_epochs,
        log_every_n_steps=10,
        callbacks=[ModelCheckpoint(filename="{epoch}-{step}", save_top_k=2, monitor="val_loss")],
        enable_progress_bar=False,
    )
    trainer.fit(
        Classifier(args.lr),
        DataLoader(train_set, batch_size=args.batch_size, shuffle=True),
        DataLoader(validation_set, batch_size=args.batch_size),
    )


def three_clouds(count):
    """Points around three centres, and which one each belongs to: for training and for validation."""
    centres, targets = torch.randn(3, 16), torch.randint(3, (count,))
    points = centres[targets] + torch.randn(count, 16)
    held_out = count // 8
    return TensorDataset(points[held_out:], targets[held_out:]), TensorDataset(points[:held_out], targets[:held_out])


if __name__ == "__main__":
    main()
