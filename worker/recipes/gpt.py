"""A small GPT over bytes: no tokenizer, 256 symbols, pre-norm blocks as in GPT-2."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

BYTES = 256


@dataclass(frozen=True)
class GPTShape:
    """`context` in bytes; `width` must divide by `heads`."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 128
    dropout: float = 0.0


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, shape: GPTShape) -> None:
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.project = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(batch, time, width) -> the same shape."""
        batch, time, width = inputs.shape
        parts = self.query_key_value(inputs).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, width / heads)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        projected: torch.Tensor = self.project(mixed.transpose(1, 2).reshape(batch, time, width))
        return projected


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each added to what came in."""

    def __init__(self, shape: GPTShape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.mlp_norm = nn.LayerNorm(shape.width)
        self.mlp = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(batch, time, width) -> the same shape."""
        inputs = inputs + self.dropout(self.attention(self.attention_norm(inputs)))
        outputs: torch.Tensor = inputs + self.dropout(self.mlp(self.mlp_norm(inputs)))
        return outputs


class GPT(nn.Module):
    """Predicts each next byte from up to `context` bytes before it."""

    def __init__(self, shape: GPTShape) -> None:
        super().__init__()
        self.shape = shape
        self.byte_embedding = nn.Embedding(BYTES, shape.width)
        self.position_embedding = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        # Not tied to the embedding: with 256 symbols that would save next to nothing.
        self.head = nn.Linear(shape.width, BYTES, bias=False)
        self.apply(_initialise)
        self._shrink_residual_projections()

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        """Bytes as integers (batch, time) -> logits (batch, time, 256)."""
        positions = torch.arange(symbols.shape[1], device=symbols.device)
        hidden = self.byte_embedding(symbols) + self.position_embedding(positions)
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits

    def _shrink_residual_projections(self) -> None:
        """GPT-2 (Radford et al. 2019, section 2.3): what adds to the residual starts smaller."""
        for name, parameter in self.named_parameters():
            if name.endswith(("project.weight", "mlp.2.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.shape.layers))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
