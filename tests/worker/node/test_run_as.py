"""What `--run-as` says, and what an account's trainings get of the worker's variables."""

from __future__ import annotations

import pytest

from worker.agent.accounts.messages import handed_on
from worker.node.run_as import RunAs


def test_people_have_accounts_and_all_others_the_default() -> None:
    run_as = RunAs.parse(["ana=a1", "trainer", "b@x.org=b2"])
    assert [run_as.of(person) for person in ("ana", "b@x.org", "eve", "")] == ["a1", "b2", "trainer", "trainer"]
    assert run_as.accounts == ["a1", "b2", "trainer"]
    assert RunAs.parse(run_as.entries) == run_as
    assert RunAs.parse(["ana=a1"]).of("eve") is None
    assert not RunAs.parse([])


@pytest.mark.parametrize("entries", [["ana="], ["=a1"], [""], ["a1", "a2"], ["ana=a1", "ana=a2"]])
def test_what_is_ambiguous_is_refused(entries: list[str]) -> None:
    with pytest.raises(ValueError, match="--run-as"):
        RunAs.parse(entries)


def test_variables_of_the_worker_and_secrets_are_not_handed_on() -> None:
    kept = {"PATH": "/bin", "LANG": "C", "CUDA_HOME": "/usr/local/cuda", "NCCL_DEBUG": "INFO", "HF_HOME": "/data/hf"}
    own = {
        "HOME": "/root",
        "USER": "root",
        "XDG_RUNTIME_DIR": "/run/user/0",
        "SSH_AUTH_SOCK": "/x",
        "TMPDIR": "/root/tmp",
    }
    secret = {"WANDB_API_KEY": "wk", "PGPASSWORD": "pw", "AWS_SECRET_ACCESS_KEY": "ak", "HF_TOKEN": "hf"}
    assert handed_on(kept | own | secret) == kept
