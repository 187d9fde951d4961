"""Mistakes that raise no error are found by the probe's events."""

from __future__ import annotations

import pytest

from worker.monitor.silent_mistakes import RankRecord, silent_mistakes

DDP = {"kind": "ddp", "model": 0, "replicas": 2, "batch_norms": 0, "find_unused_parameters": False}


def epoch(digest=1, fields=(("batch[0]", 5, 40),), sampler_epoch=0, shuffle=True, **more):
    sampler = {"type": "DistributedSampler", "epoch": sampler_epoch, "shuffle": shuffle, "replicas": 2}
    digests = {"16": digest, "64": digest + 1} if digest else {}
    plain = {"kind": "epoch", "dataset_length": 100, "batch_size": 8, "sampler": sampler}
    return plain | {"digests": digests, "fields": [list(each) for each in fields]} | more


def checksum(step, total, size=10.0, model=0):
    return {"kind": "checksum", "model": model, "step": step, "sum": total, "size": size}


def unused(step, *names):
    return {"kind": "unused", "model": 0, "step": step, "count": len(names), "names": list(names)}


def two(first, other=None, world_size=2, **more):
    return {
        rank: RankRecord(rank, world_size, 10, events=[DDP, *events], **more)
        for rank, events in enumerate([first, first if other is None else other])
    }


BN = DDP | {"batch_norms": 3}
OTHER_DATA = (("batch[0]", 6, 40),)
SAME = "same samples on several ranks"


@pytest.mark.parametrize(
    ("records", "kinds"),
    [
        ({}, []),
        # set_epoch
        (two([epoch(1), epoch(1)], [epoch(7), epoch(7)]), ["set_epoch never called"]),
        (two([epoch(1), epoch(2, sampler_epoch=1)], [epoch(7)]), []),
        (two([epoch(1)], [epoch(7)]), []),
        (two([epoch(1, shuffle=False)] * 2, [epoch(7)]), []),
        (two([epoch(1, sampler={})] * 2, [epoch(7)]), []),
        (two([epoch(1), epoch(3)], [epoch(7)]), []),
        # the same samples
        (two([epoch(1)]), [SAME]),
        (two([epoch(1)], [epoch(1, OTHER_DATA)]), []),
        (two([epoch(1, (("batch[0]", 5, 1),))]), []),
        (two([epoch(1, (("a", 5, 40), ("label", 3, 9)))], [epoch(1, (("a", 6, 40), ("label", 3, 9)))]), [SAME]),
        (two([epoch(1)], [epoch(1, dataset_length=99)]), []),
        (two([epoch(0)]), [SAME]),
        (two([epoch(0, (("batch[0]", 5, 4),))]), []),
        (two([epoch(0)], [epoch(1)]), []),
        (two([epoch(1, digests={"1": 4})]), []),
        (two([epoch(1)], world_size=4), []),
        # parameters
        (two([checksum(1, 1.0), checksum(2, 1.1)]), []),
        (two([checksum(1, 1.0)], [checksum(1, 1.2)]), ["parameters differ"]),
        (two([checksum(1, 1.0)], [checksum(2, 1.2)]), []),
        (two([checksum(1, 1.0)], [checksum(1, 1.2, model=1)]), []),
        (two([checksum(1, 1.0)], [checksum(1, 1.001)]), []),
        (two([checksum(1, 1.0), checksum(2, 1.0)], [checksum(1, 1.001), checksum(2, 1.002)]), ["parameters differ"]),
        (two([checksum(1, 1.0), checksum(2, 1.0)], [checksum(1, 1.0000001), checksum(2, 1.0000002)]), []),
        (two([checksum(1, float("nan"))], [checksum(1, 1.0)]), []),
        (two([checksum(1, 1.0)], [checksum(1, 1.2)], world_size=4), []),
        # unused parameters
        (two([unused(0, "a", "b"), unused(1, "a"), unused(2, "a", "c")]), ["unused parameters"]),
        (two([unused(0, "a"), unused(1), unused(2, "a")]), []),
        (two([unused(0, "a"), unused(1, "a")]), []),
        (two([unused(0), unused(1), unused(2)]), []),
        # BatchNorm
        (two([BN, epoch(1, batch_size=1)], [epoch(7)]), ["batch of 1 with BatchNorm"]),
        (two([BN, epoch(1, batch_size=2)], [epoch(7)]), []),
        (two([epoch(1, batch_size=1)], [epoch(7)]), []),
    ],
)  # fmt: skip
def test_a_mistake_is_found_where_it_is_and_nowhere_else(records, kinds):
    assert [finding.kind for finding in silent_mistakes(records)] == kinds


def test_unequal_steps_are_found_when_the_ranks_have_ended():
    records = {rank: RankRecord(rank, 2, 10 - rank, True, [DDP]) for rank in (0, 1)}
    assert [finding.evidence for finding in silent_mistakes(records)] == ["Rank 1 made 9 steps, rank 0 made 10."]
    assert not silent_mistakes({rank: RankRecord(rank, 2, 10 - rank, False, [DDP]) for rank in (0, 1)})


def test_a_finding_says_what_was_seen_what_it_means_and_how_to_mend_it():
    (finding,) = silent_mistakes(two([checksum(64, 1.0)], [checksum(64, 1.25)]))
    assert finding.evidence == (
        "After step 64 the same sample of the parameters adds up to 1 on rank 0 and to 1.25 on rank 1."
    )
    assert finding.meaning.endswith("rank 0's checkpoint holds only what rank 0 learned.")
    assert finding.fix.startswith("Call the DistributedDataParallel wrapper")
