"""Estimates of a training's arithmetic: TFLOP/s and the share of what its devices can do (MFU). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from domain.text.formats import number

PARAMETERS = "model/parameters"
TOKENS = "tokens_per_s"
FLOP_PER_PARAMETER_AND_TOKEN = 6
"""Forward 2, backward 4; attention over long contexts comes on top (Kaplan et al. 2020, arXiv:2001.08361, 2.1)."""
PEAK_TFLOP_PER_S = {
    "B200": 2250.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "RTX 4090": 165.2,
    "RTX 3090": 71.0,
}
"""Dense bfloat16 with float32 sums, from NVIDIA's data sheets; the first name that the device's name contains."""


@dataclass(frozen=True)
class Arithmetic:
    """What an estimate is counted from."""

    parameters: float
    tokens_per_s: float
    """Of all ranks."""
    ranks: int
    device: str
    """Its name; empty on CPUs."""

    @property
    def tflop_per_s(self) -> float:
        """Estimated TFLOP/s of each rank."""
        return FLOP_PER_PARAMETER_AND_TOKEN * self.parameters * self.tokens_per_s / self.ranks / 1e12

    @property
    def peak_tflop_per_s(self) -> float | None:
        """The device's peak in bfloat16; None where it is unknown."""
        words = self.device.replace("-", " ").split()
        return next(
            (peak for name, peak in PEAK_TFLOP_PER_S.items() if set(name.split()) <= set(words)), None
        )


def sentence(arithmetic: Arithmetic) -> str:
    """Return the estimates, and how they were counted."""
    counted = (
        f"{FLOP_PER_PARAMETER_AND_TOKEN} x {number(arithmetic.parameters)} parameters x "
        f"{number(arithmetic.tokens_per_s)} tokens/s / {arithmetic.ranks}"
    )
    estimate = f"About {number(arithmetic.tflop_per_s)} TFLOP/s for each rank, an estimate ({counted})"
    peak = arithmetic.peak_tflop_per_s
    if peak is None:
        return f"{estimate}."
    share = arithmetic.tflop_per_s / peak
    return f"{estimate}: {share:.0%} of the {peak:g} that {arithmetic.device} can do in bfloat16 (MFU)."
