"""What the script told its loggers about the run: hyperparameters, tags, and that one of them is offline."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.components.browser import run_changes
from dashboard.logs.logged_settings import Settings, flat, logged_settings
from dashboard.service import service
from dashboard.views.layout import style
from dashboard.views.layout.tables import table
from domain.text.formats import as_text
from domain.views import RunView

TITLES = {
    "wandb": "W&B", "mlflow": "MLflow", "trackio": "trackio", "swanlab": "SwanLab", "comet": "Comet",
    "clearml": "ClearML", "csv": "Lightning's CSVLogger", "tensorboard": "TensorBoard", "neptune": "Neptune",
}  # fmt: skip
OFFLINE = "W&B is offline here: {reason}. Its files stay in the run's directory; `wandb sync` uploads them."


@st.fragment
@style.quiet_without_store
def offline_note(run: RunView) -> None:
    """Say that W&B was set to offline, and why."""
    run = service.current().find_run(run.id) or run
    if reason := _settings(run).get("wandb", {}).get("offline_because"):
        st.caption(OFFLINE.format(reason=as_text(str(reason))))
    run_changes(run, "offline_changes", ("history",), shown=("state", "has_step"))


def logged(run: RunView) -> None:
    """Show each logger's hyperparameters, tags and summary in the latest attempt."""
    for name, settings in sorted(_settings(run).items()):
        rows = flat(settings.get("config")) + flat(settings.get("summary") or {}, "summary.")
        tags = ", ".join(map(str, settings.get("tags") or ()))
        rows += [("tags", tags)] if tags else []
        if rows:
            st.markdown(f"**Logged with {as_text(TITLES.get(name, name))}**{_place(settings)}")
            table(f"logged_{name}", ("Hyperparameter", "Value"), rows)


def _place(settings: dict[str, Any]) -> str:
    """Return the project and name of the logger's run, where it has them."""
    words = [str(settings[key]) for key in ("project", "name", "mode") if settings.get(key)]
    return "".join(f" · {as_text(word)}" for word in words)


def _settings(run: RunView) -> Settings:
    return logged_settings(service.current(), run.id, run.attempt)
