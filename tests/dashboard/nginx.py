"""A real nginx with TLS in front of a dashboard, with the configuration that the documents show."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.dashboard.certificates import Pair
from tests.end_to_end.product import free_port, wait_for

NGINX = Path("/usr/sbin/nginx")
DOCUMENT = Path(__file__).parents[2] / "docs/SECURITY.md"
AROUND = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 200; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""


@contextmanager
def nginx(folder: Path, pair: Pair, dashboard_port: int, secret: str = "") -> Iterator[str]:
    """Yield the address of an nginx on a free port; it has ended afterwards."""
    if not NGINX.exists():
        pytest.skip("needs nginx")
    folder.mkdir()
    port = free_port()
    configuration = folder / "nginx.conf"
    user = "user root;" if os.getuid() == 0 else ""
    server = documented(pair, port, dashboard_port, secret)
    configuration.write_text(AROUND.format(user=user, folder=folder, server=server))
    process = subprocess.Popen([shutil.which("nginx") or NGINX, "-p", folder, "-c", configuration, "-e", "stderr"])
    try:
        wait_for(lambda: listens(port) or process.poll() is not None, "nginx to listen")
        assert process.poll() is None, (folder / "error.log").read_text()
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def documented(pair: Pair, port: int, dashboard_port: int, secret: str) -> str:
    """The configuration in the document, with files and ports of this test."""
    match = re.search(r"```\n(map \$http_upgrade .*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert match is not None
    configuration = match[1]
    for shown, own in (
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("/etc/ssl/rankzero.pem", str(pair.certificate)),
        ("/etc/ssl/rankzero.key", str(pair.key)),
        ("http://127.0.0.1:8765", f"http://127.0.0.1:{dashboard_port}"),
        ('X-Forwarded-Secret ""', f'X-Forwarded-Secret "{secret}"'),
    ):
        assert configuration.count(shown) == 1, shown
        configuration = configuration.replace(shown, own)
    return configuration


def listens(port: int) -> bool:
    """Whether something takes connections at this port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
