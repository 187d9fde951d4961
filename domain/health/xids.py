"""Xids, the errors of NVIDIA's driver, by whose fault they are. Pure."""

from __future__ import annotations

HARDWARE = {
    48: "uncorrectable memory error",
    62: "internal micro-controller halted",
    64: "memory row could not be remapped",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained memory error",
    110: "security fault",
    119: "its system processor does not answer",
    120: "error of its system processor",
    136: "NVLink training failed",
    140: "unrecovered memory error",
    143: "initialisation failed",
}
"""NVIDIA's catalogue asks for a reset, a restart or a replacement."""
PROGRAM = {
    13: "exception of a kernel",
    31: "memory page fault",
    43: "a channel was reset",
    45: "a channel was cleaned up",
    68: "exception of the video processor",
    109: "a context switch timed out",
}
"""The program's own errors; the hardware is well."""
CONTAINED = {
    63: "a memory row needs remapping",
    92: "many single-bit errors",
    94: "contained memory error",
}
"""Errors that the hardware handled."""


def is_hardware(xid: int) -> bool:
    """Whether the hardware is at fault and will not recover on its own."""
    return xid in HARDWARE


def in_words(xid: int) -> str:
    """Xid 79 (fallen off the bus)"""
    words = (HARDWARE | PROGRAM | CONTAINED).get(xid)
    return f"Xid {xid} ({words})" if words else f"Xid {xid}"
