"""`rankzero doctor` on a node: what ended attempts hold there, and the option that removes them."""

from __future__ import annotations

import json
from pathlib import Path

from cli.commands.installation.system import examine


def message(data: Path) -> str:
    return next(check.message for check in examine(data) if check.name == "ended attempts")


def test_doctor_says_how_much_ended_attempts_hold(tmp_path):
    assert message(tmp_path) == "no attempt has trained here."
    folder = tmp_path / "runs/ab12cd34ef/attempts/1/node0"
    (folder / "worker").mkdir(parents=True)
    assert message(tmp_path) == "none whose folder is to be removed."
    (folder / "worker/reported.json").write_text(json.dumps({"state": "succeeded", "has_all": True}))
    (folder / "model.pt").write_bytes(b"x" * (1 << 20))
    said = message(tmp_path)
    assert said.startswith("1 folder holds 1") and "`rankzero worker --keep-attempts 7d` removes" in said
