"""The ends and settings of MLflow's runs, as both of its stores have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

End = tuple[Literal["succeeded", "failed", "stopped"], str | None]
NO_END: End = ("failed", "MLflow has no end of this run: it was killed, or it still runs.")
ENDS: Mapping[str, End] = {
    "FINISHED": ("succeeded", None),
    "FAILED": ("failed", "MLflow recorded that it failed."),
    "KILLED": ("stopped", "MLflow recorded that it was killed."),
}
"""By the status in the database; others have not ended."""
END_OF_NUMBER: Mapping[int, End] = {1: NO_END, 3: ENDS["FINISHED"], 4: ENDS["FAILED"], 5: ENDS["KILLED"]}
"""By the status in files."""


def settings(params: Mapping[str, str], tags: Mapping[str, str], experiment: str) -> dict[str, Any]:
    """Return what the Spec tab shows: parameters, and the tags that MLflow did not set itself."""
    own = [f"{name}={value}" for name, value in tags.items() if not name.startswith("mlflow.")]
    shown = {"config": dict(params), "tags": own, "project": experiment}
    return {name: value for name, value in shown.items() if value}
