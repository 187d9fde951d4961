"""A large checkpoint on its way up and down: by the directory against `cp` and sendfile, by a bucket against a request.

Up it is on the disk and its SHA-256 is verified when the last answer comes, so `cp` is followed by fsync and one hash.
Down both sides read the disk: what an upload leaves in the page cache depends on how it was written.

The bucket is moto's server, which keeps objects in memory and is slower than a real one: the ratio says what the way
costs, not what a bucket does, and its checkpoint is smaller so that the memory suffices.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psutil
from botocore.session import get_session

from benchmarks.figures import Figure, Spread, in_turns, ratios
from domain.messages import CheckpointOffer, Device, NodeFacts
from domain.text.formats import MIB
from tests.end_to_end.product import free_port, wait_for
from worker.checkpoints.upload import BucketUpload, part_digests, send_through_server
from worker.checkpoints.watching import CheckpointCopy
from worker.session.client import Client, TaskRef

PEERS = [
    ("directory up", "cp, fsync and SHA-256", 0.5), ("directory down", "sendfile", 0.7),
    ("bucket up", "put_object", 0.7), ("bucket down", "get_object", 0.7),
]  # fmt: skip
"""Ours, the peer, and the least ratio."""
MOST_GROWTH_MB = 30


def measure(quick: bool) -> Iterator[Figure]:
    """Bytes a second both ways, and by how much the dashboard's memory grew at most."""
    sizes, rounds = {"directory": 2048 * MIB, "bucket": 512 * MIB}, 4
    if quick:
        sizes, rounds = dict.fromkeys(sizes, 16 * MIB), 1
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        environment = running.enter_context(bucket())
        acts = bare_acts(Path(folder), sizes, environment["AWS_ENDPOINT_URL"])
        ways = {}
        for way, env in {"directory": {}, "bucket": environment}.items():
            dashboard = running.enter_context(Dashboard(Path(folder) / way, env))
            ways[way] = Way(dashboard, Path(folder) / f"{way}.bin", sizes[way])
            acts |= {f"{way} up": ways[way].up, f"{way} down": ways[way].down}
        rates = in_turns(acts, rounds)
    for act, peer, least in PEERS:
        ours, theirs = (f"{Spread.of(rates[name]).median / 1e6:,.0f} MB/s" for name in (act, peer))
        what = f"checkpoint of {sizes[act.partition(' ')[0]] // MIB:,} MiB, {act}"
        yield Figure(what, ours, peer, theirs, ratios(rates[act], rates[peer]), least)
    for way, transfers in ways.items():
        growth = Spread.of(grown / MOST_GROWTH_MB for grown in transfers.growths_mb)
        text = f"{max(transfers.growths_mb):.0f} MB"
        yield Figure(f"memory of it, {way}", text, "a limit", f"{MOST_GROWTH_MB} MB", growth, 1, "less")


def bare_acts(folder: Path, sizes: dict[str, int], bucket_url: str) -> dict[str, Callable[[], float]]:
    """The same bytes without us, by the names of `PEERS`."""
    files = BareFiles(folder / "bare.bin", sizes["directory"])
    requests = BareRequests(bucket_url, folder / "object.bin", sizes["bucket"])
    copies = {"cp, fsync and SHA-256": files.copy_durably, "sendfile": files.send}
    return copies | {"put_object": requests.put, "get_object": requests.get}


class BareFiles:
    """A file copied on the disk, and sent over loopback by the kernel alone."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._copy, self._size = written(path, size).path, Path(f"{path}.copy"), size

    def copy_durably(self) -> float:
        self._copy.unlink(missing_ok=True)
        return rate(self._size, self._copy_and_hash)

    def send(self) -> float:
        leave_cache(self._path)
        with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
            sending = threads.submit(self._serve, server)
            with socket.create_connection(server.getsockname()) as connection:
                sent = rate(self._size, lambda: self._receive(connection))
            sending.result()
        return sent

    def _copy_and_hash(self) -> None:
        subprocess.run(["cp", str(self._path), str(self._copy)], check=True)
        with self._copy.open("rb") as file:
            os.fsync(file.fileno())
            hashlib.file_digest(file, "sha256")

    def _serve(self, server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, self._path.open("rb") as file:
            connection.sendfile(file)

    def _receive(self, connection: socket.socket) -> None:
        assert received(connection.recv_into) == self._size


class BareRequests:
    """A file sent to the bucket and back, in one request each."""

    def __init__(self, url: str, path: Path, size: int) -> None:
        self._path, self._size, self._bucket = written(path, size).path, size, s3_client(url)

    def put(self) -> float:
        with self._path.open("rb") as file:
            at = {"Bucket": "checkpoints", "Key": "bare", "Body": file}
            return rate(self._size, lambda: self._bucket.put_object(**at))

    def get(self) -> float:
        return rate(self._size, self._read)

    def _read(self) -> None:
        at = {"Bucket": "checkpoints", "Key": "bare"}
        assert fetched(self._bucket.generate_presigned_url("get_object", Params=at)) == self._size


def leave_cache(path: Path) -> None:
    """Drop the file's pages from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rate(size: int, act: Callable[[], object]) -> float:
    """Bytes a second."""
    began = time.perf_counter()
    act()
    return size / (time.perf_counter() - began)


