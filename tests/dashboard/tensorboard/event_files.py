"""The name of an event file."""

from __future__ import annotations

EVENT = "events.out.tfevents.1760000000.n0.1.0"
