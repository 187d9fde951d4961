"""What this node's own ssh lacks where it cannot reach the host with the data."""

from __future__ import annotations

import getpass
import os
import re


def refusal(output: str, address: str, node: str) -> tuple[str, str] | None:
    """Return why ssh did not connect, in a few words, and what to do on the node; None for any other failure.

    `output`: what ssh or rsync printed; `address`: [USER@]HOST:PATH."""
    login, user = address.partition(":")[0], _user()
    host, there = login.rpartition("@")[2], f"on {node}, as {user}, run"
    if "HOST IDENTIFICATION HAS CHANGED" in output:
        step = f"If you know why, {there} `ssh-keygen -R {host}`, then `ssh {login}` once to accept the new one."
        return f"the host key of {host} is not the one that {user} on {node} knows", step
    if "Host key verification failed" in output:
        step = f"{_sentence(there)} `ssh {login}` once to accept it."
        return f"{user} on {node} does not know the host key of {host}", step
    if re.search(r"Permission denied \((?!\d)", output):  # rsync writes the number of its error there
        step = f"{_sentence(there)} `ssh-copy-id {login}` (before it `ssh-keygen`, if there is no key)."
        return f"{host} does not let in {user} of {node}: it has no ssh key that is allowed there", step
    return None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name belongs to the number
        return f"user {os.getuid()}"
