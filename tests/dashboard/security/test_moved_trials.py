"""A trial whose run was moved to a private project: its sweep counts it as hidden, and shows nothing of it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from cli import main
from db.models import Study, new_id
from db.runs import run_requests
from db.runs.run_requests import NewTrial, submit
from db.studies import trials
from db.studies.trials import Result
from domain.sweeps import SweepPlan
from tests.dashboard.running import Running
from tests.dashboard.security.lab import OPEN, PEOPLE, SECRET, Lab

RATES, LOSSES = (0.11, 0.22, 0.33), (0.875, 0.4375, 0.625)
MOVED = 1
"""The best one, which would be named as such."""
PLAN = SweepPlan.model_validate({"parameters": {"lr": {"values": list(RATES)}}, "metric": "loss"})
OUTSIDERS = ["another member", "base admin", "viewer", "token for the open project"]
INSIDERS = ["owner", "member, whose the objects are", "admin of the private project", "viewer of the private project"]
SENTENCE = "1 trial is hidden: its run is in a project that you do not see."


class Swept(NamedTuple):
    """An ended sweep of three trials, one of which was moved."""

    lab: Lab
    id: str
    runs: list[str]

    def ask(self, who: str, address: str) -> Any:
        """What the API answers a person about it."""
        answer = self.lab.dashboard.http.get(address.format(id=self.id), headers=self.lab.headers(PEOPLE[who]))
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def swept(dashboard: Running, monkeypatch: pytest.MonkeyPatch) -> Swept:
    lab = Lab(dashboard)
    monkeypatch.setattr(run_requests, "_check_goes_on", lambda session, part_of: None)  # its trials come after its end
    sweep_id, now, plan = new_id(), lab.service.clock(), PLAN.model_dump(mode="json")
    both = {"spec": lab.spec(OPEN).model_dump(mode="json"), "by": lab.things[0].by}
    with lab.service.store.write() as session:  # ended at once: otherwise the dashboard might launch its trials
        session.add(Study(id=sweep_id, kind=PLAN.kind, plan=plan, created_at=now, ended_at=now, **both))
    with lab.acting(lab.things[0]):
        runs = [_trial(lab, NewTrial(sweep_id, number, {"lr": rate})) for number, rate in enumerate(RATES)]
    moved = dashboard.http.patch(f"/api/runs/{runs[MOVED]}", json={"project": SECRET})
    assert moved.status_code == 200, moved.text
    return Swept(lab, sweep_id, runs)


def _trial(lab: Lab, trial: NewTrial) -> str:
    run_id = submit(lab.service.store, lab.spec(OPEN), lab.service.clock(), part_of=trial)
    result = Result("succeeded", LOSSES[trial.number], None, 0.5)
    trials.settle(lab.service.store, trial.study_id, trial.number, result)
    return run_id


@pytest.mark.parametrize("address", ["/api/sweeps/{id}", "/api/sweeps/{id}/curves", "/api/sweeps"])
@pytest.mark.parametrize("who", OUTSIDERS)
def test_outsiders_get_a_number_and_nothing_else_of_it(swept: Swept, who: str, address: str) -> None:
    answer = swept.ask(who, address)
    shown = next(one for one in answer if one["id"] == swept.id) if isinstance(answer, list) else answer
    assert [one["run"] for one in shown["trials"]] == [swept.runs[0], swept.runs[2]]
    assert (shown["hidden"], shown["best"]["number"], shown["state"]) == (1, 2, "succeeded")
    assert shown["device_hours"] == 1.5, "what was used counts towards the limit, whoever looks"
    for mark in (swept.runs[MOVED], str(LOSSES[MOVED]), str(RATES[MOVED])):
        assert mark not in json.dumps(answer)
    if "curves" in shown:
        assert len(shown["curves"]) == 2


@pytest.mark.parametrize("who", INSIDERS)
def test_insiders_see_it_as_before(swept: Swept, who: str) -> None:
    shown = swept.ask(who, "/api/sweeps/{id}/curves")
    assert [one["run"] for one in shown["trials"]] == swept.runs and len(shown["curves"]) == 3
    assert (shown["hidden"], shown["best"]["run"]) == (0, swept.runs[MOVED])


def test_the_command_line_counts_it(swept: Swept, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("RANKZERO_URL", swept.lab.dashboard.url)
    bearer = swept.lab.headers(PEOPLE["viewer"])["Authorization"]
    monkeypatch.setenv("RANKZERO_TOKEN", bearer.removeprefix("Bearer "))
    assert main.run(["sweep", "show", swept.id]) == 0
    shown = capfd.readouterr().out
    assert "succeeded, 3 of 3 trials" in shown and SENTENCE in shown
    assert f"Best: loss 0.625 with lr=0.33, run {swept.runs[2]}." in shown
    assert swept.runs[MOVED] not in shown and "0.4375" not in shown
    assert main.run(["sweep", "show", swept.id, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == swept.ask("viewer", "/api/sweeps/{id}")


def test_a_sweep_whose_only_result_is_hidden_has_succeeded_all_the_same(swept: Swept) -> None:
    for run_id in (swept.runs[0], swept.runs[2]):
        assert swept.lab.dashboard.http.patch(f"/api/runs/{run_id}", json={"project": SECRET}).status_code == 200
    shown = swept.ask("viewer", "/api/sweeps/{id}/curves")
    assert (shown["trials"], shown["curves"], shown["hidden"]) == ([], [], 3)
    assert (shown["state"], shown["best"]) == ("succeeded", None)
