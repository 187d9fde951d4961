"""Two image classifiers for small pictures: a plain CNN, and a ResNet-18 with the CIFAR stem."""

import torch
from torch import nn


def make_norm(kind: str, channels: int) -> nn.Module:
    """GroupNorm looks at one picture at a time, BatchNorm at each rank's own batch."""
    return nn.GroupNorm(min(8, channels), channels) if kind == "group" else nn.BatchNorm2d(channels)


def make_model(name: str, norm: str, channels: int, classes: int) -> "SmallCNN | ResNet18":
    """A model for pictures of `channels` colours; any height and width from 8 on."""
    return SmallCNN(norm, channels, classes) if name == "cnn" else ResNet18(norm, channels, classes)


class SmallCNN(nn.Module):
    """Three convolutions, each halving or keeping the picture, then one linear layer."""

    def __init__(self, norm: str, channels: int, classes: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            [
                _convolution(norm, channels, 32, 1),
                _convolution(norm, 32, 64, 2),
                _convolution(norm, 64, 128, 2),
            ]
        )
        self.head = nn.Linear(128, classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) -> logits (batch, classes)."""
        for stage in self.stages:
            pictures = stage(pictures)
        logits: torch.Tensor = self.head(pictures.mean((2, 3)))
        return logits


class ResNet18(nn.Module):
    """He et al. 2015 (arXiv 1512.03385): 18 layers, with a 3 x 3 stem and no pooling for small pictures."""

    def __init__(self, norm: str, channels: int, classes: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList([_convolution(norm, channels, 64, 1)])
        inside = 64
        for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            stage = nn.Sequential(
                ResidualBlock(norm, inside, outside, stride), ResidualBlock(norm, outside, outside, 1)
            )
            self.stages.append(stage)
            inside = outside
        self.head = nn.Linear(inside, classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) -> logits (batch, classes)."""
        for stage in self.stages:
            pictures = stage(pictures)
        logits: torch.Tensor = self.head(pictures.mean((2, 3)))
        return logits


class ResidualBlock(nn.Module):
    """Two convolutions added to what came in, which is projected when its shape changes."""

    def __init__(self, norm: str, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(norm, inside, outside, stride)
        self.second = nn.Sequential(
            nn.Conv2d(outside, outside, 3, padding=1, bias=False), make_norm(norm, outside)
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            projection = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, make_norm(norm, outside))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """(batch, inside, h, w) -> (batch, outside, h / stride, w / stride)."""
        return torch.relu(self.second(self.first(pictures)) + self.shortcut(pictures))


def _convolution(norm: str, inside: int, outside: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
    return nn.Sequential(convolution, make_norm(norm, outside), nn.ReLU())
