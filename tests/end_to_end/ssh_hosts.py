"""Hosts that are reached by `ssh` alone: each with sshd, a plain user with a home of their own, and nothing of ours."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from tests import packages
from tests.end_to_end.hosts import Host, Hosts
from tests.end_to_end.namespaces import run_command
from tests.end_to_end.product import wait_for

USER, USER_ID = "ada", 47_001
INDEX_PORT = 9000
SSHD = "/usr/sbin/sshd"
CRONTABS = "mode=1730,gid=crontab"
NEEDED = {"openssh-server": SSHD, "cron": "/var/spool/cron/crontabs"}
SSHD_CONFIG = """
ListenAddress 0.0.0.0:22
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile .ssh/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
"""
SSH_CONFIG = """
Host host*
  User {user}
  IdentityFile {folder}/key
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
{hosts}
"""


def why_no_sshd() -> str | None:
    """Why there is no sshd to test with, or None."""
    missing = [name for name, path in NEEDED.items() if not Path(path).exists()]
    return f"needs {' and '.join(missing)}" if missing else None


class SshHosts(Hosts):
    """The first host has the dashboard and the person; on the others a plain user has a home and an sshd."""

    def start(self) -> None:
        """Boot all, with a dashboard and sshd; no host is a node."""
        self.boot()
        self.start_dashboard()
        self.person = self.folder / "person"
        self.person.mkdir()
        self._make_key("key")
        for host in self.hosts[1:]:
            self.start_sshd(host)
        self._write_ssh_program()

    def start_sshd(self, host: Host) -> None:
        """Give a host its user, with a home that no other host has, and a running sshd."""
        user = pwd.struct_passwd((USER, "x", USER_ID, USER_ID, "", f"/home/{USER}", "/bin/bash"))
        self._copy_etc(host)
        with (host.home / "etc/passwd").open("a") as accounts:
            accounts.write(":".join(map(str, user)) + "\n")
        home = host.home / "home"
        (home / ".ssh").mkdir(parents=True)
        os.chown(home, USER_ID, USER_ID)
        self._make_key(f"host_key_{host.name}", host.home / "host_key")
        shutil.copy(self.person / "key.pub", home / ".ssh/authorized_keys")
        (host.home / "sshd_config").write_text(SSHD_CONFIG.format(folder=host.home))
        for argv in (
            ("mount", "--bind", str(host.home / "etc"), "/etc"),
            ("mount", "-t", "tmpfs", "none", "/home"),
            ("mkdir", f"/home/{USER}"),
            ("mount", "--bind", str(home), f"/home/{USER}"),
            ("mount", "-t", "tmpfs", "none", "/run"),
            ("mkdir", "/run/sshd"),
            ("mount", "-t", "tmpfs", "-o", CRONTABS, "none", "/var/spool/cron/crontabs"),
        ):
            self.on(host, *argv)
        host.start(SSHD, "-D", "-e", "-f", str(host.home / "sshd_config"))
        host.wait_for_listener(22)
        with (self.person / "known_hosts").open("a") as known:
            known.write(f"{host.address} {(host.home / 'host_key.pub').read_text()}")

    def _copy_etc(self, host: Host) -> None:
        """Copy the whole folder: a new /etc/passwd of this machine, which tests with accounts of their own write, would
        end a mount of the file alone. A file of theirs may vanish before it is copied; then all is copied anew."""
        copy = host.home / "etc"

        def is_copied() -> bool:
            shutil.rmtree(copy, ignore_errors=True)
            with suppress(AssertionError):
                self.on(host, "cp", "-a", "/etc", str(copy))
                return True
            return False

        wait_for(is_copied, "a copy of /etc")

    def give_torch(self, host: Host) -> str:
        """Let the user of a host train with the torch of these tests; returns the Python."""
        for folder, name in ((sys.base_prefix, "base"), (Path(torch.__file__).parents[1], "site")):
            self.on(host, "mkdir", f"/home/{name}")
            self.on(host, "mount", "--bind", str(folder), f"/home/{name}")
        python = host.home / "home/python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        python.write_text(f'#!/bin/sh\nPYTHONPATH=/home/site exec /home/base/bin/{version} "$@"\n')
        python.chmod(0o755)
        return f"/home/{USER}/python"

    def serve_index(self, wheels: Path) -> None:
        """Serve a folder of wheels to the hosts, which look there instead of at the internet's index."""
        argv = [sys.executable, "-m", "http.server", "-d", str(wheels), str(INDEX_PORT)]
        self.hosts[0].start(*argv)
        self.hosts[0].wait_for_listener(INDEX_PORT)
        for host in self.hosts[1:]:
            self.use_index(host)

    def use_index(self, host: Host) -> None:
        """Let the user of a host install from the index of the first one."""
        settings = host.home / "home/.config/uv/uv.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'no-index = true\nfind-links = ["http://{self.hosts[0].address}:{INDEX_PORT}/"]\n')

    def rankzero(
        self, *arguments: str, env: dict[str, str] | None = None, terminal: int | None = None
    ) -> subprocess.Popen[str]:
        """Start a command of the person on the first host, in a terminal or without one."""
        own = {k: v for k, v in self.env.items() if not k.startswith(("PIP_", "UV_"))}
        path = f"{self.person / 'bin'}:{os.environ['PATH']}"
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache"), "XDG_STATE_HOME": str(self.person), "PATH": path}
        enter = ["nsenter", "--target", str(self.hosts[0].pid), "--net", "--uts", "--mount", "--pid", "--"]
        argv = [*enter, sys.executable, "-P", "-m", "cli.main", *arguments]
        all_env = own | cache | {"RANKZERO_DATA": str(self.data), "TERM": "dumb"} | (env or {})
        if terminal is not None:
            argv = ["setsid", "--ctty", "--wait", *argv]
            return subprocess.Popen(
                argv, stdin=terminal, stdout=terminal, stderr=terminal, env=all_env, text=True, start_new_session=True
            )
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=all_env)

    def document(self, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, Any, str]:
        """Run a command with `--json` to its end: exit code, document, errors."""
        command = self.rankzero(*arguments, "--json", env=env)
        said, errors = command.communicate(timeout=300)
        return command.returncode, json.loads(said or "[]"), errors

    def add(self, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, list[dict[str, Any]], str]:
        """Run `rankzero nodes add`."""
        return self.document("nodes", "add", "--slots", "1", *arguments, env=env)

    def on(self, host: Host, *argv: str) -> None:
        """Run a program as root on a host."""
        run_command("nsenter", "--target", str(host.pid), "--net", "--mount", "--pid", "--uts", *argv)

    def home_of(self, host: Host) -> Path:
        """Where the installation of a host is, as seen from outside."""
        return host.home / "home/.local/share/rankzero-node"

    def _make_key(self, name: str, path: Path | None = None) -> None:
        run_command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path or self.person / name))

    def _write_ssh_program(self) -> None:
        """The person's `ssh`, with a configuration of their own instead of that of the user who runs the tests."""
        names = "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in self.hosts[1:])
        (self.person / "config").write_text(SSH_CONFIG.format(user=USER, folder=self.person, hosts=names))
        program = self.person / "bin/ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.person}/config "$@"\n')
        program.chmod(0o755)


def write_index(folder: Path) -> Path:
    """Write the wheels of what a worker needs, as an index has them."""
    folder.mkdir(exist_ok=True)
    for name, distribution in packages.needed(["rankzero[worker]"]).items():
        if name != "rankzero":
            packages.write_wheel(distribution, folder)
    return folder


def nodes_of(hosts: Hosts) -> list[str]:
    """The names of the nodes that are alive."""
    return sorted(node["name"] for node in hosts.get("/api/nodes") if node["state"] == "alive")
