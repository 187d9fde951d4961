"""Which hosts a command line names."""

from __future__ import annotations

import pytest

from cli.fleet.host_list import Destination, Machine, hosts_of, parse, words_in
from cli.fleet.memory import Memory
from cli.terminal import CommandFailed

CONFIG = """
Host gpu-1 gpu-2 "gpu-3"
  HostName 10.0.0.1
host=gate
Host *.example !gpu-9
"""


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("gpu-[1-3]", ["gpu-1", "gpu-2", "gpu-3"]),
        ("gpu-[08-10,12]", ["gpu-08", "gpu-09", "gpu-10", "gpu-12"]),
        ("me@r[1-2]-n[1,3]:2222", ["me@r1-n1:2222", "me@r1-n3:2222", "me@r2-n1:2222", "me@r2-n3:2222"]),
        ("10.0.0.4", ["10.0.0.4"]),
        ("fe80::1%eth0", ["fe80::1%eth0"]),
        ("me@[fe80::1]:22", ["me@[fe80::1]:22"]),
        ("DOMAIN\\me@gpu-1", ["DOMAIN\\me@gpu-1"]),
        ("gpu-*", ["gpu-1", "gpu-2", "gpu-3"]),
        ("gat?", ["gate"]),
    ],
)
def test_word_stands_for_hosts(word: str, names: list[str]) -> None:
    assert [str(host) for host in hosts_of([word], None, None, CONFIG)] == names


def test_user_and_port_hold_where_a_word_names_none_and_each_host_comes_once() -> None:
    hosts = hosts_of(["gpu-1", "ana@gpu-2:22", "gpu-[1-2]"], "me", 2222)
    assert hosts == [
        Destination("gpu-1", "me", 2222),
        Destination("gpu-2", "ana", 22),
        Destination("gpu-2", "me", 2222),
    ]


@pytest.mark.parametrize(
    "word", ["-oProxyCommand=sh", "me@-x", "a b", "gpu;ls", "gpu-1:0", "gpu-1:70000", "", "me@", "gpu-[3-1]",
             "gpu-[1-9999]", "gpu-[x]", "nobody-*", "$(id)"],
)  # fmt: skip
def test_what_is_no_host_is_refused_as_wrong_usage(word: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        hosts_of([word], None, None, CONFIG)
    assert refused.value.exit_code == 2


def test_a_file_lists_hosts_by_blanks_and_lines_with_comments() -> None:
    assert words_in("gpu-1 gpu-2\n# rack b\nme@gpu-3:22 # the new one\n\n") == ["gpu-1", "gpu-2", "me@gpu-3:22"]


def test_how_a_node_is_reached_is_remembered_by_its_id(tmp_path) -> None:
    memory = Memory(tmp_path / "state/nodes.json")
    assert memory.all() == {} and memory.of("n1", "gpu-1") == Machine(Destination("gpu-1"))
    added = Machine(Destination("10.0.0.4", "me", 22), "gate", "/scratch/rankzero")
    memory.remember({"n1": ("gpu-1", added)})
    memory.remember({"n2": ("gpu-2", Machine(parse("gpu-2")))})
    assert (memory.id_of("gpu-2"), memory.id_of("gpu-3")) == ("n2", "")
    assert memory.of("n1", "gpu-1") == added and set(memory.all()) == {"n1", "n2"}
    assert memory.folder_of(added.host) == added.folder and memory.folder_of(parse("gpu-9")).endswith("rankzero-node")
    memory.forget("n1")
    assert set(memory.all()) == {"n2"}
    (tmp_path / "state/nodes.json").write_text('{"n3": 5}')
    assert memory.all() == {}
