"""Carry out scaling studies: launch their runs one after another, and stop those that have made enough steps."""

from __future__ import annotations

import logging
from typing import Any

from dashboard.scaling.request import run_spec
from dashboard.service.service import Service
from db import acting
from db.exceptions import WrongState
from db.people.ownership import project_of
from db.runs.run_requests import StudyPoint
from db.scaling import studies
from db.scaling.studies import RunOfStudy, StudyView
from domain.people import roles
from domain.people.rights import Denied, Rights
from domain.requests.errors import InvalidRequest
from domain.scaling.measurement import SHORTEST_S, WARMUP_STEPS, StudyAction, StudyRun, next_action

log = logging.getLogger("rankzero")


class Conductor:
    """Carries out one dashboard's studies; everything it knows is in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def tick(self) -> None:
        """Take the next step of every study in progress; called once a second."""
        service = self._service
        if not service.leads():
            return
        for study in studies.studies(service.store, is_live=True):
            with acting.on_behalf(study.by, _via(study)):
                self._act(study, next_action(self._points(study), study.stop_requested_at is not None))

    def _points(self, study: StudyView) -> list[list[StudyRun] | None]:
        return [
            None if "problem" in point else [self._run(study, run, point) for run in study.runs_of(number)]
            for number, point in enumerate(study.points)
        ]

    def _run(self, study: StudyView, run: RunOfStudy, point: dict[str, Any]) -> StudyRun:
        steps = study.steps_of(point)
        enough = run.last_step >= WARMUP_STEPS + steps and run.stepped_s >= SHORTEST_S
        return StudyRun(
            run.run_id,
            run.state,
            run.is_stopping,
            has_enough=enough,
            figures=self._service.figures.of(run, steps),
        )

    def _act(self, study: StudyView, action: StudyAction) -> None:
        if action.kind == "launch":
            self._launch(study, action.number)
        elif action.kind == "stop":
            self._service.stop_launched(self._rights(study), project_of(study.spec), action.run_id)
        elif action.kind == "end":
            studies.end(self._service.store, study.id, self._service.clock())
            log.info("scaling study %s ended", study.id)

    def _launch(self, study: StudyView, number: int) -> None:
        """Launch a run of a point with the present rights of the person who began the study."""
        spec, rights = run_spec(study.spec, study.points[number]), self._rights(study)
        try:
            if rights.refusal(roles.Action.LAUNCH, project_of(spec)) is not None:
                raise Denied(f"{study.by} may no longer launch in this project.")
            with acting.acting(rights):
                self._service.launch(spec, part_of=StudyPoint(study.id, number))
        except (InvalidRequest, Denied) as error:
            studies.note_problem(self._service.store, study.id, number, str(error))
        except WrongState as error:
            log.info("scaling study %s: %s", study.id, error)

    def _rights(self, study: StudyView) -> Rights:
        """The present rights of the person who began the study."""
        return self._service.identities.acting_for(study.by, _via(study), study.only_project)


def _via(study: StudyView) -> str:
    return f"scaling study {study.id}"
