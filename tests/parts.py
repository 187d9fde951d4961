"""The parts of the tests: `make test-long PART=hosts` runs one, and what takes longest begins first."""

from __future__ import annotations

PARTS = {
    "product": ("tests/end_to_end/",),
    "hosts": (
        "tests/end_to_end/test_hosts",
        "tests/end_to_end/test_slurm",
        "tests/end_to_end/test_interpreters",
    ),
    "frameworks": ("tests/examples/", "tests/worker/probe/loggers/"),
    "recipes": ("tests/recipes/",),
    "worker": ("tests/worker/",),
    "pages": ("tests/dashboard/",),
    "commands": ("tests/cli/",),
    "store": ("tests/db/",),
    "rules": ("tests/",),
}
"""The beginnings of their names, in the order in which they run; the longest that fits decides."""


def part_of(test: str) -> str:
    """The part that a test belongs to."""
    lengths = {part: max(len(name) if test.startswith(name) else 0 for name in PARTS[part]) for part in PARTS}
    return max(lengths, key=lengths.__getitem__)


def place_of(test: str) -> int:
    """Return the place of the test's part in the order."""
    return list(PARTS).index(part_of(test))


def together(test: str, with_long: bool) -> str:
    """Name the group of tests that one process runs one after another: a file, or all whole products, which would
    wait for each other on a small machine. With the long tests two processes share the products, but for hosts."""
    part = part_of(test)
    is_whole = part == "hosts" or (part == "product" and not with_long)
    return part if is_whole else test.partition("::")[0]
