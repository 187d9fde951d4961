"""Whether Linux can pass a run's arguments and variables to a program: limits on each, and on all together."""

from __future__ import annotations

from domain.errors import InvalidRequest
from domain.spec import MAX_ARGUMENT_BYTES, RunSpec

MOST_BYTES = 1024 * 1024
"""Arguments and variables together. Linux takes a quarter of the stack's limit, 2 MiB as a rule; the rest is for
what the node's own environment and the launcher add."""
POINTER_BYTES = 8
"""Linux counts one for each string."""


def check_size(spec: RunSpec) -> None:
    """Raise InvalidRequest when no program can be started with what the spec asks for.

    Not a rule of the spec itself: a store may hold runs from before there was one."""
    for name, value in spec.env.items():
        size_bytes = _bytes(f"{name}={value}")
        if size_bytes > MAX_ARGUMENT_BYTES:
            raise InvalidRequest(
                "env",
                f"env: {name} has {size_bytes:,} bytes with its name; Linux passes at most {MAX_ARGUMENT_BYTES:,} "
                "(128 KiB) to a program in one variable. Put the value into a file and name that.",
            )
    args_bytes = sum(_bytes(text) + POINTER_BYTES for text in spec.args)
    env_bytes = sum(_bytes(f"{name}={value}") + POINTER_BYTES for name, value in spec.env.items())
    if args_bytes + env_bytes > MOST_BYTES:
        field = "env" if env_bytes > args_bytes else "args"
        raise InvalidRequest(
            field,
            f"{field}: arguments ({args_bytes:,} bytes) and environment ({env_bytes:,} bytes) may have "
            f"{MOST_BYTES:,} bytes (1 MiB) together, so that Linux can pass them to a program. "
            "Put long values into a file and name that.",
        )


def _bytes(text: str) -> int:
    """The size Linux counts for a string: its bytes and the terminating NUL."""
    return len(text.encode(errors="surrogatepass")) + 1
