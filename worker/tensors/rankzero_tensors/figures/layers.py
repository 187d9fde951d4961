"""The layer that a tensor belongs to, by its name alone. Pure."""

from __future__ import annotations


def layer_of(name: str) -> str:
    """Return the name up to its layer's number, or without its last part where it has none.

    model.layers.3.self_attn.q_proj.weight -> model.layers.3; lm_head.weight -> lm_head; 0.weight -> 0.

    A number that begins the name counts only where no other follows: it is the place in a Sequential that wraps the
    whole model, as in 0.auto_model.encoder.layer.3.output.dense.weight. The last part is never a layer: params.0 is the
    first entry of params.
    """
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts[:-1]) if part.isdecimal()]
    inner = [place for place in numbers if place > 0]
    if numbers:
        return ".".join(parts[: (inner or numbers)[0] + 1])
    return ".".join(parts[:-1]) or name
