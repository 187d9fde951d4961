"""Carry out studies: ask the plan of each what comes next, and do it with the present rights of its person."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from dashboard.service.service import Service
from dashboard.studies import scaling_points, sweep_trials
from db import acting
from db.budgets import charges
from db.exceptions import WrongState
from db.people.ownership import project_of
from db.runs.run_requests import NewTrial
from db.studies import studies, trials
from db.studies.studies import AnyPlan, StudyView
from domain.people.rights import Denied, Rights
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest, NoSuchReference
from domain.scaling.plan import ScalingPlan
from domain.spec import RunSpec
from domain.studies import StudyAction
from domain.sweeps import SweepPlan


class Steps(NamedTuple):
    """What differs between the kinds of studies."""

    next_actions: Callable[[Service, StudyView[Any]], list[StudyAction]]
    new_params: Callable[[StudyView[Any], int], dict[str, Any]]
    """Returns the parameters of a trial that an action launches by this number."""
    spec: Callable[[StudyView[Any], dict[str, Any]], RunSpec]
    """Returns the spec of a trial. Raises InvalidRequest, ValidationError."""


STEPS_OF: dict[type[AnyPlan], Steps] = {
    SweepPlan: Steps(sweep_trials.next_actions, sweep_trials.new_params, sweep_trials.spec),
    ScalingPlan: Steps(scaling_points.next_actions, scaling_points.new_params, scaling_points.spec),
}


class StudyConductor:
    """Carries out one dashboard's studies; everything it knows is in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def tick(self) -> None:
        """Take the next step of every study in progress; called once a second."""
        if not self._service.leads():
            return
        for study in studies.live(self._service.store):
            with acting.on_behalf(study.by, study.title):
                self._conduct(self._permitted(study))

    def _conduct(self, study: StudyView[Any]) -> None:
        for action in STEPS_OF[type(study.plan)].next_actions(self._service, study):
            if action.kind == "launch":
                self._launch(study, action.number)
            elif action.kind == "stop":
                self._stop(study, action)
            elif action.kind == "end":
                studies.end(self._service.store, study.id, self._service.clock(), action.message)
                log.info("%s ended", study.title)
            else:
                sweep_trials.carry_out(self._service, study, action, self._rights(study))

    def _permitted(self, study: StudyView[Any]) -> StudyView[Any]:
        """Return the study, asked to end if the person who began it may no longer launch."""
        refusal = self._rights(study).refusal(Action.LAUNCH, project_of(study.spec))
        if refusal is None or study.stop_requested_at is not None:
            return study
        return self._refused(study, f"{study.by} may no longer launch in this project.")

    def _refused(self, study: StudyView[Any], why: str) -> StudyView[Any]:
        """Return the study, asked to end because its person was refused."""
        now = self._service.clock()
        studies.request_stop(self._service.store, study.id, now, f"Ended: {why}")
        return replace(study, stop_requested_at=now)

    def _launch(self, study: StudyView[Any], number: int) -> None:
        steps = STEPS_OF[type(study.plan)]
        trial = NewTrial(study.id, len(study.all_trials), steps.new_params(study, number))
        try:
            with acting.acting(self._rights(study)):
                spec = steps.spec(study, trial.params)
                if not charges.must_wait(self._service.store, study.token_id, spec, self._service.clock()):
                    self._service.launch(spec, part_of=trial)
        except (Denied, NoSuchReference) as refusal:
            self._refused(study, str(refusal))
        except (InvalidRequest, ValidationError) as error:
            trials.add_unlaunched(self._service.store, trial, f"It could not be launched: {error}")
        except WrongState as error:
            log.info("%s: %s", study.title, error)

    def _stop(self, study: StudyView[Any], action: StudyAction) -> None:
        trial = study.trials[action.number]
        rights, project, why = self._rights(study), project_of(study.spec), action.message or trial.message
        self._service.stop_launched(rights, project, trial.run_id or "", why)

    def _rights(self, study: StudyView[Any]) -> Rights:
        """The present rights of the person who began the study, with which its trials are launched."""
        return self._service.identities.acting_for(study.by, study.title, study.only_project, study.token_id)


log = logging.getLogger("rankzero")
