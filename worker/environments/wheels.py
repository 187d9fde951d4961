"""Wheels from the server for a node without a way to the index, and wheels fetched for such nodes."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from packaging.markers import InvalidMarker, Marker, default_environment
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from domain.clock import SYSTEM_CLOCK, Clock
from domain.environments.wheels import WheelFile, is_fetched, is_file_name
from domain.network.ip_addresses import is_of_another_machine
from domain.text.formats import plural
from worker.environments.locked import Package
from worker.environments.uv import IsStopped, Stopped
from worker.launch.preparation import training_environment
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused, ServerAway

log = logging.getLogger(__name__)
LOOK_S = 2.0
PIECE_BYTES = 1024 * 1024
FETCH_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
# The launch names the address: its server must not fill the disk or block other wheels for ever.
LARGEST_WHEEL_BYTES = 8 * 1024**3
LONGEST_FETCH_S = 3600.0


def chosen(packages: Sequence[Package], version: str) -> list[tuple[Package, dict[str, Any]]]:
    """Return the packages that this platform needs, each with the wheel that fits a Python of this version best.

    Packages without a fitting wheel, or from elsewhere than an index, are left out."""
    order = {tag: rank for rank, tag in enumerate(_tags(version))}
    pairs = []
    for package in packages:
        if _applies(package.get("marker"), version):
            ranked = [(rank, wheel) for wheel in package.get("wheels", []) if (rank := _rank(wheel, order)) is not None]
            if ranked:
                pairs.append((package, min(ranked, key=lambda pair: pair[0])[1]))
    return pairs


def is_at_hand(wheel: Mapping[str, Any]) -> bool:
    """Whether a wheel needs no network and lies on this node, as far as that is seen without asking the index."""
    path = _local_path(wheel)
    return path is None or path.exists()


class HandedWheels:
    """The wheels that the server has or gets for this node; used by the thread that prepares an attempt."""

    def __init__(
        self,
        client: Client,
        task: TaskRef,
        folder: Path,
        is_stopped: IsStopped,
        tell: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client, self._task, self._folder, self._clock = client, task, folder, clock
        self._is_stopped, self._tell = is_stopped, tell

    def bring(self, packages: Sequence[Package], version: str) -> list[Package] | None:
        """Return the packages with wheels that lie on this node now; None where some cannot be had.

        Raises Stopped, ServerAway, RequestRefused, OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        pairs = chosen(packages, version)
        if len(pairs) < sum(_applies(package.get("marker"), version) for package in packages):
            return None  # a package has no wheel for this platform
        missing = {name_of(wheel): wheel for _, wheel in pairs if not self._path(wheel).exists()}
        files = [_wheel_file(name, wheel) for name, wheel in missing.items()]
        if None in files or not self._wait([file for file in files if file is not None]):
            return None
        return [
            {
                **{key: value for key, value in package.items() if key not in ("sdist", "marker")},
                "wheels": [self._placed(wheel)],
            }
            for package, wheel in pairs
        ]

    def _wait(self, files: Sequence[WheelFile]) -> bool:
        """Download each wheel once the server has it; returns whether all came."""
        left = {file.sha256: file for file in files}
        while left:
            if self._is_stopped():
                raise Stopped
            answer = self._client.want_wheels(self._task, list(left.values()))
            for sha256 in answer.there:
                if (file := left.pop(sha256, None)) is not None:
                    self._tell(f"{file.name} from the dashboard")
                    self._client.download_wheel(self._task, file, self._folder / file.name)
            if set(answer.hopeless) & left.keys():
                return False
            if left:
                names = ", ".join(file.name for file in list(left.values())[:2])
                self._tell(f"waits for {plural(len(left), 'wheel')} that another node fetches: {names}")
                self._clock.pause(LOOK_S)
        return True

    def _path(self, wheel: Mapping[str, Any]) -> Path:
        own = _local_path(wheel)
        return own if own is not None and own.exists() else self._folder / name_of(wheel)

    def _placed(self, wheel: Mapping[str, Any]) -> dict[str, Any]:
        return {"path": str(self._path(wheel)), "hashes": wheel["hashes"]}