def fetched(url: str, **headers: str) -> int:
    """The size of an answer that is read with next to no work, as a browser's C does."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc)
    connection.request("GET", f"{address.path}?{address.query}", headers=headers)
    with connection.getresponse() as answer:
        assert answer.status == 200, answer.status
        return received(answer.readinto)


def received(read_into: Callable[[bytearray], int]) -> int:
    """The number of bytes until the end."""
    buffer, size = bytearray(MIB), 0
    while count := read_into(buffer):
        size += count
    return size


class Way:
    """Checkpoints on their way up to one place and down from it, and the memory that the dashboard took for it."""

    def __init__(self, dashboard: Dashboard, path: Path, size: int) -> None:
        self._dashboard, self._path, self._size = dashboard, path, size
        self.growths_mb: list[float] = []
        self.up()
        self.growths_mb.clear()  # what the first one loads stays

    def up(self) -> float:
        """Send a checkpoint of other bytes than the last."""
        snapshot = written(self._path, self._size)
        return self._rate(lambda: upload(self._dashboard, snapshot))

    def down(self) -> float:
        self._dashboard.leave_cache()
        return self._rate(lambda: download(self._dashboard))

    def _rate(self, transfer: Callable[[], int]) -> float:
        rate, grown_mb = self._dashboard.measured(transfer)
        self.growths_mb.append(grown_mb)
        return rate


class Dashboard:
    """A dashboard in a process of its own, with a run on a node that is spoken for here."""

    def __init__(self, data: Path, env: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        argv = [sys.executable, "-P", "-m", "cli.main", "dashboard", "--data", str(data)]
        argv += ["--port", self.url.rpartition(":")[2]]
        self._data, self._log = data, data.with_suffix(".log").open("wb")
        self._process = subprocess.Popen(argv, env=os.environ | env, stdout=self._log, stderr=self._log)
        wait_for(lambda: (data / "server.json").exists(), "the dashboard")
        self.http = httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {(data / 'token').read_text().strip()}"},
            timeout=600,
            trust_env=False,
        )
        self.client = Client(self.url)
        facts = NodeFacts(
            name="n0",
            instance_id="n0",
            hostname="n0",
            address="127.0.0.1",
            devices=[Device(id="cpu:0", kind="cpu", name="c")],
        )
        self.client.register(facts, None, (data / "join-token").read_text().strip())
        self.http.post("/api/runs", json={"target": "image_classifier", "gpus_per_node": 1}).raise_for_status()
        (assignment,) = self.client.desired_state(None, 5).assignments
        self.part = TaskRef(assignment.fence, 0)
        self.checkpoint_id = 0

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.client.close()
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def leave_cache(self) -> None:
        """Let the next download of the newest checkpoint read the disk."""
        path = self._data / "files" / "checkpoints" / str(self.checkpoint_id)
        if path.exists():  # otherwise it is in the bucket
            leave_cache(path)

    def measured(self, transfer: Callable[[], int]) -> tuple[float, float]:
        """Bytes a second, and by how many MB the dashboard's memory grew meanwhile."""
        process = psutil.Process(self._process.pid)
        before, most, is_over = process.memory_info().rss, 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not is_over.wait(0.02):
                most = max(most, process.memory_info().rss)

        watching = threading.Thread(target=watch)
        watching.start()
        began = time.perf_counter()
        try:
            size = transfer()
        finally:
            spent = time.perf_counter() - began
            is_over.set()
            watching.join()
        return size / spent, max(0, most - before) / 1e6


def upload(dashboard: Dashboard, snapshot: CheckpointCopy) -> int:
    """By the worker's own code: through the dashboard, or straight to its bucket."""
    offer = CheckpointOffer(
        path="work/large.bin",
        size_bytes=snapshot.size_bytes,
        sha256=snapshot.sha256,
        written_at=snapshot.written_at,
    )
    client = dashboard.client
    place = client.offer_checkpoint(dashboard.part, offer)
    dashboard.checkpoint_id = place.checkpoint_id
    sums = None
    if place.part_bytes:
        sums = part_digests(snapshot.path, place.part_bytes, snapshot.sha256, lambda: True)
    if place.part_bytes and sums:
        BucketUpload(client).send(snapshot, place, place.part_bytes, sums, lambda: True)
    else:
        send_through_server(client, snapshot, place, lambda: True)
    client.complete_checkpoint(place.checkpoint_id, offer.sha256, parts=sums)
    return snapshot.size_bytes


def download(dashboard: Dashboard) -> int:
    """Through the dashboard; without the hash that `rankzero download` computes at the end."""
    url = f"{dashboard.url}/api/checkpoints/{dashboard.checkpoint_id}/file?via=server"
    return fetched(url, Authorization=dashboard.http.headers["Authorization"])


def written(path: Path, size: int) -> CheckpointCopy:
    """A file like a checkpoint's copy in the outbox."""
    hashing, block = hashlib.sha256(), os.urandom(MIB)
    with path.open("wb") as file:
        for number in range(size // MIB):
            piece = number.to_bytes(8, "big") + block[8:]
            file.write(piece)
            hashing.update(piece)
    return CheckpointCopy(path.name, path, None, size, hashing.hexdigest(), time.time(), (0, 0, 0), None)


@contextmanager
def bucket() -> Iterator[dict[str, str]]:
    """moto's server in a process of its own; yields the environment of a dashboard that uses it."""
    port = free_port()
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            names = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret"}
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: reachable(url), "moto's server")
            s3_client(url).create_bucket(Bucket="checkpoints")
            yield names | {"AWS_ENDPOINT_URL": url, "RANKZERO_CHECKPOINTS_URL": "s3://checkpoints/runs"}
        finally:
            server.terminate()
            server.wait(30)


def s3_client(url: str) -> Any:
    return get_session().create_client(
        "s3", "us-east-1", endpoint_url=url, aws_access_key_id="a", aws_secret_access_key="b"
    )


def reachable(url: str) -> bool:
    try:
        return httpx2.get(url).status_code < 500
    except httpx2.TransportError:
        return False
