"""A script served by Streamlit alone, as its own command does it: what our pages are compared with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil

from tests.end_to_end.product import free_port, wait_for


@contextmanager
def streamlit(script: Path, *arguments: str) -> Iterator[tuple[psutil.Process, str]]:
    """Serve the script with these arguments; yields the process and the address. It has ended afterwards."""
    port = free_port()
    options = ["--server.headless", "true", "--server.port", str(port), "--server.address", "127.0.0.1"]
    options += ["--browser.gatherUsageStats", "false"]
    command = [sys.executable, "-m", "streamlit", "run", *options, str(script), "--", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            wait_for(lambda: answers(f"{url}/_stcore/health"), "Streamlit to serve")
            yield psutil.Process(process.pid), url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    """Whether there is a server."""
    try:
        return httpx2.get(url, timeout=10).is_success
    except httpx2.TransportError:
        return False