class WheelFetcher:
    """Fetches wheels that other nodes wait for and sends them to the server; one at a time, in a thread of its own."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        background: Callable[[Callable[[], None]], object],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client, self._folder, self._background, self._clock = client, folder, background, clock
        self._busy = threading.Lock()

    def fetch(self, wheels: Sequence[WheelFile]) -> None:
        """Begin to fetch the wheels; those asked for again are fetched twice, which does no harm."""
        if wheels:
            self._background(lambda: self._fetch_all(wheels))

    def _fetch_all(self, wheels: Sequence[WheelFile]) -> None:
        with self._busy:
            for wheel in wheels:
                try:
                    self._fetch_one(wheel)
                except (OSError, httpx2.HTTPError, ServerAway, RequestRefused, ValueError) as error:
                    log.info("the wheel %s for another node could not be fetched: %s", wheel.name, type(error).__name__)
                    with suppress(ServerAway, RequestRefused):
                        self._client.wheel_failed(wheel)

    def _fetch_one(self, wheel: WheelFile) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        arriving = self._folder / f"{wheel.name}.{os.getpid()}.part"
        try:
            _download(wheel.url, arriving, dict(training_environment(os.environ)), self._clock)
            if _digest(arriving) != wheel.sha256:
                raise ValueError("its SHA-256 is not the lock's")
            self._client.send_wheel(wheel, arriving)
            log.info("the wheel %s was fetched for another node", wheel.name)
        finally:
            arriving.unlink(missing_ok=True)


def name_of(wheel: Mapping[str, Any]) -> str:
    """Return the file name of a wheel in a lock."""
    return unquote(
        str(wheel.get("name") or wheel.get("url") or wheel.get("path") or "").partition("#")[0].rpartition("/")[2]
    )


def _wheel_file(name: str, wheel: Mapping[str, Any]) -> WheelFile | None:
    sha256 = str((wheel.get("hashes") or {}).get("sha256", ""))
    return WheelFile(name=name, sha256=sha256, url=wheel.get("url", "")) if is_file_name(name) and sha256 else None


def _local_path(wheel: Mapping[str, Any]) -> Path | None:
    """Return where a wheel lies if the lock names a file; None for one of an index."""
    if "path" in wheel:
        return Path(wheel["path"])
    address = urlsplit(str(wheel.get("url", "")))
    return Path(unquote(address.path)) if address.scheme == "file" else None


def _tags(version: str) -> Iterator[Tag]:
    major, minor = (int(number) for number in version.split(".")[:2])
    platforms = list(platform_tags())
    yield from cpython_tags((major, minor), platforms=platforms)
    yield from compatible_tags((major, minor), f"cp{major}{minor}", platforms)


def _rank(wheel: Mapping[str, Any], order: Mapping[Tag, int]) -> int | None:
    try:
        tags = parse_wheel_filename(name_of(wheel))[3]
    except InvalidWheelFilename:
        return None
    return min((order[tag] for tag in tags if tag in order), default=None)


def _applies(marker: str | None, version: str) -> bool:
    if not marker:
        return True
    environment = {**default_environment(), "python_full_version": version, "extra": ""}
    environment["python_version"] = ".".join(version.split(".")[:2])
    try:
        return Marker(marker).evaluate(environment)  # type: ignore[arg-type]
    except (InvalidMarker, KeyError):
        return True


def _download(url: str, target: Path, env: Mapping[str, str], clock: Clock) -> None:
    """Download a file with the node's own proxies and credentials. Raises OSError, HTTPError, ValueError."""
    http = httpx2.Client(
        timeout=FETCH_TIMEOUT, follow_redirects=True, transport=_FromOthers(), auth=_credentials(url, env)
    )
    with http, http.stream("GET", url) as response, target.open("wb") as file:
        response.raise_for_status()
        until = clock.now() + LONGEST_FETCH_S
        for piece in response.iter_bytes(PIECE_BYTES):
            file.write(piece)
            if file.tell() > LARGEST_WHEEL_BYTES or clock.now() > until:
                raise ValueError("it is larger than any wheel, or arrives too slowly")


class _FromOthers(httpx2.BaseTransport):
    """Requests to other machines alone, redirects among them: a name is resolved once, and connected to as checked."""

    def __init__(self) -> None:
        self._direct, self._proxied = httpx2.HTTPTransport(), dict[str, httpx2.HTTPTransport]()
        for scheme, proxy in getproxies().items():
            if scheme in ("http", "https"):
                self._proxied[scheme] = httpx2.HTTPTransport(proxy=proxy)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises ValueError for an address of this machine or none of another."""
        url, proxied = request.url, self._proxied.get(request.url.scheme)
        if not is_fetched(str(url)):
            raise ValueError("nodes do not fetch for each other from its address")
        if proxied is not None and not proxy_bypass(url.host):
            return proxied.handle_request(request)  # which resolves the name, and whose machine it is not on
        pinned = httpx2.Request(
            request.method,
            url.copy_with(host=_address_of(url.host, url.port or (443 if url.scheme == "https" else 80))),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions | {"sni_hostname": url.host},
        )
        return self._direct.handle_request(pinned)

    def close(self) -> None:
        """Close all connections."""
        for transport in (self._direct, *self._proxied.values()):
            transport.close()


def _address_of(host: str, port: int) -> str:
    """Return the IP address to connect to. Raises OSError, ValueError where one of the name's is not of others."""
    resolved = [str(endpoint[0]) for *_, endpoint in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not resolved or not all(map(is_of_another_machine, resolved)):
        raise ValueError("its name resolves to this machine or its own network")
    return resolved[0]


def _credentials(url: str, env: Mapping[str, str]) -> tuple[str, str] | None:
    """Return name and password of the node's index at the same scheme, host and port, if its settings have them."""
    for name, value in env.items():
        if "INDEX" not in name:
            continue
        for text in value.replace(",", " ").split():
            index = urlsplit(text.partition("=")[2] if "=" in text.partition("://")[0] else text)
            if index.username and _origin(index) == _origin(urlsplit(url)):
                return unquote(index.username), unquote(index.password or "")
    return None


def _origin(address: SplitResult) -> tuple[str, str | None, int | None]:
    return address.scheme, address.hostname, address.port


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
