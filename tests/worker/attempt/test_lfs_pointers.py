"""A training that fails because a file of its working directory is only a Git LFS pointer says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worker.attempt.reports import end_of

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 4096\n"
TRACEBACK = (
    'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    torch.load("weights/base.pt")\n'
    "_pickle.UnpicklingError: invalid load key, 'v'.\n"
)
STATE: dict[str, Any] = {
    "exit_code": 1, "signal": None, "stop_requested_at": None, "killed": False, "launch_error": None, "pid": 1,
    "ended_at": 100.0,
}  # fmt: skip


def test_the_next_step_names_the_pointer(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank0.err").write_text(TRACEBACK)
    (tmp_path / "work/weights").mkdir(parents=True)
    (tmp_path / "work/weights/base.pt").write_text(POINTER)
    (tmp_path / "work/weights/other.pt").write_text("x" * 130)
    report = end_of(tmp_path, STATE, {"cwd": str(tmp_path / "work"), "launcher": "python"}, "n0", 0, shut_down=False)
    assert report.next_step == (
        "weights/base.pt is a Git LFS pointer, a small text in place of the file: run `git lfs pull` in its checkout, "
        "then launch it again."
    )
