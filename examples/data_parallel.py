"""nn.DataParallel: one process that divides each batch over the GPUs it sees (on a CPU it trains alone).

By hand:        python examples/data_parallel.py
With Rankzero:  rankzero launch examples/data_parallel.py --strategy dp --gpus-per-node 2
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="over all GPUs together")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    train_set, test_set = circle_or_not(2048), circle_or_not(512)
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    model = nn.DataParallel(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    with SummaryWriter("tensorboard") as writer:
        step = 0
        for epoch in range(1, args.epochs + 1):
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                writer.add_scalar("Loss/train", loss.item(), step)
            accuracy = evaluate(model, test_set, device)
            writer.add_scalar("Accuracy/test", accuracy, epoch)
            print(f"Epoch {epoch}/{args.epochs} loss: {loss.item():.4f} accuracy: {accuracy:.3f}")
            torch.save(model.state_dict(), "model.pt")  # over the one before, in place


@torch.no_grad()
def evaluate(model, data, device):
    inputs, targets = (tensor.to(device) for tensor in data.tensors)
    return (model(inputs).argmax(1) == targets).float().mean().item()


def circle_or_not(count):
    """Points in a square, and whether each lies in the circle of half its area."""
    points = 2 * torch.rand(count, 2) - 1
    return TensorDataset(points, (points.square().sum(1) < 2 / torch.pi).long())


if __name__ == "__main__":
    main()
