"""Mask the values of secrets in packed traces, each completely before it is sent."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path

from domain.masking.values import ValueMask
from worker.node.regular_files import open_emptied, open_regular
from worker.streams.masked_files import BLOCK_BYTES

log = logging.getLogger(__name__)


def is_trace_masked(trace: Path, mask: ValueMask) -> bool:
    """Mask a packed trace in place, once; False where it cannot be read, and nothing of it may be sent."""
    marker = trace.with_name(f"{trace.name}.masked")
    if not mask or marker.exists():
        return True
    try:
        _mask_trace(trace, mask)
        marker.touch()
    except (OSError, EOFError, zlib.error) as error:
        log.warning("%s cannot be masked and is not sent: %s", trace, error)
        return False
    return True


def _mask_trace(trace: Path, mask: ValueMask) -> None:
    with open_regular(trace) as source, gzip.open(source) as unpacked:
        if all(mask.content(window) is window for window in _windows(unpacked, mask.longest)):
            return
        unpacked.rewind()
        masked = trace.with_name(f"{trace.name}.masking")
        with open_emptied(masked) as target, gzip.open(target, "wb", compresslevel=1) as packed:
            for piece in _masked_pieces(unpacked, mask):
                packed.write(piece)
    masked.replace(trace)


def _windows(file: gzip.GzipFile, margin: int) -> Iterator[bytes]:
    """Yield the file in pieces that overlap by `margin` bytes."""
    before = b""
    while piece := file.read(BLOCK_BYTES):
        yield before + piece
        before = (before + piece)[-margin:]


def _masked_pieces(file: gzip.GzipFile, mask: ValueMask) -> Iterator[bytes]:
    waiting = b""
    while piece := file.read(BLOCK_BYTES):
        masked = mask.content(waiting + piece)
        at = len(masked) - mask.open_end(waiting + piece)
        yield masked[:at]
        waiting = (waiting + piece)[at:]
    yield mask.content(waiting)
