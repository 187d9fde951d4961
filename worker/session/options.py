"""The worker's command line, and its join token, which is never passed on it."""

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
    """This worker cannot run; the message is one sentence."""


def parser() -> argparse.ArgumentParser:
    """The parser of `rankzero worker`."""
    parser = parser_with("rankzero worker", "Offer this machine's devices to a Rankzero server.")
    parser.add_argument("--slots", type=positive, help="devices to offer (default: all GPUs, else cores)")
    parser.add_argument("--stop-runs", action="store_true", help="end this node's runs on SIGTERM")
    parser.add_argument(
        "--address", help="address for other nodes (default: the one used to reach the server)"
    )
    parser.add_argument(
        "--only-attempt",
        type=positive,
        metavar="FENCE",
        help="in a Slurm job: serve only this attempt",
    )
    return parser


def parser_with(program: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options that workers and gateways share."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    server = os.environ.get("RANKZERO_URL")
    default_data = Path(os.environ.get("RANKZERO_DATA") or user_data_path("rankzero", appauthor=False))
    parser.add_argument("--server", default=server, required=server is None, metavar="URL")
    parser.add_argument("--name", help="the node's name (default: the host's)")
    parser.add_argument("--data", type=Path, default=default_data, metavar="DIR")
    parser.add_argument("--label", type=_label, action="append", default=[], metavar="K=V")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="read the token from FILE, not from RANKZERO_TOKEN"
    )
    parser.add_argument(
        "--python",
        type=_interpreter_name,
        default=os.environ.get("RANKZERO_PYTHON") or sys.executable,
        metavar="PATH",
        help="the Python for runs that name none (default: RANKZERO_PYTHON, else this worker's own)",
    )
    return parser


def join_token(options: argparse.Namespace, data: Path, is_needed: bool) -> str:
    """The join token from the named file, the environment, or a data directory shared with the server; else empty.

    A node that has joined has a token of its own and no longer needs this one. Raises CannotRun."""
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
    """Parse an integer of at least 1. Raises ValueError, argparse.ArgumentTypeError."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _interpreter_name(text: str) -> str:
    """Make a path absolute without resolving links, because a virtual environment's Python is a link."""
    return os.path.abspath(os.path.expanduser(text)) if os.sep in text else text  # noqa: PTH100, PTH111


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} must be written as K=V")
    return key, value
