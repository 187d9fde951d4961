"""A node is where it speaks with the server, not where it thought to be when its worker started."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from domain.messages import NodeLoad
from tests.worker.http_server import HttpServer
from worker.launch.preparation import LocalNode
from worker.node.hardware import interface_of
from worker.session.client import Client


@pytest.fixture
def node(tmp_path) -> LocalNode:
    return LocalNode(name="n", data_dir=tmp_path, python="python", address="192.0.2.1", interface="eth9")


def test_the_address_is_the_one_of_the_last_conversation_with_the_server(node):
    server = HttpServer()
    client = Client(server.url, "token")
    moved = replace(node, connection_address=lambda: client.own_address)
    assert moved.as_seen_by_others() == node
    try:
        client.load(NodeLoad())
    finally:
        client.close()
        server.close()
    there = moved.as_seen_by_others()
    assert (there.address, there.interface) == ("127.0.0.1", interface_of("127.0.0.1"))


def test_a_server_on_this_machine_that_nobody_else_is_connected_to_changes_nothing(node):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        local = replace(node, address="127.0.0.1", server_port=nobody.getsockname()[1])
        assert local.as_seen_by_others() is local


def test_an_address_that_somebody_chose_stays(node):
    assert node.as_seen_by_others() is node
