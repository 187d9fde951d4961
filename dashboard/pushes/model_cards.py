"""The model card of a checkpoint, with its curves as pictures."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from dashboard.alerts.outbox import POINTS, main_curve, png
from dashboard.service.service import Service
from dashboard.snapshots.origin import Origin
from db.attempts import attempt_queries
from db.checkpoints import checkpoint_queries, push_records
from db.checkpoints.push_records import OpenPush
from db.metrics import curves
from db.metrics.series_names import VALIDATION_LOSS
from domain.checkpoint_use.model_card import CardFacts, model_card
from domain.text.formats import count
from domain.views import CheckpointView, RunView


class PlacedCard(NamedTuple):
    """A card as its node places it, and the message of the commit that adds it."""

    files: dict[str, Any]
    """text, and pictures as base64 by their names."""
    title: str


def card_of(service: Service, push: OpenPush) -> PlacedCard:
    """Compose the card of what is pushed, as the run is now. Raises NoSuchRun."""
    run = service.run(push.run_id)
    views = {view.id: view for view in checkpoint_queries.checkpoints(service.store, run.id)}
    pushed = views[push.checkpoint_id]
    saved = views.get(pushed.merged_from or pushed.id, pushed)
    pictures = _pictures(service, run.id)
    text = model_card(_facts(service, run, pushed, saved, {name: curve for name, (curve, _) in pictures.items()}))
    encoded = {name: base64.b64encode(content).decode() for name, (_, content) in pictures.items()}
    what = f"step {count(saved.step)}" if saved.step is not None else "a checkpoint"
    return PlacedCard({"text": text, "pictures": encoded}, f"Add {what} of run {run.id}")


def _facts(
    service: Service, run: RunView, pushed: CheckpointView, saved: CheckpointView, pictures: dict[str, str]
) -> CardFacts:
    attempt = next(one for one in attempt_queries.attempts(service.store, run.id) if one.number == saved.attempt)
    merge = push_records.merge_result(service.store, pushed.id)
    public_url = service.settings.public_url
    interpreter = next((task.interpreter for task in attempt.tasks if task.interpreter), None)
    return CardFacts(
        run=run,
        checkpoint=saved,
        world_size=attempt.world_size,
        url=f"{public_url.rstrip('/')}/run?id={run.id}" if public_url else None,
        code=_code(service, run),
        interpreter=interpreter or {},
        data=push_records.staged_data(service.store, attempt.fence),
        merge=merge,
        pictures=pictures,
        loads_in_transformers=(merge or {}).get("format") == "hf",
    )


def _code(service: Service, run: RunView) -> str | None:
    """Branch and commit of the run's code, as far as they are known."""
    snapshot = service.snapshots.find(run.spec.snapshot) if run.spec.snapshot else None
    return Origin.model_validate(snapshot.origin).version if snapshot and snapshot.origin else None


def _pictures(service: Service, run_id: str) -> dict[str, tuple[str, bytes]]:
    """The training loss and the validation loss that were logged: (curve, PNG) by file name."""
    names = curves.series_names(service.store, run_id, "all")
    validation = next((name for name in VALIDATION_LOSS if name in names), None)
    chosen = {"training-loss.png": main_curve(names), "validation-loss.png": validation}
    drawn = curves.series(service.store, run_id, [name for name in chosen.values() if name], "all", max_points=POINTS)
    pictures = {
        file: (name, png(name, drawn[name].points))
        for file, name in chosen.items()
        if name is not None and name in drawn
    }
    return {file: (name, picture) for file, (name, picture) in pictures.items() if picture is not None}
