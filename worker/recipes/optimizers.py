"""Optimizer, gradient scaler and gradient norm."""

import torch
from torch import nn

from settings import Settings

AUTOCAST_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW or SGD; biases and norm gains (fewer than two dimensions) are not decayed."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.95))


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Matrix products in `precision`; weights and their gradients stay fp32 under every strategy."""
    return torch.autocast(device.type, AUTOCAST_TYPES[precision], enabled=precision != "fp32")


def make_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Scales the loss so that small fp16 gradients do not vanish; does nothing in other precisions."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def clip_gradients(model: nn.Module, max_norm: float) -> torch.Tensor:
    """The gradients' norm over all parameters and shards before clipping; 0 as `max_norm` only measures."""
    limit = max_norm if max_norm > 0 else float("inf")
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    # Under FSDP each rank holds a part of the norm.
    whole: torch.Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return whole
