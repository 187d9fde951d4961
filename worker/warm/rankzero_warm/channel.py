"""Messages with open files between the processes of a warm start, over a pair of connected UNIX sockets."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAUNCHER_VARIABLE = "RANKZERO_WARM_LAUNCHER"
"""Environment variable of a supervisor: the process id of its torchrun and the descriptor of the socket to it."""
_LENGTH = struct.Struct("=Q")
MOST_DESCRIPTORS = 4


def send(connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one JSON object and duplicates of open files. Raises OSError."""
    payload = json.dumps(message).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(payload))], list(descriptors))
    connection.sendall(payload)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and its open files; None when the other side has closed. Raises OSError."""
    header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, MOST_DESCRIPTORS)
    if len(header) < _LENGTH.size:
        return None
    (missing,), payload = _LENGTH.unpack(header), b""
    while missing:
        chunk = connection.recv(min(missing, 65536))
        if not chunk:
            return None
        payload, missing = payload + chunk, missing - len(chunk)
    return json.loads(payload), descriptors
