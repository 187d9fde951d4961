"""Findings: the complete list every time, told once in the history."""

from __future__ import annotations

import pytest

from db.exceptions import NotOwner, Superseded
from db.findings.findings import findings, findings_reported
from db.runs import run_queries
from domain.messages import Finding
from domain.series import divergence
from domain.series.divergence import Divergence
from tests.db.attempts.offers import store_checkpoint

NAN = Finding(kind="loss is not a number", evidence="train/loss is NaN since step 7")
HUNG = Finding(kind="hung", evidence="No rank has made a step for 61 s.", meaning="m", fix="stop it")


@pytest.fixture
def running(cluster):
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    return cluster, run_id, assignment.fence


def say(cluster, fence, *findings_said: Finding, node_rank: int = 0):
    return findings_reported(cluster.store, cluster.node_id, fence, node_rank, list(findings_said), cluster.now)


def history(cluster, run_id) -> list[str]:
    return [line.text for line in run_queries.history(cluster.store, run_id)]


def test_a_finding_is_kept_with_its_attempt_and_told_in_the_history(running):
    cluster, run_id, fence = running
    assert say(cluster, fence, HUNG) == run_id
    (finding,) = findings(cluster.store, run_id)
    assert (finding.attempt, finding.kind, finding.fix, finding.gone_at) == (1, "hung", "stop it", None)
    assert "hung: No rank has made a step for 61 s." in history(cluster, run_id)


def test_saying_the_same_again_changes_nothing(running):
    cluster, run_id, fence = running
    say(cluster, fence, HUNG, NAN)
    before = history(cluster, run_id)
    assert say(cluster, fence, HUNG, NAN) is None
    assert history(cluster, run_id) == before


def test_newer_evidence_replaces_the_old_without_another_line_in_the_history(running):
    cluster, run_id, fence = running
    say(cluster, fence, HUNG)
    before = history(cluster, run_id)
    assert say(cluster, fence, HUNG.model_copy(update={"evidence": "for 90 s"})) == run_id
    assert findings(cluster.store, run_id)[0].evidence == "for 90 s"
    assert history(cluster, run_id) == before


def test_finding_missing_from_the_list_ends_and_may_come_back(running):
    cluster, run_id, fence = running
    say(cluster, fence, HUNG)
    cluster.now = 200.0
    assert say(cluster, fence) == run_id
    assert findings(cluster.store, run_id)[0].gone_at == 200.0
    assert "no longer applies: hung" in history(cluster, run_id)
    assert say(cluster, fence) is None
    say(cluster, fence, HUNG)
    assert findings(cluster.store, run_id)[0].gone_at is None


def test_only_the_node_that_has_the_part_may_speak_of_it(running):
    cluster, _, fence = running
    with pytest.raises(NotOwner):
        findings_reported(cluster.store, "another", fence, 0, [], 1.0)
    with pytest.raises(Superseded):
        say(cluster, fence, node_rank=5)


def test_findings_can_be_asked_of_one_attempt(running):
    cluster, run_id, fence = running
    say(cluster, fence, NAN)
    assert len(findings(cluster.store, run_id, attempt=1)) == 1
    assert findings(cluster.store, run_id, attempt=2) == []


def test_a_loss_that_diverges_names_the_last_checkpoint_from_before(running):
    cluster, run_id, fence = running
    loss = Divergence()
    for step, value in enumerate([0.1] * 20 + [2598.0] * 3):
        loss.take(step, value)
    evidence = divergence.evidence_of("train/loss", loss)
    say(cluster, fence, Finding(kind=divergence.KIND, evidence=evidence, meaning="", fix="Stop the run."))
    (without,) = findings(cluster.store, run_id)
    for step in (5, 19, 20):
        store_checkpoint(cluster, fence, path=f"work/step_{step}.pt", step=step, sha=f"{step:064}")
    (finding,) = findings(cluster.store, run_id)
    assert finding.fix == f"{without.fix} The last one from before is work/step_19.pt, of step 19."
