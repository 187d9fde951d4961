"""Logs of several ranks."""

from __future__ import annotations

from tests.dashboard.running import FakeNode, Running


def write_logs(dashboard: Running, node: FakeNode, pieces: list[tuple[str, bytes]]) -> str:
    """A run whose logs got these pieces, one after the other."""
    run_id, sizes = dashboard.launch(gpus_per_node=2), dict[str, int]()
    task = node.task()
    for name, content in pieces:
        start = sizes.get(name, 0)
        sizes[name] = start + len(content)
        node.append(task, f"logs/{name}", 0, start, content)
    return run_id


PIECES = [
    ("rank1.out", b"one 0\none 1\n"), ("rank0.out", b"zero 0\n"), ("rank0.err", b"UserWarning: x\n"),
    ("rank1.err", b"ValueError: no\n"), ("rank0.out", b"zero 1\nzero"), ("launcher.err", b"Error: bye\n"),
]  # fmt: skip
