"""What the browser of one open Streamlit page asks its server: the page once, then each fragment at its interval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed


class StreamlitViewer:
    """Speaks Streamlit's protocol as its JavaScript does, and draws nothing."""

    def __init__(self, socket: ClientConnection, query: str, on_markdown: Callable[[str], None]) -> None:
        """`on_markdown` gets the text of each markdown element that arrives."""
        self._socket, self._query, self._on_markdown = socket, query, on_markdown
        self._page = ""
        self._finished = asyncio.Event()
        self._timers: dict[str, asyncio.Task[None]] = {}

    async def open(self, page: str) -> None:
        """Ask for the page of that name and wait until its script has ended."""
        await self._rerun(page_name=page)
        listening = asyncio.create_task(self._listen())
        self._timers[""] = listening
        await self._finished.wait()

    async def close(self) -> None:
        """End its requests and the connection."""
        for task in self._timers.values():
            task.cancel()
        await self._socket.close()

    async def _listen(self) -> None:
        with suppress(ConnectionClosed):
            async for data in self._socket:
                assert isinstance(data, bytes)
                self._take(ForwardMsg.FromString(data))

    def _take(self, message: ForwardMsg) -> None:
        match message.WhichOneof("type"):
            case "new_session":
                self._page = message.new_session.page_script_hash
            case "auto_rerun":
                rerun = message.auto_rerun
                self._timers[rerun.fragment_id] = asyncio.create_task(
                    self._ask_again(rerun.fragment_id, rerun.interval)
                )
            case "stop_auto_rerun":
                for fragment in message.stop_auto_rerun.fragment_ids:
                    self._timers.pop(fragment).cancel()
            case "script_finished":
                self._finished.set()
            case "delta" if message.delta.new_element.HasField("markdown"):
                self._on_markdown(message.delta.new_element.markdown.body)

    async def _ask_again(self, fragment: str, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self._rerun(fragment_id=fragment, page_script_hash=self._page, is_auto_rerun=True)

    async def _rerun(self, **state: str | bool) -> None:
        message = BackMsg()
        message.rerun_script.query_string = self._query
        for name, value in state.items():
            setattr(message.rerun_script, name, value)
        await self._socket.send(message.SerializeToString())


async def viewer(
    url: str, query: str, headers: Mapping[str, str], on_markdown: Callable[[str], None] = lambda _: None
) -> StreamlitViewer:
    """Connect to the server at this address (http://…)."""
    address = f"{url.replace('http', 'ws', 1)}/_stcore/stream"
    return StreamlitViewer(await bare(address, headers, "streamlit"), query, on_markdown)


async def bare(address: str, headers: Mapping[str, str], *protocols: str) -> ClientConnection:
    """A WebSocket that neither compresses nor limits messages."""
    return await connect(
        address, additional_headers=dict(headers), subprotocols=[*protocols] or None,  # type: ignore[list-item]
        compression=None, max_size=None, ping_interval=None, open_timeout=120, proxy=None,
    )  # fmt: skip
