"""The layer of a tensor, by its name."""

from __future__ import annotations

import pytest

from worker.tensors.rankzero_tensors.figures.layers import layer_of


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("model.layers.3.self_attn.q_proj.weight", "model.layers.3"),
        ("model.layers.3.mlp.experts.17.w1.weight", "model.layers.3"),
        ("transformer.h.11.ln_1.bias", "transformer.h.11"),
        ("layer1.0.conv1.weight", "layer1.0"),
        ("down_blocks.2.resnets.1.conv1.weight", "down_blocks.2"),
        ("0.auto_model.encoder.layer.3.output.dense.weight", "0.auto_model.encoder.layer.3"),
        ("0.weight", "0"),
        ("lm_head.weight", "lm_head"),
        ("model.embed_tokens.weight", "model.embed_tokens"),
        ("params.0", "params"),
        ("weight", "weight"),
        ("", ""),
        ("a..b", "a."),
        ("layers.³.w", "layers.³"),
    ],
)
def test_layer_of(name: str, layer: str) -> None:
    assert layer_of(name) == layer
