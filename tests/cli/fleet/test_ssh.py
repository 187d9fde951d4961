"""A connection: what scripts say through any login shell, and every failure of `ssh` as one sentence."""

from __future__ import annotations

import shutil

import pytest

from cli.fleet.ssh import REMOTE, HostTrouble, NeedsPerson
from tests.cli.fleet.conftest import FakeHost

KEY = "debug1: Server host key: ssh-ed25519 SHA256:abc\n"


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "/bin/dash"])
def test_script_reads_what_follows_it_and_a_profile_may_print(host: FakeHost, shell: str) -> None:
    assert shutil.which(shell)
    host.use_shell(shell)
    (host.folder / "profile").write_text("Welcome!\nrankzero-0 greeting no\nno end of line")
    file = host.folder / "large"
    file.write_bytes(b"\0\n'" * 200_000)
    script = 'say greeting "it\'s $HOME"\nsay bytes "$(wc -c)"\nsay json \'{"a": [1]}\'\nexit 3'
    answer = host.do(lambda connection: connection.run(script, b"first", file))
    assert answer.values == {"greeting": f"it's {host.home}", "bytes": "600005", "json": {"a": [1]}}
    assert answer.code == 3


def test_command_line_is_one_that_shells_other_than_sh_take_too() -> None:
    assert REMOTE.count("'") == 2 and not set(REMOTE.split("'")[1]) & set("\\!\n")


@pytest.mark.parametrize("reads", ["read -r answer < /dev/stdin", "read a; read b; read c"])
def test_profile_that_reads_standard_input_does_not_take_the_script(host: FakeHost, reads: str) -> None:
    shell = host.folder / "shell"
    shell.write_text(f'#!/bin/bash\n{reads}\nexec /bin/sh "$@"\n')
    shell.chmod(0o755)
    host.use_shell(str(shell))
    assert host.do(lambda connection: connection.run('say bytes "$(wc -c)"', b"12345")).values == {"bytes": "5"}


def test_login_shell_that_refuses_is_quoted(host: FakeHost) -> None:
    (host.folder / "profile").write_text("This account is currently not available.\n")
    host.use_shell("/bin/false")
    with pytest.raises(
        HostTrouble, match=r"before a command could run; it printed: This account is .* not available\.$"
    ):
        host.do(lambda connection: connection.run("say a b"))


def test_silent_host_is_given_up(host: FakeHost) -> None:
    with pytest.raises(HostTrouble, match=r"not answered within 0\.3 s"):
        host.do(lambda connection: connection.run("exec sleep 60", limit_s=0.3))


@pytest.mark.parametrize(
    ("errors", "kind", "sentence"),
    [
        (KEY + "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n", HostTrouble,
         "not the one in known_hosts (now ssh-ed25519 SHA256:abc)"),
        (KEY + "No ED25519 host key is known for gpu-1 and you have requested strict checking.\n"
         "Host key verification failed.\n", NeedsPerson, "not known here yet (ssh-ed25519 SHA256:abc)"),
        ("me@gpu-1: Permission denied (publickey,password).\n", NeedsPerson, "`ssh gpu-1` works without a password"),
        ("ssh: Could not resolve hostname gpu-1: Name unknown\n", HostTrouble, "Could not resolve"),
        ("debug1: Connecting\nssh: connect to gpu-1 port 22: Connection refused\n", HostTrouble, "22: Connection"),
        ("/home/me/.ssh/config: line 3: Bad configuration option: hostt\n", HostTrouble, "Bad configuration option"),
    ],
)  # fmt: skip
def test_failure_of_ssh_is_one_sentence(host: FakeHost, errors: str, kind: type[HostTrouble], sentence: str) -> None:
    host.fail(errors)
    with pytest.raises(HostTrouble) as failed:
        host.do(lambda connection: connection.run("say a b"))
    assert type(failed.value) is kind and sentence in str(failed.value)
    assert "\n" not in str(failed.value) and str(failed.value).endswith(".")
