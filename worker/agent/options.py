"""The worker's command line, and the token it joins with, which never stands on it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from platformdirs import user_data_path

NO_TOKEN = (
    "a token is needed to join: set RANKZERO_TOKEN or --token-file to what "
    "`rankzero token --join --expires 24h` prints on the server."
)


class CannotRun(Exception):
    """Why this worker cannot do its work, in one sentence."""


def parser() -> argparse.ArgumentParser:
    """What `rankzero worker` takes."""
    made = parser_with("rankzero worker", "Offer this machine's devices to a Rankzero server.")
    made.add_argument("--slots", type=positive, help="devices to offer (default: all GPUs, else cores)")
    made.add_argument("--stop-runs", action="store_true", help="end this node's runs on SIGTERM")
    made.add_argument("--address", help="where other nodes reach this one (default: as the server does)")
    made.add_argument(
        "--only-attempt",
        type=positive,
        metavar="FENCE",
        help="within a Slurm job: work for this attempt alone",
    )
    return made


def parser_with(program: str, description: str) -> argparse.ArgumentParser:
    """The options that workers and gateways have in common."""
    made = argparse.ArgumentParser(prog=program, description=description)
    server = os.environ.get("RANKZERO_URL")
    default_data = Path(os.environ.get("RANKZERO_DATA") or user_data_path("rankzero", appauthor=False))
    made.add_argument("--server", default=server, required=server is None, metavar="URL")
    made.add_argument("--name", help="the node's name (default: the host's)")
    made.add_argument("--data", type=Path, default=default_data, metavar="DIR")
    made.add_argument("--label", type=_label, action="append", default=[], metavar="K=V")
    made.add_argument("--token-file", type=Path, metavar="FILE", help="instead of RANKZERO_TOKEN")
    made.add_argument(
        "--python",
        type=_interpreter_name,
        default=os.environ.get("RANKZERO_PYTHON") or sys.executable,
        metavar="PATH",
        help="what trains where a run names nothing else (default: RANKZERO_PYTHON, else this worker's own)",
    )
    return made


def join_token(options: argparse.Namespace, data: Path, is_needed: bool) -> str:
    """From the file that was named, the environment, or the data directory shared with the server; else empty.

    A node that has joined has a token of its own, and needs this one no more. Raises CannotRun."""
    if options.token_file is not None:
        try:
            return str(options.token_file.read_text().strip())
        except OSError as error:
            if is_needed:
                raise CannotRun(f"{options.token_file} cannot be read: {error.strerror}.") from error
            return ""
    if token := os.environ.get("RANKZERO_TOKEN", "").strip():
        return token
    try:
        return (data / "join-token").read_text().strip()
    except OSError:
        if is_needed:
            raise CannotRun(NO_TOKEN) from None
        return ""


def positive(text: str) -> int:
    """A whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _interpreter_name(text: str) -> str:
    """A path holds wherever the worker was started from; links stay, because an environment's Python is one."""
    return os.path.abspath(os.path.expanduser(text)) if os.sep in text else text  # noqa: PTH100, PTH111


def _label(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not key or not found:
        raise argparse.ArgumentTypeError(f"{text!r} must be written as K=V")
    return key, value
